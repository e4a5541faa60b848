//! A gradient scaler on an NVIDIA GPU whose blocks and optimizer are on the host.

use crate::cuda_training::{GPT2, apart, trained};
use crate::place::changed;

/// Every other step overflows, and is skipped where blocks and their optimizer are on the host too.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn steps_that_overflow_are_skipped_wherever_blocks_are_on_a_gpu() {
    let recipe = changed(
        GPT2.split("[grid]").next().expect("a beginning"),
        &[
            ("clip_norm = 0.1\n", ""),
            (
                "compute = \"bf16\"",
                "compute = \"fp16\"\nautocast = true\nscaler = { kind = \"dynamic\", init_scale = 1024, \
                 growth_interval = 1, growth_factor = 1073741824.0, backoff_factor = 9.313225746154785e-10 }",
            ),
        ],
    );
    let ways = "[[grid]]\n\"train.graph\" = false\n\"offload.strategy\" = [\"none\", \"naive\", \"checkpointed\", \"function\", \"overlap\"]\n\
                \"offload.optimizer\" = [\"device\", \"host\"]\n\
                [[grid]]\n\"offload.strategy\" = \"overlap\"\n\"offload.resident_blocks\" = 2\n\
                \"offload.optimizer\" = [\"device\", \"host\"]\n\
                [[grid]]\n\"offload.strategy\" = \"overlap\"\n\"train.graph\" = true\n";
    let rows = trained(&format!("{recipe}{ways}"), 13);
    assert_eq!(rows[0]["measurement"]["scaler"]["skipped"], 6);
    for row in &rows {
        assert_eq!(row["measurement"]["scaler"], rows[0]["measurement"]["scaler"], "{row}");
        let apart = apart(row, &rows[0]);
        assert!(apart < 1e-2, "{apart:.1e}: {row}");
    }
}
