//! Saves the row of a turn, and keeps what it replaces.

use std::io;

use miette::Result;

use super::{Run, Session};
use crate::row::{Row, Status};
use crate::run::again::TryAgain;

impl Run<'_> {
    /// Saves the row of a cell's process. A measured row that it replaces without a measurement is kept, with its trace, and the
    /// user is told where.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn save(&mut self, position: usize, row: &Row) -> Result<()> {
        let (store, progress) = (self.session.store, self.session.progress);
        let kept = store.save(row).map_err(|e| self.unsaved(row, &e))?;
        let (first, well) = (row.repeat == 1, row.status == Status::Ok);
        match (first, well) {
            (true, true) => store.take_new_trace(&row.key),
            (true, false) => store.drop_new_trace(&row.key),
            (false, _) => {}
        }
        if let Some(kept) = kept {
            // A row of another version would not count.
            let known = self.rows[position][row.repeat - 1].is_some();
            let again =
                if known { format!("; as {}.json it counts again", row.name()) } else { String::new() };
            progress.notice(&format!("the earlier row is kept as {}{again}", kept.display()));
        }
        if first && !well {
            self.set_aside_later_processes(position);
        }
        Ok(())
    }

    /// Keeps rows of a cell's later processes under other names, where the first did not end well: the others are not
    /// measured then, and earlier rows do not speak for this one.
    fn set_aside_later_processes(&mut self, position: usize) {
        let Session { store, progress, .. } = *self.session;
        for row in self.rows[position][1..].iter_mut().filter_map(Option::take) {
            match store.set_aside(&row.name()) {
                Ok(kept) => progress.notice(&format!(
                    "the earlier row of process {} is kept as {}",
                    row.repeat,
                    kept.display()
                )),
                Err(e) => progress.notice(&format!("the earlier row of process {} stays: {e}", row.repeat)),
            }
        }
    }

    /// The error for a row that cannot be saved. Its text is printed, so that the user can save it by hand.
    pub(super) fn unsaved(&self, row: &Row, why: &io::Error) -> TryAgain {
        let text = serde_json::to_string(row).expect("a row is plain data");
        self.session.progress.notice(&text);
        let path = self.session.store.row_path(&row.name());
        let help = "free some space or raise the quota and run again: only missing cells are measured; the line of \
                    JSON above is the row, and saving it under that name keeps its measurement";
        TryAgain { message: format!("cannot save the row {}: {why}", path.display()), help: help.into() }
    }
}
