//! Every launcher's variables, and those of processes that it did not start.

use super::*;

type Variables<'a> = &'a [(&'a str, &'a str)];

const TORCHRUN: Variables<'static> = &[
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "3"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("GROUP_WORLD_SIZE", "1"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "29500"),
];
const MPIRUN: Variables<'static> = &[
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-77@1"),
];
/// Of ranks on several hosts.
const KNOWN: (&str, &str) = ("RUNNER_SECRET", "of a test");
const SRUN: Variables<'static> = &[
    ("SLURM_PROCID", "0"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NUM_NODES", "1"),
    ("SLURM_NNODES", "2"),
    ("SLURM_CPUS_PER_TASK", "4"),
];

/// Without the variables of `but` that have no value, and with those of it that have.
fn with<T>(variables: Variables, but: Variables, work: impl Fn(Lookup) -> Result<T>) -> Result<T, String> {
    let value = |name: &str| {
        let (_, value) = but.iter().chain(variables).find(|(have, _)| *have == name)?;
        Some(value.to_string()).filter(|value| !value.is_empty())
    };
    work(&value).map_err(|e| format!("{e} {}", e.help().map_or(String::new(), |help| help.to_string())))
}

fn find(variables: Variables, but: Variables) -> Result<(&'static str, usize, usize, usize), String> {
    with(variables, but, Launched::find).map(|l| (l.launcher, l.rank, l.size, l.sharing(4)))
}

fn guard(variables: Variables, but: Variables) -> Result<(), String> {
    with(variables, but, Launched::require_one_process)
}

#[test]
fn each_launcher_says_the_place() {
    assert_eq!(find(TORCHRUN, &[]), Ok(("torchrun", 3, 4, 4)));
    assert_eq!(find(MPIRUN, &[]), Ok(("mpirun", 1, 2, 2)));
    assert_eq!(find(SRUN, &[]), Ok(("srun", 0, 8, 1)), "each of its processes has cores of its own");
    // torchrun in a step of one process.
    let both = [TORCHRUN, SRUN].concat();
    assert_eq!(find(&both, &[("SLURM_NTASKS", "1")]), Ok(("torchrun", 3, 4, 4)));
    let left_over = [("RANK", "0"), ("WORLD_SIZE", "1")];
    assert_eq!(find(SRUN, &left_over), Ok(("srun", 0, 8, 1)));
}

#[test]
fn what_cannot_meet_is_refused() {
    for (variables, but, parts) in [
        (SRUN, &[("SLURM_STEP_NUM_NODES", "2")][..], ["several hosts", "examples/cluster/hosts.sh"]),
        (SRUN, &[("SLURM_STEP_NUM_NODES", "2"), ("MASTER_ADDR", "a")], ["several hosts", "MASTER_PORT"]),
        (
            MPIRUN,
            &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("MASTER_PORT", "1")],
            ["several hosts", "MASTER_ADDR"],
        ),
        (TORCHRUN, &[("LOCAL_WORLD_SIZE", "2"), ("MASTER_PORT", "x")], ["MASTER_PORT", "no number"]),
        (TORCHRUN, &[("LOCAL_WORLD_SIZE", "2")], ["RUNNER_SECRET is not set", "-x RUNNER_SECRET"]),
        (
            TORCHRUN,
            &[("LOCAL_WORLD_SIZE", "2"), ("RUNNER_SECRET", " ")],
            ["several hosts", "export RUNNER_SECRET=$(head -c 32 /dev/urandom | base64)"],
        ),
        (TORCHRUN, &[("RANK", "4")], ["WORLD_SIZE is 4", "RANK is 4"]),
        (TORCHRUN, &[("RANK", "")], ["WORLD_SIZE is 4", "RANK is not set"]),
        (TORCHRUN, &[("RANK", "one")], ["RANK is \"one\"", "no number"]),
        (TORCHRUN, &[("MASTER_ADDR", ""), ("MASTER_PORT", "")], ["from another start", "MASTER_PORT"]),
        (&[], &[], ["no launcher", "srun --ntasks=4 runner join RECIPE"]),
        // The script of a job.
        (
            SRUN,
            &[("SLURM_STEP_ID", "")],
            ["no launcher", "torchrun --no-python --nproc-per-node=4 runner join"],
        ),
    ] {
        let error = find(variables, but).expect_err("refused");
        parts.iter().for_each(|part| assert!(error.contains(part), "no `{part}` in {error}"));
    }
}

