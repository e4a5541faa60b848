//! [`StepWork`]: what a step costs, where the rates of its device are not known.

use super::{Rates, StepTime};
use crate::device::Ceilings;
use crate::estimate::Load;

/// The work of a step that orders ways of training on any device. What comes first is the slowest on most of them: copies over the
/// bus, then operations, then kernels, then passes over the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepWork([i64; 5]);

impl StepWork {
    pub fn new(load: &Load) -> Self {
        let infinite = Some(f64::INFINITY);
        let nothing = Ceilings {
            matmul_fp32: infinite,
            matmul_tf32: infinite,
            matmul_bf16: infinite,
            matmul_fp16: infinite,
            copy: infinite,
            host_to_device: infinite,
            device_to_host: infinite,
            both_ways: infinite,
            launch: None,
        };
        // The time is then that of one kind of work: bytes, operations or kernels.
        let one = Some(1.0);
        let bus = Ceilings { host_to_device: one, device_to_host: one, both_ways: one, ..nothing };
        // A product of 4-byte numbers takes at least twice as long as one of 2-byte numbers.
        let wide = Some(0.5);
        let products =
            Ceilings { matmul_fp32: wide, matmul_tf32: wide, matmul_bf16: one, matmul_fp16: one, ..nothing };
        let memory = Ceilings { copy: one, ..nothing };
        let time = |ceilings: Ceilings, launch: f64| {
            let rates = Rates { ceilings, host_update: f64::INFINITY, host_threads: f64::INFINITY, launch };
            digits(StepTime::new(load, &rates).total())
        };
        // Where every block has room to stay, moving none is simpler than a strategy for it.
        let moves = i64::from(load.cell.offload.moves());
        Self([time(bus, 0.0), moves, time(products, 0.0), time(nothing, 1.0), time(memory, 0.0)])
    }
}

/// A number to a thousandth of itself, so that sums of the same work are equal. Less than one byte, operation or kernel is nothing.
fn digits(number: f64) -> i64 {
    (number.max(1.0).ln() * 1e3).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Costs;
    use crate::recipe::{Recipe, Source};

    fn work(more: &str) -> StepWork {
        let text = format!(
            "title = \"t\"\ndevice = \"cuda:0\"\n[model]\nkind = \"qwen2\"\npreset = \"qwen2.5-0.5b\"\n[train]\nseq_len = 512\n\
             optimizer = {{ kind = \"adamw\", lr = 1e-3 }}\nbatch_size = {more}"
        );
        let source = Source { path: "r.toml".into(), text };
        let target = "cuda, 80 GiB, sm_90".parse().expect("a device");
        let cell = &Recipe::parse_for(&source, &target).expect("a recipe").cells[0];
        StepWork::new(&Costs::new(cell).load(cell))
    }

    /// What is left out, computed once or not copied is less work on every device.
    #[test]
    fn less_work_comes_first() {
        let plain = work("8\n");
        let order = [
            work("8\n[precision]\ncompute = \"bf16\"\nautocast = true\n"),
            plain,
            work("4\naccumulation_steps = 2\n"),
            work("8\n[checkpoint]\nblocks = 1\n"),
            work("8\n[offload]\nstrategy = \"overlap\"\n"),
            work("8\n[offload]\nstrategy = \"naive\"\n"),
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert!(order.windows(2).all(|pair| pair[0] != pair[1]), "{order:?}");
        assert!(work("8\n[offload]\nstrategy = \"overlap\"\nresident_blocks = 12\n") < order[4]);
        assert!(work("8\n[offload]\noptimizer = \"host\"\n") > plain);
    }
}
