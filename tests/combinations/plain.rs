//! [`Plain`]: the plain ways that combinations are compared with.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use runner::train::{Change, Damage, change};

use crate::combination::Combination;
use crate::compare::{self, Allowed, other_order};

/// The changes of the plain ways, which many combinations share.
pub struct Plain {
    pub device: &'static str,
    pub known: HashMap<Combination, Rc<Change>>,
    other_orders: HashMap<Combination, Allowed>,
}

impl Plain {
    pub fn on(device: &'static str) -> Self {
        Self { device, known: HashMap::new(), other_orders: HashMap::new() }
    }

    pub fn of(&mut self, combination: &Combination) -> Result<Rc<Change>, String> {
        if !self.known.contains_key(combination) {
            let change = trained(combination, self.device, None)?;
            self.known.insert(combination.clone(), Rc::new(change));
        }
        Ok(self.known[combination].clone())
    }

    /// What another order of additions may do to the steps of a combination.
    pub fn other_order(&mut self, combination: &Combination, change: &Change) -> Result<Allowed, String> {
        let allowed = compare::allowed(combination);
        if let Some(known) = self.other_orders.get(combination) {
            return Ok(*known);
        }
        let flipped = trained(combination, self.device, Some(Damage::FlippedBit))?;
        let order = other_order(&flipped, change, allowed)?;
        self.other_orders.insert(combination.clone(), order);
        Ok(order)
    }
}

pub fn trained(combination: &Combination, device: &str, damage: Option<Damage>) -> Result<Change, String> {
    let cell =
        combination.cell(device).map_err(|e| format!("refused: {e}\n{}", combination.recipe(device)))?;
    catch_unwind(AssertUnwindSafe(|| change(&cell, damage))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or("a panic".into())
    })
}
