//! What the ranks of a pipeline have and do, from a cell's settings alone: operators, memory, times.

use crate::estimate::{Account, Workload};
use crate::measure::{Estimate, Phase};
use crate::ops::cost::Operators;
use crate::ops::cost::{Cost, Flops, Works};
use crate::ops::embedding;
use crate::parallel::schedule::Action;
use crate::parallel::schedule::order::{Order, Waiting};
use crate::parallel::schedule::pipeline::Schedule;
use crate::parallel::schedule::simulate::Times;
use crate::parallel::{Division, Pipeline};
use crate::recipe::Cell;

impl Cell {
    /// The cell of one process whose micro-batches are those of the pipeline: its steps see the same rows.
    #[must_use]
    pub fn of_micro_batches(&self) -> Self {
        // Of a recipe's cell with a pipeline they are 1.
        let unchanged = self.train.accumulation_steps > 1;
        let Some(pipeline) = self.parallel.pipeline.as_ref().filter(|_| !unchanged) else {
            return self.clone();
        };
        let mut cell = self.clone();
        cell.train.batch_size = self.train.batch_size.div_ceil(pipeline.micro_batches);
        cell.train.accumulation_steps = pipeline.micro_batches;
        cell
    }

    /// Whether a stage keeps only its input from forward to backward, and computes itself again. GPipe does so: its other
    /// activations would be there once for every micro-batch.
    fn recomputes_stages(&self) -> bool {
        let gpipe = |pipeline: &Pipeline| pipeline.schedule == Schedule::Gpipe;
        self.checkpoint.blocks > 0 && self.parallel.pipeline.as_ref().is_some_and(gpipe)
    }

    /// How a pipeline divides the network; `None` without one.
    pub fn division(&self) -> Option<Division> {
        let pipeline = self.parallel.pipeline.as_ref()?;
        Some(Division {
            order: pipeline.order(),
            layers: self.operators().layers(),
            recomputes: self.recomputes_stages(),
            stashes: pipeline.schedule.updates_at_once(),
            region: self.precision.region(),
        })
    }

    /// Most bytes that one stage gives another for a micro-batch: the residual stream is in the weights' type.
    pub fn message_bytes(&self) -> u64 {
        let tokens = self.of_micro_batches().train.tokens();
        (tokens * self.model.hidden_size()) as u64 * self.precision.stored_bytes()
    }

    /// Most bytes that a rank of a pipeline sends in a step: messages, and its part of the sum of a tied embedding's
    /// gradients.
    pub(super) fn sent_of_stages(&self, pipeline: &Pipeline) -> u64 {
        let order = pipeline.order();
        let messages = |rank: usize| {
            let actions = order.of_rank(rank);
            actions.iter().filter(|action| matches!(action, Action::Send(_))).count() as u64
        };
        let (tied, embedding) = (self.is_tied(), self.embedding().trained.elements);
        let of_rank = |rank: usize| {
            let sums = tied && (rank == 0 || rank + 1 == pipeline.stages);
            messages(rank) * self.message_bytes() + if sums { 4 * embedding } else { 0 }
        };
        (0..pipeline.stages).map(of_rank).max().unwrap_or(0)
    }

    /// Whether the head is the embedding of tokens.
    fn is_tied(&self) -> bool {
        self.model.decoder().is_some_and(|shape| shape.tied)
    }

    /// What a tied embedding of tokens costs, without positions.
    fn embedding(&self) -> Cost {
        let [vocab, hidden] =
            self.model.decoder().map_or([0; 2], |shape| [shape.vocab_size as u64, shape.hidden_size as u64]);
        embedding::cost(&self.workload().setting(), [vocab, hidden], true)
    }

    /// The memory of the rank of a pipeline that needs the most.
    pub(super) fn account_of_stages(&self, pipeline: &Pipeline) -> Account {
        let (order, cell) = (pipeline.order(), self.of_micro_batches());
        let total = |account: &Account| Estimate::total(&account.estimate());
        // Behind the first backward of a step gradients wait for those of the next. Until then there may be more graphs.
        let of_rank = |rank: usize| {
            let [first, behind] = order.waiting(rank);
            let alone = pipeline.micro_batches * pipeline.chunks() == 1;
            let first = cell.account_of_rank(&order, rank, first, false);
            let behind = (!alone).then(|| cell.account_of_rank(&order, rank, behind, true));
            std::iter::once(first).chain(behind).max_by_key(total).expect("there is one")
        };
        (0..pipeline.stages).map(of_rank).max_by_key(total).expect("there are ranks")
    }

