//! [`Options`]: which cells of a recipe a run measures.

use clap::Args;
use miette::{Result, miette};

use super::build;
use super::shard::Shard;
use crate::recipe::Cell;
use crate::row::{Row, Status};

/// What the user asked for, apart from the recipe.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Run every chosen cell again, also the finished ones
    #[arg(long)]
    pub force: bool,
    /// Run again the cells that ended as oom, failed or diverged, or could not save their weights
    #[arg(long)]
    pub retry_failed: bool,
    /// Run again the cells whose rows are of another build of the runner
    #[arg(long)]
    pub stale: bool,
    /// Run only this cell, numbered as in `runner plan`; may be repeated
    #[arg(long = "cell", value_name = "K")]
    pub cells: Vec<usize>,
    /// Only this part of the cells: `--shard`, resolved with the variables of a cluster.
    #[arg(skip)]
    pub shard: Option<Shard>,
    /// Stop at the first cell that does not end well
    #[arg(long)]
    pub fail_fast: bool,
}

impl Options {
    /// Positions of the chosen cells of a recipe with `count` cells, from 0 and rising.
    ///
    /// # Errors
    /// When the recipe does not have a chosen cell.
    pub fn choose(&self, count: usize) -> Result<Vec<usize>> {
        if let Some(wrong) = self.cells.iter().find(|number| !(1..=count).contains(*number)) {
            return Err(miette!(
                help = "`runner plan` lists the cells with their numbers",
                "there is no cell {wrong}: the recipe has cells 1 to {count}"
            ));
        }
        Ok((0..count)
            .filter(|position| self.cells.is_empty() || self.cells.contains(&(position + 1)))
            .filter(|position| self.shard.is_none_or(|shard| shard.contains(*position)))
            .collect())
    }

    /// Whether to measure a chosen cell that can run here and has this row.
    pub fn wants(&self, row: Option<&Row>) -> bool {
        row.is_none_or(|row| {
            self.force
                || row.status == Status::Skipped
                || (self.retry_failed && !row.ended_well())
                || (self.stale && row.environment.build != build::SOURCES)
        })
    }

    /// Which processes of a cell with these rows to measure, from 0. Where the first stays and is enough, there are no others.
    pub fn due(&self, cell: &Cell, rows: &[Option<Row>]) -> impl Iterator<Item = usize> {
        let enough = rows[0].as_ref().is_some_and(|row| !self.wants(Some(row)) && is_enough(cell, row));
        (0..rows.len()).filter(move |process| !enough && self.wants(rows[*process].as_ref()))
    }
}

/// Longest first process of a cell, in seconds, behind which others measure it where the recipe does not say how many do.
const LONGEST_REPEATED: f64 = 60.0;

/// Whether a cell's first process leaves nothing to later ones: it did not end well, or the recipe leaves their number open
/// and it took longer than [`LONGEST_REPEATED`]. A row of an earlier version, which measured a cell once, stays alone.
pub fn is_enough(cell: &Cell, first: &Row) -> bool {
    let is_long = || first.prepared_seconds().is_none_or(|seconds| seconds > LONGEST_REPEATED);
    first.status != Status::Ok || cell.measure.repeats.is_none() && is_long()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measurement;
    use crate::run::testing;

    #[test]
    fn cells_and_shard_narrow_each_other() {
        let mut options = Options::default();
        assert_eq!(options.choose(3).unwrap(), [0, 1, 2]);
        options.cells = vec![5, 2, 4];
        assert_eq!(options.choose(5).unwrap(), [1, 3, 4]);
        options.shard = Some("2/2".parse().unwrap());
        assert_eq!(options.choose(5).unwrap(), [1, 3]);
    }

    #[test]
    fn after_a_bad_first_process_the_others_only_run_on_request() {
        let mut cell = testing::recipe().cells.remove(0);
        cell.measure.repeats = Some(2);
        let cell = &cell;
        let row = |status| Some(Row::new(cell, &testing::environment(), status, String::new()));
        let due = |options: &Options, rows: &[Option<Row>]| options.due(cell, rows).collect::<Vec<_>>();
        let options = Options::default();
        assert_eq!(due(&options, &[None, None]), [0, 1]);
        assert_eq!(due(&options, &[row(Status::Ok), row(Status::Failed), None]), [2]);
        assert_eq!(due(&options, &[row(Status::Failed), None]), [0; 0]);
        let retry = Options { retry_failed: true, ..Options::default() };
        assert_eq!(due(&retry, &[row(Status::Failed), None, row(Status::Ok)]), [0, 1]);
    }

    #[test]
    fn where_the_number_is_open_others_follow_a_short_process_of_this_version() {
        let mut cell = testing::recipe().cells.remove(0);
        cell.measure.repeats = None;
        let cell = &cell;
        let measurement = Measurement { prepare_seconds: Some(40.0), ..testing::measurement(1.0) };
        let row = |process_seconds, measurement: &Measurement| {
            let row = Row::new(cell, &testing::environment(), Status::Ok, String::new());
            Row { process_seconds, measurement: Some(measurement.clone()), ..row }
        };
        let due = |cell: &Cell, first: Row| Options::default().due(cell, &[Some(first), None, None]).count();
        let quick = testing::measurement(1.0);
        for (seconds, measurement, others) in [
            (Some(59.0), &quick, 2),
            (Some(61.0), &quick, 0),
            (Some(61.0), &measurement, 2),
            (Some(101.0), &measurement, 0),
            (None, &quick, 0),
        ] {
            assert_eq!(due(cell, row(seconds, measurement)), others, "{seconds:?}");
        }
        let mut told = cell.clone();
        told.measure.repeats = Some(3);
        assert_eq!([Some(101.0), None].map(|seconds| due(&told, row(seconds, &quick))), [2, 2]);
        let stale = Options { stale: true, ..Options::default() };
        let mut old = row(None, &quick);
        old.environment.build = "0123456789ab".into();
        assert_eq!(stale.due(cell, &[Some(old), None, None]).count(), 3, "its time is not known before");
    }

    #[test]
    fn an_unknown_cell_is_an_error() {
        for number in [0, 4] {
            let options = Options { cells: vec![number], ..Options::default() };
            let error = options.choose(3).unwrap_err().to_string();
            assert!(error.contains(&format!("no cell {number}")) && error.contains("1 to 3"), "{error}");
        }
    }
}
