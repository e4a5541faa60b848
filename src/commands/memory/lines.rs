//! The lines of a memory account: what holds memory, the formula of its bytes, and the bytes.

use strum::{IntoStaticStr, VariantArray};

use crate::common::text::{grouped, significant, value};
use crate::estimate::Account;
use crate::recipe::Cell;

/// What holds memory. The first six are on the device; all but the context make up the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Class {
    Weights,
    Gradients,
    #[strum(serialize = "optimizer state")]
    Optimizer,
    Activations,
    Workspace,
    Context,
    #[strum(serialize = "page-locked")]
    PageLocked,
    Host,
    Disk,
}

impl Class {
    pub fn is_on_device(self) -> bool {
        !matches!(self, Self::PageLocked | Self::Host | Self::Disk)
    }
}

pub struct Line {
    pub class: Class,
    pub what: String,
    pub formula: String,
    pub bytes: u64,
}

/// The lines of an account that have bytes.
pub fn lines(cell: &Cell, account: &Account) -> Vec<Line> {
    let optimizer = cell.settings().get("train.optimizer.kind").map_or(String::new(), value);
    let state = format!("state of {optimizer}");
    let context = cell.device_id().context_bytes();
    let all = [
        weights(cell, account),
        vec![line(Class::Optimizer, &state, of_trained(cell, account.state), account.state)],
        activations(cell, account),
        workspace(cell, account),
        vec![line(
            Class::Context,
            "the driver's context and kernels",
            "as measured on an H200".into(),
            context,
        )],
        on_host(cell, account, &state),
    ];
    all.into_iter().flatten().filter(|line| line.bytes > 0).collect()
}

fn line(class: Class, what: &str, formula: String, bytes: u64) -> Line {
    Line { class, what: what.into(), formula, bytes }
}

/// `1,000 x 4 B`
fn numbers(bytes: u64, each: u64) -> String {
    match bytes.is_multiple_of(each) {
        true => format!("{} x {each} B", grouped(bytes / each)),
        false => "in several types".into(),
    }
}

/// Bytes by the number of trained parameters.
fn of_trained(cell: &Cell, bytes: u64) -> String {
    let trained = cell.operators().trained();
    format!("{} x {} B", grouped(trained), significant(bytes as f64 / trained.max(1) as f64))
}

fn weights(cell: &Cell, account: &Account) -> Vec<Line> {
    let (stored, compute) = (cell.precision.stored_bytes(), cell.precision.compute.into_str());
    let parameters = match (cell.precision.autocast, stored) {
        (true, _) => "parameters, the master copy in fp32".to_string(),
        (false, _) if cell.train.optimizer.keeps_remainders() => {
            format!("parameters in {compute}, the upper half of their master copy")
        }
        (false, 4) => "parameters in fp32".into(),
        (false, _) => format!("parameters in {compute}, no master copy on the device"),
    };
    let casts = format!("their copies in {compute}, for all micro-batches");
    let of_casts = numbers(account.casts, cell.precision.compute.bytes());
    let gradients = account.highest.gradients;
    vec![
        line(Class::Weights, &parameters, numbers(account.parameters, stored), account.parameters),
        line(Class::Weights, &casts, of_casts, account.casts),
        line(Class::Gradients, "gradients at the step's peak", numbers(gradients, stored), gradients),
    ]
}

fn activations(cell: &Cell, account: &Account) -> Vec<Line> {
    let unit = Unit::of(cell);
    let kept = account.highest.by.iter().map(|(keeper, bytes)| {
        let name = keeper.map_or("inputs of what is computed again", |name| name.into_str());
        (name, bytes)
    });
    let other = account.highest.kept - account.highest.by.total();
    let all = kept.chain([("other", other)]);
    all.map(|(name, bytes)| line(Class::Activations, name, unit.formula(bytes), bytes)).collect()
}

fn workspace(cell: &Cell, account: &Account) -> Vec<Line> {
    let (standing, stored, unit) = (account.standing, cell.precision.stored_bytes(), Unit::of(cell));
    let steps = cell.train.accumulation_steps + cell.eval.map_or(0, |eval| eval.batches);
    let batches = format!("{steps} x {} B", grouped(standing.batches / steps as u64));
    let slots = standing.slots;
    let phase = account.phase.map_or("a step", |phase| phase.into_str());
    let temporaries = format!("of the operator that runs, in {phase}");
    let all = [
        ("batches", batches, standing.batches),
        ("tables", "sines and cosines of positions".into(), standing.tables),
        ("slots of blocks' weights", numbers(slots.weights, stored), slots.weights),
        ("slots of blocks' gradients", numbers(slots.gradients, stored), slots.gradients),
        ("slots of blocks' inputs", unit.formula(slots.inputs), slots.inputs),
        ("temporaries", temporaries, account.temporaries()),
    ];
    all.map(|(what, formula, bytes)| line(Class::Workspace, what, formula, bytes)).into()
}

fn on_host(cell: &Cell, account: &Account, state: &str) -> Vec<Line> {
    let (host, stored) = (account.host, cell.precision.stored_bytes());
    let inputs = Unit::of(cell).formula(host.inputs);
    let locked = Class::PageLocked;
    vec![
        line(locked, "buffers of blocks", numbers(host.blocks, stored), host.blocks),
        line(locked, "inputs of blocks", inputs, host.inputs),
        line(locked, "buffers of other parameters", numbers(host.crossing, stored), host.crossing),
        line(Class::Host, "master copy in fp32", numbers(host.masters, 4), host.masters),
        line(Class::Host, state, of_trained(cell, host.state), host.state),
        line(Class::Disk, &format!("master copy and {state}"), of_trained(cell, host.disk), host.disk),
    ]
}

/// h · t · L numbers in the compute type, by which activations are counted: columns of the residual stream, tokens of a
/// micro-batch, layers.
pub struct Unit {
    pub hidden: u64,
    pub tokens: u64,
    pub layers: u64,
    pub element: u64,
}

impl Unit {
    pub fn of(cell: &Cell) -> Self {
        Self {
            hidden: cell.model.hidden_size() as u64,
            tokens: cell.train.tokens() as u64,
            layers: cell.operators().layers() as u64,
            element: cell.precision.compute.bytes(),
        }
    }

    pub fn bytes(&self) -> f64 {
        (self.hidden * self.tokens * self.layers * self.element) as f64
    }

    pub fn formula(&self, bytes: u64) -> String {
        format!("{} h t L {} B", significant(bytes as f64 / self.bytes()), self.element)
    }

    pub fn legend(&self) -> String {
        format!(
            "h = {} columns of the residual stream, t = {} tokens of a micro-batch, L = {} layers",
            self.hidden, self.tokens, self.layers
        )
    }
}
