//! [`Shard`]: one of n parts of a recipe's cells, for job arrays of a cluster.

use std::str::FromStr;

use miette::{Result, miette};

use super::variables;

/// Part `index` of `count`: every `count`-th cell, beginning with cell `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `count`.
    index: usize,
    count: usize,
}

impl Shard {
    /// Whether the cell at `position` (from 0) is in this part.
    pub fn contains(&self, position: usize) -> bool {
        position % self.count == self.index - 1
    }

    /// The shard of `--shard`, which may be `i/n`, `n` alone or absent. Without `i` it comes from environment variables, which
    /// `lookup` reads: SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX (Kubernetes) or HQ_TASK_ID (HyperQueue). Slurm also says
    /// which tasks there are; of the others any n consecutive task numbers give all n shards.
    ///
    /// # Errors
    /// When argument and variables do not determine a shard, or contradict each other; says what to pass.
    pub fn resolve(argument: Option<&str>, lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let count = match argument {
            Some(text) if text.contains('/') => return Ok(Some(text.parse().map_err(invalid)?)),
            Some(text) => Some(
                text.parse::<usize>()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| invalid(format!("`{text}` is not a number of shards")))?,
            ),
            None => None,
        };
        if let Some(shard) = slurm(count, &lookup)? {
            return Ok(Some(shard));
        }
        for name in ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "HQ_TASK_ID"] {
            let Some(task) = number(&lookup, name)? else { continue };
            let Some(count) = count else {
                return Err(miette!(
                    help = "pass --shard N with the number of tasks, or --shard 1/1 to run every cell in this one",
                    "{name} is set, but nothing says how many tasks there are"
                ));
            };
            return Ok(Some(Self { index: task % count + 1, count }));
        }
        match count {
            None => Ok(None),
            Some(count) => Err(miette!(
                help = "pass --shard i/n, with i from 1 to n",
                "--shard {count} names no shard, and no variable of a cluster does"
            )),
        }
    }
}

