//! What a run says of cells that finished earlier, and that it leaves as they are.

use super::{Run, Session};
use crate::common::text::counted;
use crate::recipe::Folders;
use crate::row::{Row, Status};

impl Run<'_> {
    /// Names what cells that finished earlier saved and what is gone since: nothing saves it again unasked.
    pub(super) fn notice_missing(&self) {
        let Session { recipe, progress, .. } = *self.session;
        let finished = |row: &Row| row.ended_well() && !self.options.wants(Some(row));
        for &position in self.chosen.iter().filter(|p| self.rows[**p][0].as_ref().is_some_and(finished)) {
            let Ok(folders) = Folders::of(&recipe.cells[position]) else { continue };
            for (key, _, folder) in folders.trained().filter(|(_, _, folder)| !folder.exists()) {
                progress.notice(&format!(
                    "cell {} finished earlier, but {}, its {key}, is not there: --cell {0} --force trains and saves it \
                     again",
                    position + 1,
                    folder.display()
                ));
            }
        }
    }

    /// Says how many cells that finished earlier have no trace, where this run records traces.
    pub(super) fn notice_untraced(&self) {
        let Session { store, progress, trace, .. } = *self.session;
        let first = |position: &usize| self.rows[*position][0].as_ref();
        let untraced = |row: &Row| {
            row.status == Status::Ok && !self.options.wants(Some(row)) && !store.trace_path(&row.key).exists()
        };
        let count = self.chosen.iter().filter_map(first).filter(|row| untraced(row)).count();
        if trace && count > 0 {
            progress.notice(&format!(
                "{} finished earlier without a trace: --trace --force measures all again, --cell K one of them",
                counted(count, "cell")
            ));
        }
    }
}
