//! `train.graph`: which steps can be recorded. A recorded step cannot have what changes from step to step.

use super::{Checked, drops};
use crate::common::DeviceId;
use crate::keys::Rule;
use crate::parallel::{DataReduce, Engine};
use crate::recipe::{Cell, WARMUP_OF_A_GRAPH};
use crate::residence::Memory;

/// Refuses `train.graph = true` where the step cannot be recorded.
pub(super) fn check(cell: &Cell) -> Checked {
    match obstacle(cell).filter(|_| cell.train.graph) {
        None => Ok(()),
        Some((key, reason)) => Err(Rule::new(
            &["train.graph", key],
            format!("train.graph = true cannot go with this {key}: {reason}"),
            format!("remove train.graph, or change {key}"),
        )),
    }
}

impl Cell {
    /// Decides whether the step is recorded, where the recipe leaves that to the runner. The cell has its device.
    pub fn decide_graph(&mut self) {
        if std::mem::take(&mut self.train.graph_is_open) {
            self.train.graph = self.is_recorded_by_default();
        }
    }

    /// Whether `train.graph = "auto"` records its step.
    pub fn is_recorded_by_default(&self) -> bool {
        self.why_launched().is_none()
    }

    /// Why `train.graph = "auto"` leaves its step to launches; `None` where it is recorded.
    fn why_launched(&self) -> Option<&'static str> {
        let on_cpu = || (self.device_id() == DeviceId::Cpu).then_some("the CPU has no CUDA graphs");
        on_cpu().or_else(|| Some(obstacle(self)?.1)).or_else(|| drawback(self))
    }

    /// How forward and backward of a step without a graph run, and why; `None` with `train.graph`.
    pub fn launched_path(&self) -> Option<String> {
        let chosen = "train.graph is false";
        (!self.train.graph).then(|| format!("none: {}", self.why_launched().unwrap_or(chosen)))
    }
}

/// What a step cannot be recorded with: the key, and the reason.
fn obstacle(cell: &Cell) -> Option<(&'static str, &'static str)> {
    let obstacles = [of_work, of_offload, of_ranks, of_batches];
    obstacles.into_iter().find_map(|obstacle| obstacle(cell))
}

fn of_work(cell: &Cell) -> Option<(&'static str, &'static str)> {
    let train = &cell.train;
    if cell.model.decoder().is_none() && train.accumulation_steps > 1 {
        let why = "the problems of a SwiGLU stack stay where they were drawn, and a graph reads one place";
        return Some(("train.accumulation_steps", why));
    }
    if !train.mode.trains() {
        return Some(("train.mode", "a forward alone is not recorded"));
    }
    if cell.model.language().is_some_and(|model| model.architecture().turns_by_length()) {
        return Some(("model.rope_scaling", "its rotary positions follow from the length of each batch"));
    }
    let few = cell.measure.warmup < WARMUP_OF_A_GRAPH;
    few.then_some(("measure.warmup", "the first warm-up step computes, and the second is recorded"))
}

fn of_offload(cell: &Cell) -> Option<(&'static str, &'static str)> {
    let offload = &cell.offload;
    if offload.strategy.movement().is_some_and(|movement| movement.host_waits()) {
        return Some(("offload.strategy", "the host waits for each block"));
    }
    if offload.moves() && cell.train.accumulation_steps > 1 {
        let why = "the first micro-batch writes the gradients of blocks that move, and others add to them";
        return Some(("train.accumulation_steps", why));
    }
    if offload.activations == Memory::Host {
        return Some(("offload.activations", "copies of inputs are not recorded"));
    }
    let on_host = offload.optimizer != Memory::Device;
    on_host.then_some(("offload.optimizer", "copies of gradients are not recorded"))
}

fn of_ranks(cell: &Cell) -> Option<(&'static str, &'static str)> {
    let parallel = &cell.parallel;
    if parallel.is_alone() {
        return None;
    }
    if parallel.ranks() != parallel.data || !parallel.shard.is_none() {
        return Some(("parallel", "messages between ranks are not recorded"));
    }
    if parallel.data_reduce != DataReduce::AllReduce {
        return Some(("parallel.data_reduce", "the weights that a rank receives have no fixed place"));
    }
    (parallel.engine == Engine::Sockets).then_some(("parallel.engine", "the host sums gradients"))
}

fn of_batches(cell: &Cell) -> Option<(&'static str, &'static str)> {
    if drops(cell) {
        return Some(("tuning.dropout", "a graph would drop the same elements in each step"));
    }
    if cell.tuning().virtual_count() > 0 {
        return Some(("tuning.method", "the rows of virtual tokens differ from batch to batch"));
    }
    let why = "batches of samples differ in their lengths, and each length has launches of its own";
    cell.data.sampler().sampler.keeps_samples().then_some(("data.sampler", why))
}

