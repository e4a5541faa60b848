//! References of an encoder and a decoder, wherever the blocks live and however they are computed.

use std::path::{Path, PathBuf};

use crate::verify::{Check, Options, passes, table, verify};

fn family(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families").join(name)
}

fn verified(folder: &Path, settings: &[&str]) -> Vec<Check> {
    let settings = ["device=cpu"].iter().chain(settings).map(|setting| setting.parse().unwrap());
    verify(folder, &Options { settings: settings.collect(), atol: None }).unwrap()
}

/// The gradients of blocks that read the encoder's result add up, also of those that move or are computed again.
#[test]
fn references_of_an_encoder_and_a_decoder_pass() {
    for name in ["t5", "t5_gated"] {
        let all = verified(&family(name), &["checkpoint.level=0"]).len();
        for settings in [
            &["offload.strategy=naive"][..],
            &["offload.strategy=checkpointed", "offload.optimizer=host"],
            &["offload.strategy=function", "ops.attention=plain"],
            &["offload={strategy=\"overlap\", optimizer=\"host\", activations=\"host\"}"],
            &["offload.strategy=overlap", "offload.resident_blocks=2", "train.accumulation_steps=2"],
            &["checkpoint.blocks=1"],
            &["checkpoint.blocks=4", "train.accumulation_steps=3"],
            &["ops.attention=plain", "ops.loss=plain", "ops.norm=plain"],
        ] {
            let checks = verified(&family(name), &[&["checkpoint.level=0"], settings].concat());
            assert!(passes(&checks), "{name} {settings:?}\n{}", table(&checks));
            assert_eq!(checks.iter().filter(|check| check.is_compared()).count(), all, "{name} {settings:?}");
        }
    }
    for level in ["0.5", "1"] {
        let checks = verified(&family("t5_gated"), &[&format!("checkpoint.level={level}")]);
        assert!(passes(&checks), "{level}\n{}", table(&checks));
    }
}

#[test]
fn references_of_an_encoder_and_a_decoder_pass_in_16_bits() {
    for name in ["t5", "t5_gated"] {
        for settings in
            [&["precision.compute=bf16"][..], &["precision.compute=bf16", "precision.autocast=true"]]
        {
            let checks = verified(&family(name), settings);
            assert!(passes(&checks), "{name} {settings:?}\n{}", table(&checks));
        }
    }
}
