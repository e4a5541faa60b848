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
    let stored = cell.precision.stored_bytes();
    let mut lines = Vec::new();
    let mut add = |class, what: &str, formula: String, bytes: u64| {
        if bytes > 0 {
            lines.push(Line { class, what: what.into(), formula, bytes });
        }
    };
    let of = |bytes: u64, each: u64| match bytes.is_multiple_of(each) {
        true => format!("{} x {each} B", grouped(bytes / each)),
        false => "in several types".into(),
    };
    let compute = cell.precision.compute.into_str();
    let parameters = match (cell.precision.autocast, stored) {
        (true, _) => "parameters, the master copy in fp32".to_string(),
        (false, _) if cell.train.optimizer.keeps_remainders() => {
            format!("parameters in {compute}, the upper half of their master copy")
        }
        (false, 4) => "parameters in fp32".into(),
        (false, _) => format!("parameters in {compute}, no master copy on the device"),
    };
    add(Class::Weights, &parameters, of(account.parameters, stored), account.parameters);
    let casts = format!("their copies in {compute}, for all micro-batches");
    add(Class::Weights, &casts, of(account.casts, cell.precision.compute.bytes()), account.casts);

    let gradients = account.highest.gradients;
    add(Class::Gradients, "gradients at the highest moment", of(gradients, stored), gradients);

    let trained = cell.operators().trained();
    let of_trained = |bytes: u64| {
        format!("{} x {} B", grouped(trained), significant(bytes as f64 / trained.max(1) as f64))
    };
    let optimizer = cell.settings().get("train.optimizer.kind").map_or(String::new(), value);
    let state = format!("state of {optimizer}");
    add(Class::Optimizer, &state, of_trained(account.state), account.state);

    let unit = Unit::of(cell);
    for (keeper, bytes) in account.highest.by.iter() {
        let name = keeper.map_or("inputs of what is computed again", |name| name.into_str());
        add(Class::Activations, name, unit.formula(bytes), bytes);
    }
    let unnamed = account.highest.kept - account.highest.by.total();
    add(Class::Activations, "other", unit.formula(unnamed), unnamed);

    let standing = account.standing;
    let steps = cell.train.accumulation_steps + cell.eval.map_or(0, |eval| eval.batches);
    let batches = format!("{steps} x {} B", grouped(standing.batches / steps as u64));
    add(Class::Workspace, "batches", batches, standing.batches);
    add(Class::Workspace, "tables", "sines and cosines of positions".into(), standing.tables);
    let slots = standing.slots;
    for (what, bytes) in
        [("weights", slots.weights), ("gradients", slots.gradients), ("inputs", slots.inputs)]
    {
        let each = if what == "inputs" { unit.formula(bytes) } else { of(bytes, stored) };
        add(Class::Workspace, &format!("slots of blocks' {what}"), each, bytes);
    }
    let phase = account.phase.map_or("a step", |phase| phase.into_str());
    let temporaries = format!("of the operator that runs, in {phase}");
    add(Class::Workspace, "temporaries", temporaries, account.temporaries());

    let context = cell.device_id().context_bytes();
    add(Class::Context, "the driver's context and kernels", "as measured on an H200".into(), context);

    let host = account.host;
    add(Class::PageLocked, "buffers of blocks", of(host.blocks, stored), host.blocks);
    add(Class::PageLocked, "inputs of blocks", unit.formula(host.inputs), host.inputs);
    add(Class::PageLocked, "buffers of other parameters", of(host.crossing, stored), host.crossing);
    add(Class::Host, "master copy in fp32", of(host.masters, 4), host.masters);
    add(Class::Host, &state, of_trained(host.state), host.state);
    add(Class::Disk, &format!("master copy and {state}"), of_trained(host.disk), host.disk);
    lines
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