/// What makes a graph a choice of the user's: it takes memory that no estimate has, or its recording would be timed.
fn drawback(cell: &Cell) -> Option<&'static str> {
    let steps = cell.measure.warmup + cell.measure.steps.unwrap_or(usize::MAX / 2);
    if cell.eval.is_some_and(|eval| eval.every < steps) {
        return Some("an evaluation between two steps needs its memory beside the graph's");
    }
    cell.tuning.probe_steps().map(|_| "a graph of the second phase would be recorded in measured steps")
}

#[cfg(test)]
mod tests {
    use crate::device::Target;
    use crate::recipe::tests::{BASE, says};
    use crate::recipe::{Recipe, Source};

    /// How the first cell of a recipe runs on a GPU: whether as a graph, and if not, why.
    fn way(more: &str) -> (bool, Option<String>) {
        let text = format!(
            "title = \"t\"\ndevice = \"cuda:0\"\n[model]\nkind = \"gpt2\"\nvocab_size = 300\nhidden_size = 8\n\
             num_hidden_layers = 2\nnum_attention_heads = 2\nmax_position_embeddings = 8\n[train]\nbatch_size = 2\n\
             seq_len = 4\n{more}"
        );
        let target: Target = "cuda, 8 GiB".parse().expect("a device");
        let recipe = Recipe::parse_for(&Source { path: "r.toml".into(), text }, &target);
        let cell = recipe.unwrap_or_else(|e| panic!("{e}")).cells.remove(0);
        (cell.train.graph, cell.launched_path())
    }

    #[test]
    fn by_default_a_step_is_recorded_where_it_can_be() {
        for more in ["", "graph = \"auto\"\n", "graph = true\n", "[offload]\nstrategy = \"overlap\"\n"] {
            assert_eq!(way(more), (true, None), "{more}");
        }
        // Behind the last of 17 steps there is no other.
        assert_eq!(
            way("[eval]\nevery = 17\n[data]\ncorpus = \"generated\"\nvocab_size = 300\n"),
            (true, None)
        );
        for (more, why) in [
            ("graph = false\n", "train.graph is false"),
            ("[offload]\nstrategy = \"naive\"\n", "the host waits for each block"),
            ("[measure]\nwarmup = 1\n", "the first warm-up step computes, and the second is recorded"),
            ("mode = \"inference\"\n", "a forward alone is not recorded"),
            (
                "[eval]\nevery = 5\n[data]\ncorpus = \"generated\"\nvocab_size = 300\n",
                "an evaluation between two steps needs its memory beside the graph's",
            ),
        ] {
            assert_eq!(way(more), (false, Some(format!("none: {why}"))), "{more}");
        }
        let cell = &crate::run::testing::recipe().cells[0];
        assert_eq!(cell.launched_path().as_deref(), Some("none: the CPU has no CUDA graphs"));
        assert!(!cell.train.graph);
    }

    #[test]
    fn what_differs_from_step_to_step_cannot_be_recorded() {
        let model = "title = \"t\"\ndevice = \"cuda:0\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
                     num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 8\n[train]\nbatch_size = 2\n\
                     seq_len = 4\ngraph = true\n";
        for (more, key) in [
            ("mode = \"inference\"\n", "train.mode"),
            ("[offload]\nstrategy = \"naive\"\n", "offload.strategy"),
            ("accumulation_steps = 2\n[offload]\nstrategy = \"overlap\"\n", "train.accumulation_steps"),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n",
                "offload.optimizer",
            ),
            ("optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ntensor = 2\n", "parallel"),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ndata = 2\nshard = \"optimizer\"\n",
                "parallel",
            ),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ndata = 2\ndata_reduce = \"rank0\"\n",
                "parallel.data_reduce",
            ),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ndata = 2\nengine = \"sockets\"\n",
                "parallel.engine",
            ),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[tuning]\nmethod = \"lora\"\nrank = 1\ndropout = 0.1\n",
                "tuning.dropout",
            ),
            ("[measure]\nwarmup = 1\n", "measure.warmup"),
        ] {
            let said = format!("cannot go with this {key}");
            says(&format!("{model}{more}"), &[&said, "remove train.graph"]);
        }
        says(
            &BASE.replace("seq_len = 4", "seq_len = 4\naccumulation_steps = 2\ngraph = true"),
            &["cannot go with this train.accumulation_steps", "SwiGLU"],
        );
    }
}