#[test]
fn ranks_on_several_hosts_know_where_they_meet() {
    let meets = |variables: Variables, but: Variables| {
        let found = with(variables, &[but, &[KNOWN]].concat(), Launched::find).expect("found");
        (found.address.clone(), found.place().1, found.sharing(8))
    };
    assert_eq!(meets(TORCHRUN, &[]), (None, 3, 4));
    let two = ("LOCAL_WORLD_SIZE", "2");
    assert_eq!(meets(TORCHRUN, &[two, ("LOCAL_RANK", "1")]), (Some("127.0.0.1:29500".into()), 1, 2));
    let agent = [two, ("TORCHELASTIC_USE_AGENT_STORE", "True"), ("MASTER_ADDR", "fe80::1")];
    assert_eq!(meets(TORCHRUN, &agent).0, Some("[fe80::1]:29501".into()), "torchrun has the port itself");
    let nodes = [
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_LOCALID", "2"),
        ("SLURM_CPUS_PER_TASK", ""),
        ("MASTER_ADDR", "node1"),
        ("MASTER_PORT", "6000"),
    ];
    assert_eq!(meets(SRUN, &nodes), (Some("node1:6000".into()), 2, 4));
}

#[test]
fn several_processes_of_run_are_refused_with_the_right_line() {
    for (variables, line) in [
        (TORCHRUN, "torchrun --no-python --nproc-per-node=4 runner join RECIPE"),
        (MPIRUN, "mpirun -n 2 runner join RECIPE"),
        (SRUN, "srun --ntasks=8 runner join RECIPE"),
        (&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")], "sbatch --array=1-8 examples/cluster/slurm.sh"),
        (&[("WORLD_SIZE", "2")], "torchrun --no-python --nproc-per-node=1 runner run RECIPE"),
    ] {
        let error = guard(variables, &[]).expect_err("refused");
        assert!(error.contains(line) && error.contains("--shard i/"), "{error}");
    }
    for (variables, but) in [
        (SRUN, &[("SLURM_NTASKS", "1")][..]),
        (TORCHRUN, &[("WORLD_SIZE", "1")]),
        (MPIRUN, &[("OMPI_COMM_WORLD_SIZE", "1")]),
        (&[], &[]),
        // The script of a job of eight tasks is one process.
        (SRUN, &[("SLURM_STEP_ID", "")]),
    ] {
        assert_eq!(guard(variables, but), Ok(()));
    }
}

#[test]
fn only_those_of_one_start_meet() {
    let seat = |but: Variables| with(TORCHRUN, but, Launched::find).expect("found").seat(30.0);
    assert_eq!(seat(&[]), seat(&[]));
    assert_eq!(seat(&[("RANK", "1")]).meeting, seat(&[]).meeting);
    assert_ne!(seat(&[("MASTER_PORT", "29501")]).meeting, seat(&[]).meeting);
    // Over the network the place is known, and the key tells them apart.
    let hosts = ("LOCAL_WORLD_SIZE", "2");
    let (one, other) = (seat(&[hosts, KNOWN]).meeting, seat(&[hosts, ("RUNNER_SECRET", "s")]).meeting);
    assert_eq!(one.address, other.address);
    assert_ne!(one, other);
    assert_eq!(one, seat(&[hosts, KNOWN, ("RANK", "1")]).meeting);
}

#[test]
fn each_meeting_of_a_start_has_its_own_key_and_the_secret_is_not_shown() {
    let found = with(TORCHRUN, &[("LOCAL_WORLD_SIZE", "2"), KNOWN], Launched::find).expect("found");
    assert_ne!(found.meeting("cell 1"), found.meeting("cell 2"));
    assert_ne!(found.meeting("cell 1"), found.seat(1.0).meeting);
    let shown = format!("{found:?} {:?}", found.seat(1.0));
    assert!(!shown.contains(KNOWN.1), "{shown}");
}
