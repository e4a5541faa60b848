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
    /// `lookup` reads: SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX (Kubernetes) or HQ_TASK_ID (HyperQueue). Any n consecutive
    /// task numbers give all n shards. Only Slurm also says how many tasks there are.
    ///
    /// # Errors
    /// When argument and variables do not determine a shard; says what to pass.
    pub fn resolve(argument: Option<&str>, lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &str| variables::number(&lookup, name, "pass --shard i/n");
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
        for name in ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "HQ_TASK_ID"] {
            let Some(task) = number(name)? else { continue };
            if let Some(count) = count {
                return Ok(Some(Self { index: task % count + 1, count }));
            }
            let of_slurm = name == "SLURM_ARRAY_TASK_ID";
            let count = if of_slurm { number("SLURM_ARRAY_TASK_COUNT")? } else { None };
            let Some(count) = count.filter(|count| *count > 0) else {
                return Err(miette!(
                    help = "pass --shard N with the number of tasks, or --shard 1/1 to run every cell in this one",
                    "{name} is set, but nothing says how many tasks there are"
                ));
            };
            let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
            let last = number("SLURM_ARRAY_TASK_MAX")?.unwrap_or(first + count - 1);
            if !(first..=last).contains(&task) || last - first + 1 != count {
                return Err(miette!(
                    help = "use an array without gaps such as --array=1-8, or pass --shard i/n",
                    "the {count} tasks of the Slurm array are not {count} numbers in a row"
                ));
            }
            return Ok(Some(Self { index: task - first + 1, count }));
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

    #[test]
    fn slurm_says_everything() {
        let array = |task, min, max, count| {
            [
                ("SLURM_ARRAY_TASK_ID", task),
                ("SLURM_ARRAY_TASK_MIN", min),
                ("SLURM_ARRAY_TASK_MAX", max),
                ("SLURM_ARRAY_TASK_COUNT", count),
            ]
        };
        assert_eq!(resolve(None, &array("1", "1", "8", "8")), Ok(Some("1/8".into())));
        assert_eq!(resolve(None, &array("8", "1", "8", "8")), Ok(Some("8/8".into())));
        assert_eq!(resolve(None, &array("0", "0", "3", "4")), Ok(Some("1/4".into())));
        assert!(resolve(None, &array("3", "1", "7", "3")).unwrap_err().contains("in a row"));
        assert!(resolve(None, &array("x", "1", "7", "3")).unwrap_err().contains("is no number"));
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
