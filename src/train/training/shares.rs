//! Whole parameters for a file: the first of the ranks that divide layers asks the others for their shares, one parameter at
//! a time, in the order of the file.

use burn::tensor::TensorData;

use super::Training;
use crate::parallel::whole;
use crate::params::table::Entry;
use crate::residence::Residence;
use crate::train::build::Build;
use crate::world::ProcessGroup;

/// The name of the parameter that the first rank asks for, on every rank; it is empty after the last. Between two names the
/// first rank writes its file, which may take long.
fn asked(ranks: &ProcessGroup, name: &str) -> String {
    let name = ranks.broadcast_when_ready("name of a parameter", ranks.first(), name.into()).wait();
    String::from_utf8(name).expect("a name")
}

/// A parameter, whole and as numbers.
pub(super) fn asked_for<N: Build>(
    name: &str,
    residence: &mut Residence<N>,
    ranks: &ProcessGroup,
) -> TensorData {
    of_all(&asked(ranks, name), residence, ranks)
}

fn of_all<N: Build>(name: &str, residence: &mut Residence<N>, ranks: &ProcessGroup) -> TensorData {
    let table = residence.table().clone();
    let entry: &Entry = table.entries.iter().find(|entry| entry.name == name).expect("a parameter's name");
    whole(entry, residence.dense(name), ranks)
}

impl<N: Build> Training<'_, N> {
    /// On a rank that writes nothing: gives its share of each parameter that the first rank asks for.
    pub fn give_shares(&mut self) {
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        loop {
            let name = asked(&self.groups.tensor, "");
            if name.is_empty() {
                return;
            }
            of_all(&name, residence, &self.groups.tensor);
        }
    }

    /// On the first rank: tells the others that the file is written.
    pub fn end_shares(&self) {
        asked(&self.groups.tensor, "");
    }
}
