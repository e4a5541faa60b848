//! The build of this runner, and finished rows of other builds.

use itertools::Itertools;

use crate::common::text::and;
use crate::row::Row;

/// Hash of the sources and the profile of this program.
pub const SOURCES: &str = env!("RUNNER_BUILD");
/// The commit of these sources, with `-dirty` if they have changed since; empty if unknown.
pub const COMMIT: &str = env!("RUNNER_COMMIT");

/// A notice of finished rows that another build measured; `None` if there are none.
pub fn stale_notice<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<String> {
    let stale: Vec<&str> = rows
        .filter(|row| row.environment.build != SOURCES)
        .map(|row| row.environment.commit.as_str())
        .collect();
    let rows = match stale.len() {
        0 => return None,
        1 => "1 finished row is of another build of the runner".to_string(),
        n => format!("{n} finished rows are of other builds of the runner"),
    };
    let builds = and(stale.into_iter().unique().map(|commit| match commit {
        "" => "of an unknown commit".to_string(),
        commit => format!("of commit {commit}"),
    }));
    Some(format!("{rows}, {builds}; --stale measures such cells again"))
}