    /// Of a cell of micro-batches. `earlier`: whether gradients of earlier ones wait.
    fn account_of_rank(&self, order: &Order, rank: usize, waiting: Waiting, earlier: bool) -> Account {
        let of_live = |live: usize| {
            let mut workload = Workload { accumulates: earlier, ..self.workload() };
            // Each forward of a stage has an input of its own.
            (workload.live_graphs, workload.waiting_inputs) =
                if self.recomputes_stages() { (1, waiting.graphs) } else { (live, 0) };
            let mut account = self.operators_of_rank(order, rank).account(&workload);
            if account.phase != Some(Phase::Optimizer) {
                account.highest.workspace += self.waiting_messages(order, rank, live) * self.message_bytes();
            }
            account.parameters *= waiting.versions.max(1) as u64;
            account
        };
        let (live, chunks) = (waiting.graphs, order.shape.chunks);
        let mut account = of_live(live.div_ceil(chunks));
        // Some of its stages have a graph more than the others.
        if live > chunks && !live.is_multiple_of(chunks) {
            let (fewer, part) = (of_live(live / chunks), [live % chunks, chunks].map(|n| n as u64));
            account.highest = fewer.highest.towards(account.highest, part);
            account.kept = fewer.kept.towards(account.kept, part);
        }
        account
    }

    /// Messages in a rank's memory during a computation: the gradients that its stages have received, of this computation and
    /// the next, and results that have not left; of the graphs also the outputs, which only the next stage needs, or the
    /// inputs of the last stage.
    fn waiting_messages(&self, order: &Order, rank: usize, live: usize) -> u64 {
        let outputs = if self.recomputes_stages() { 0 } else { live };
        let of_stage = |stage: usize| match (stage == 0, stage + 1 == order.shape.stages()) {
            (true, true) => 0,
            (_, false) => outputs + 2,
            (false, true) => outputs.max(2),
        };
        let stages = (0..order.shape.stages()).filter(|stage| order.shape.rank_of(*stage) == rank);
        stages.map(of_stage).max().unwrap_or(0) as u64
    }

    /// What the operators of a pipeline's first rank must do at the least in a step.
    pub(super) fn works_of_stages(&self, pipeline: &Pipeline) -> Works {
        let cell = self.of_micro_batches();
        cell.operators_of_rank(&pipeline.order(), 0).works(&cell.workload())
    }

    /// The operators of all stages of a rank.
    fn operators_of_rank(&self, order: &Order, rank: usize) -> Operators {
        let stages = (0..order.shape.stages()).filter(|stage| order.shape.rank_of(*stage) == rank);
        let parts: Vec<Operators> = stages.map(|stage| self.operators_of_stage(order, stage)).collect();
        Operators {
            first: parts.iter().flat_map(|part| part.first.clone()).collect(),
            last: parts.iter().flat_map(|part| part.last.clone()).collect(),
            blocks: parts.iter().flat_map(|part| part.blocks.clone()).collect(),
            ..self.operators()
        }
    }

    fn operators_of_stage(&self, order: &Order, stage: usize) -> Operators {
        let all = self.operators();
        let (first, last) = (stage == 0, stage + 1 == order.shape.stages());
        // The last stage has a tied embedding once more.
        let copy = (last && self.is_tied()).then(|| {
            let Cost { parameters, trained, largest, weights, gradients, casts, .. } = self.embedding();
            Cost { parameters, trained, largest, weights, gradients, casts, ..Cost::default() }
        });
        let of_last = if last { all.last.clone() } else { Vec::new() };
        Operators {
            first: if first { all.first.clone() } else { Vec::new() },
            blocks: all.blocks[order.shape.blocks(stage, all.layers())].to_vec(),
            last: of_last.into_iter().chain(copy).collect(),
            ..all
        }
    }

    /// The time of each stage as its share of the operations, the mean stage's forward taking 1.
    pub fn stage_times(&self, pipeline: &Pipeline) -> Times {
        let (order, cell) = (pipeline.order(), self.of_micro_batches());
        let workload = cell.workload();
        let stages = 0..order.shape.stages();
        let flops: Vec<_> =
            stages.map(|stage| cell.operators_of_stage(&order, stage).flops(&workload)).collect();
        let mean = flops.iter().map(|flops| flops.forward).sum::<f64>() / flops.len() as f64;
        let layers = self.operators().layers();
        let again = |stage: usize, of: &Flops| match self.recomputes_stages() {
            false => of.recompute,
            // A stage that is computed again computes smaller segments of it once more.
            true if self.checkpoint.blocks < order.shape.blocks(stage, layers).len() => {
                of.forward + of.recompute
            }
            true => of.recompute.max(of.forward),
        };
        let backward = |(stage, of): (usize, &Flops)| (of.backward + again(stage, of)) / mean;
        Times {
            forward: flops.iter().map(|flops| flops.forward / mean).collect(),
            backward: flops.iter().enumerate().map(backward).collect(),
            update: vec![0.0; pipeline.stages],
            message: 0.0,
        }
    }
}
