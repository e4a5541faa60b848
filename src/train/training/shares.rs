//! Parameters for a file, whole: the first of the ranks that divide layers asks the others for their shares, a parameter
//! at a time, in the order in which the file is written.

use burn::tensor::TensorData;

use super::Training;
use crate::parallel::whole;
use crate::params::table::Entry;
use crate::residence::Residence;
use crate::train::build::Build;
use crate::world::Group;

/// Asks the ranks of a group for a parameter by its name; without one they are asked for no more.
fn asked(ranks: &Group, name: &str) -> String {
    let name = ranks.broadcast("name of a parameter", ranks.first(), name.into()).wait();
    String::from_utf8(name).expect("a name")
}

/// A parameter, whole and as numbers.
pub(super) fn asked_for<N: Build>(name: &str, residence: &mut Residence<N>, ranks: &Group) -> TensorData {
    of_all(&asked(ranks, name), residence, ranks)
}

fn of_all<N: Build>(name: &str, residence: &mut Residence<N>, ranks: &Group) -> TensorData {
    let table = residence.table().clone();
    let entry: &Entry = table.entries.iter().find(|entry| entry.name == name).expect("a parameter's name");
    whole(entry, residence.dense(name), ranks)
}

impl<N: Build> Training<'_, N> {
    /// On the ranks that write nothing: gives what they have of each parameter that the first one asks for.
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

    /// On the first: all is written.
    pub fn end_shares(&self) {
        asked(&self.groups.tensor, "");
    }
}
