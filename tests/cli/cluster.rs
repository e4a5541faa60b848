//! `examples/cluster` in a made-up cluster: programs of the batch systems' names note how they are called.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::hosts::free_port;
use crate::place::{Place, TINY, runner};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cluster").join(name)
}

/// A program in the place's folder `bin`.
fn program(place: &Place, name: &str, script: &str) {
    let bin = place.path().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let path = bin.join(name);
    std::fs::write(&path, format!("#!/usr/bin/env bash\n{script}\n")).expect("a program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
}

/// Runs an example with the place's programs before all others.
fn run(place: &Place, name: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let path = format!("{}:{}", place.path().join("bin").display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new("bash");
    command.arg(example(name)).args(args).current_dir(place.path()).env("PATH", path);
    command.env("TMPDIR", place.path()).env("CUDA_VISIBLE_DEVICES", "");
    command.envs(variables.iter().copied()).output().expect("bash starts")
}

fn said(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path().join(name)).unwrap_or_default()
}

#[test]
fn examples_are_short() {
    for name in ["slurm.sh", "kubernetes.yaml", "hyperqueue.sh", "hosts.sh", "two_hosts.sh"] {
        let lines = std::fs::read_to_string(example(name)).expect("an example").lines().count();
        assert!(lines < 40, "{name} has {lines} lines");
    }
}

/// Two tasks of an array measure all cells into one folder.
#[test]
fn tasks_of_a_slurm_array_share_a_recipe() {
    let place = Place::new(TINY);
    program(&place, "runner", &format!("exec {} \"$@\"", runner().display()));
    for task in ["1", "2"] {
        let array = [
            ("SLURM_ARRAY_TASK_ID", task),
            ("SLURM_ARRAY_TASK_COUNT", "2"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_MAX", "2"),
            ("SLURM_JOB_ID", "77"),
        ];
        let ended = run(&place, "slurm.sh", &["recipe.toml", "results"], &array);
        assert!(ended.status.success(), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("2 measured"), "{ended:?}");
    }
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured, 4 finished earlier"]);
}

#[test]
fn slurm_starts_again_what_is_worth_it() {
    let place = Place::new(TINY);
    program(&place, "scontrol", "echo \"$@\" >> scontrol.txt");
    for (code, restarts, requeued) in
        [("75", "0", true), ("75", "3", false), ("130", "1", true), ("1", "0", false), ("0", "0", false)]
    {
        let _ = std::fs::remove_file(place.path().join("scontrol.txt"));
        program(&place, "runner", &format!("exit {code}"));
        let variables = [("SLURM_JOB_ID", "77"), ("SLURM_RESTART_COUNT", restarts)];
        let ended = run(&place, "slurm.sh", &["recipe.toml", "results"], &variables);
        assert_eq!(ended.status.code().map(|code| code.to_string()).as_deref(), Some(code));
        let expected = if requeued { "requeue 77\n" } else { "" };
        assert_eq!(said(&place, "scontrol.txt"), expected, "{code} after {restarts} restarts");
    }
}

/// All tasks of a job know where they meet.
#[test]
fn slurm_starts_ranks_on_several_hosts() {
    let place = Place::new(TINY);
    program(&place, "scontrol", "[ \"$3\" = 'node[7-8]' ] && printf 'node7\\nnode8\\n'");
    program(&place, "srun", "echo \"$MASTER_ADDR:$MASTER_PORT $@\" > srun.txt; env > env.txt");
    let variables = [("SLURM_JOB_ID", "1234567"), ("SLURM_JOB_NODELIST", "node[7-8]")];
    let secret = |variables: &[(&str, &str)]| {
        let ended = run(&place, "hosts.sh", &["recipe.toml", "results"], variables);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(said(&place, "srun.txt"), "node7:24567 runner join recipe.toml --results results\n");
        let all = said(&place, "env.txt");
        all.lines().find_map(|line| line.strip_prefix("RUNNER_SECRET=")).expect("a secret").to_string()
    };
    // 32 random bytes of each job's own.
    let secrets = [secret(&variables), secret(&variables)];
    assert!(secrets[0] != secrets[1] && secrets.iter().all(|secret| secret.len() == 44), "{secrets:?}");
    assert_eq!(secret(&[variables[0], variables[1], ("RUNNER_SECRET", "mine")]), "mine");
}

/// Two hosts that are one machine, with ranks on its CPU.
#[test]
fn one_machine_joins_itself_as_two_hosts() {
    let place = Place::new(&TINY.replace("\"train.batch_size\" = [2, 4]", "\"parallel.data\" = [2]"));
    program(&place, "runner", &format!("exec {} \"$@\"", runner().display()));
    let port = free_port().to_string();
    let variables = [("RUNNER_TEST_HOSTS", "1"), ("MASTER_PORT", &port)];
    let ended = run(&place, "two_hosts.sh", &["recipe.toml", "results", "--cell", "1"], &variables);
    assert!(ended.status.success(), "{ended:?}");
    let (said, told) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(told.contains("1 measured"), "{told}");
    assert!(said.contains("the first host ended with 0, the second with 0"), "{said}");
}

#[test]
fn hyperqueue_gets_an_array_whose_tasks_try_again() {
    let place = Place::new(TINY);
    // What stands behind `--` is what a worker runs, here as task 2.
    program(
        &place,
        "hq",
        "echo \"$@\" > hq.txt; while [ \"$1\" != -- ]; do shift; done; shift; HQ_TASK_ID=2 \"$@\"",
    );
    program(
        &place,
        "runner",
        "echo \"$HQ_TASK_ID $@\" >> runner.txt; [ $(wc -l < runner.txt) -gt 1 ] || exit 75",
    );
    let ended = run(&place, "hyperqueue.sh", &["recipe.toml", "shared", "4"], &[("RETRY_SECONDS", "0")]);
    assert!(ended.status.success(), "{ended:?}");
    assert!(said(&place, "hq.txt").starts_with("submit --array 1-4 "), "{}", said(&place, "hq.txt"));
    assert_eq!(said(&place, "runner.txt"), "2 run recipe.toml --results shared --shard 4\n".repeat(2));
}

/// The command of the job, as each of its pods would run it.
#[test]
fn pods_of_a_kubernetes_job_have_a_part_each() {
    let text = std::fs::read_to_string(example("kubernetes.yaml")).expect("an example");
    let command = text.lines().find_map(|line| line.trim().strip_prefix("command: ")).expect("a command");
    let words: Vec<String> = serde_json::from_str(command).expect("a list of words");
    let parts = words.iter().skip_while(|word| *word != "--shard").nth(1).expect("a number of parts");
    assert!(text.contains(&format!("completions: {parts}\n")), "as many pods as parts");
    let eight = TINY.replace("[2, 4]", "[2, 4, 6, 8]");
    let place = Place::new(&eight);
    let mut cells = Vec::new();
    for pod in 0..parts.parse::<usize>().expect("a number") {
        let args: Vec<&str> = words[1..]
            .iter()
            .map(|word| match word.as_str() {
                "/recipes/overlap.toml" => "recipe.toml",
                "/results" => "results",
                word => word,
            })
            .chain(["--dry-run"])
            .collect();
        let mut command = place.command(&args);
        let out = command.env("JOB_COMPLETION_INDEX", pod.to_string()).output().expect("the runner starts");
        let out = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = out.lines().find(|line| line.starts_with("would run")).expect("a dry run");
        cells.extend(line.rsplit(": ").next().unwrap_or_default().split(", ").map(String::from));
    }
    cells.sort();
    assert_eq!(cells, ["1", "2", "3", "4", "5", "6", "7", "8"]);
}