fn number(lookup: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>> {
    variables::number(lookup, name, "pass --shard i/n")
}

/// The shard of a task of a Slurm array, whose numbers begin anywhere and are `step` apart, as in `--array=0-20:5`. `None`
/// outside of an array, and where Slurm does not say which tasks there are. `asked`: the n of `--shard n`.
///
/// # Errors
/// An array with gaps, and one with another number of tasks than was asked for.
fn slurm(asked: Option<usize>, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Shard>> {
    let variable = |name: &str| number(lookup, &format!("SLURM_ARRAY_TASK_{name}"));
    let (Some(task), Some(count)) = (variable("ID")?, variable("COUNT")?.filter(|count| *count > 0)) else {
        return Ok(None);
    };
    let step = variable("STEP")?.unwrap_or(1).max(1);
    let first = variable("MIN")?.unwrap_or(0);
    let last = variable("MAX")?.unwrap_or_else(|| first.saturating_add((count - 1).saturating_mul(step)));
    let even = (first..=last).contains(&task)
        && (task - first).is_multiple_of(step)
        && (last - first) / step == count - 1;
    if !even {
        return Err(miette!(
            help = "use an array without gaps such as --array=1-8 or --array=0-20:5, or pass --shard i/n",
            "the {count} tasks of the Slurm array, from {first} to {last} with step {step}, are not evenly spaced"
        ));
    }
    if let Some(asked) = asked.filter(|asked| *asked != count) {
        return Err(miette!(
            help = "leave out --shard, or pass --shard i/n if this array runs only some of the n parts",
            "--shard {asked} asks for {asked} parts, and the Slurm array has {count} tasks"
        ));
    }
    Ok(Some(Shard { index: (task - first) / step + 1, count }))
}

fn invalid(message: String) -> miette::Report {
    miette!(help = "write --shard i/n with i from 1 to n, such as --shard 2/8", "{message}")
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
        match parts {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Self { index, count }),
            _ => Err(format!("`{text}` is not a shard")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(argument: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let lookup =
            |name: &str| variables.iter().find(|(have, _)| *have == name).map(|(_, value)| value.to_string());
        match Shard::resolve(argument, lookup) {
            Ok(shard) => Ok(shard.map(|shard| format!("{}/{}", shard.index, shard.count))),
            Err(e) => Err(e.to_string()),
        }
    }

    #[test]
    fn shards_are_disjoint_and_cover_all_cells() {
        for position in 0..10 {
            let of = (1..=4).filter(|index| Shard { index: *index, count: 4 }.contains(position)).count();
            assert_eq!(of, 1, "cell {position}");
        }
        assert!(Shard { index: 1, count: 4 }.contains(0) && Shard { index: 4, count: 4 }.contains(3));
    }

    #[test]
    fn the_argument_alone() {
        assert_eq!(resolve(None, &[]), Ok(None));
        assert_eq!(resolve(Some("2/8"), &[("HQ_TASK_ID", "5")]), Ok(Some("2/8".into())));
        for wrong in ["0/8", "9/8", "x", "1/0", "0", "2/", "-1/3"] {
            assert!(resolve(Some(wrong), &[]).is_err(), "{wrong}");
        }
        assert!(resolve(Some("8"), &[]).unwrap_err().contains("names no shard"));
    }

    /// The shard of a task of an array.
    fn of_array(
        shards: Option<&str>,
        task: &str,
        [min, max, step, count]: [&str; 4],
    ) -> Result<Option<String>, String> {
        resolve(
            shards,
            &[
                ("SLURM_ARRAY_TASK_ID", task),
                ("SLURM_ARRAY_TASK_MIN", min),
                ("SLURM_ARRAY_TASK_MAX", max),
                ("SLURM_ARRAY_TASK_STEP", step),
                ("SLURM_ARRAY_TASK_COUNT", count),
            ],
        )
    }

    #[test]
    fn a_slurm_array_may_begin_anywhere_and_have_any_step() {
        for (array, tasks) in [
            (["1", "8", "1", "8"], (1..=8).collect::<Vec<usize>>()),
            (["0", "3", "1", "4"], (0..4).collect()),
            (["0", "20", "5", "5"], vec![0, 5, 10, 15, 20]),
            // Slurm has the last number of the array as it was written.
            (["0", "23", "5", "5"], vec![0, 5, 10, 15, 20]),
            (["7", "13", "3", "3"], vec![7, 10, 13]),
            (["4", "4", "1", "1"], vec![4]),
        ] {
            let shards = array[3];
            for (i, task) in tasks.iter().enumerate() {
                let expected = Ok(Some(format!("{}/{shards}", i + 1)));
                assert_eq!(of_array(None, &task.to_string(), array), expected);
                assert_eq!(of_array(Some(shards), &task.to_string(), array), expected);
            }
        }
        let without_step = of_array(None, "8", ["1", "8", "", "8"]);
        assert_eq!(without_step, Ok(Some("8/8".into())));
    }

    #[test]
    fn a_slurm_array_that_gives_no_shards_is_refused() {
        let refused = |shards, task, array, part: &str| {
            let message = of_array(shards, task, array).unwrap_err();
            assert!(message.contains(part), "{message}");
        };
        refused(None, "3", ["1", "7", "1", "3"], "not evenly spaced");
        refused(Some("3"), "3", ["1", "7", "1", "3"], "not evenly spaced");
        refused(None, "6", ["0", "20", "5", "5"], "not evenly spaced");
        refused(None, "25", ["0", "20", "5", "5"], "not evenly spaced");
        refused(None, "x", ["1", "7", "1", "3"], "is no number");
        refused(
            Some("8"),
            "5",
            ["0", "20", "5", "5"],
            "--shard 8 asks for 8 parts, and the Slurm array has 5 tasks",
        );
        assert_eq!(of_array(Some("3/8"), "5", ["0", "20", "5", "5"]), Ok(Some("3/8".into())));
    }

    #[test]
    fn other_clusters_need_the_count() {
        for name in ["JOB_COMPLETION_INDEX", "HQ_TASK_ID", "SLURM_ARRAY_TASK_ID"] {
            assert!(resolve(None, &[(name, "2")]).unwrap_err().contains(name));
            assert_eq!(resolve(Some("4"), &[(name, "2")]), Ok(Some("3/4".into())));
            assert_eq!(resolve(Some("4"), &[(name, "4")]), Ok(Some("1/4".into())));
        }
    }
}
