//! Numbers that follow from a cell's settings.

use super::*;
use crate::recipe::{Recipe, Source};

fn cell(model: &str, more: &str) -> Cell {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}\n[train]\nbatch_size = 4\nseq_len = 16\n\
         optimizer = {{ kind = \"adamw\" }}\n{more}"
    );
    let recipe = Recipe::parse(&Source { path: "r.toml".into(), text });
    recipe.unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e))).cells.remove(0)
}

const GPT2: &str = "kind = \"gpt2\"\nvocab_size = 300\nhidden_size = 32\nnum_hidden_layers = 7\n\
                    num_attention_heads = 4\nmax_position_embeddings = 64";
const QWEN2: &str = "kind = \"qwen2\"\nvocab_size = 300\nhidden_size = 32\nintermediate_size = 90\n\
                     num_hidden_layers = 7\nnum_attention_heads = 4\nnum_key_value_heads = 2\n\
                     max_position_embeddings = 64";

/// The number found by halving is the largest of all that fit, for every limit at which it changes.
#[test]
fn as_many_blocks_stay_as_fit() {
    for (model, device) in [(GPT2, "cpu"), (QWEN2, "cpu"), (GPT2, "cuda:0"), (QWEN2, "cuda:0")] {
        for strategy in ["naive", "checkpointed", "function", "overlap"] {
            for more in ["", "activations = \"host\"", "optimizer = \"host\"", "[checkpoint]\nblocks = 1"] {
                if strategy == "checkpointed" && more.contains("activations") {
                    continue;
                }
                let offload =
                    format!("[offload]\nstrategy = \"{strategy}\"\nresident_blocks = \"auto\"\n{more}\n");
                let auto = Cell { device: device.into(), ..cell(model, &offload) };
                let id = auto.device_id();
                let need = |count: usize| {
                    let mut cell = auto.clone();
                    cell.offload.resident_blocks = ResidentBlocks::Count(count);
                    cell.estimate().total()
                };
                let needs: Vec<u64> = (0..=7).map(need).collect();
                let limits = needs.iter().map(|bytes| id.limit_for(*bytes));
                for limit in limits.flat_map(|limit| [limit - 11, limit]) {
                    let room = id.room(limit);
                    let most = (0..=7).rev().find(|count| needs[*count] <= room).unwrap_or(0);
                    let found = auto.within(limit).offload.resident_blocks;
                    assert_eq!(found, ResidentBlocks::Count(most), "{strategy} {more} {room} of {needs:?}");
                }
            }
        }
    }
}

/// A network that also answers questions reads all of its positions.
#[test]
fn tables_are_as_long_as_the_positions() {
    let tables = |model: &str, more: &str| cell(model, more).account().standing.tables;
    // Cosines and sines of 4 pairs of a head.
    assert_eq!(tables(QWEN2, ""), 16 * 8 * 4);
    let writes = "[data]\ncorpus = \"generated\"\nvocab_size = 300\n[generate]\nprompts = [\"a\"]\nmax_new_tokens = 8\n";
    assert_eq!(tables(QWEN2, writes), 64 * 8 * 4);
    let packed = "[data]\ncorpus = \"generated\"\nvocab_size = 300\nsampler = \"packed\"\n[ops]\nattention = \"plain\"\n";
    assert_eq!(tables(QWEN2, packed), 16 * 8 * 4);
    assert_eq!(tables(GPT2, ""), 0);
    assert_eq!(tables(&format!("{GPT2}\npositions = \"sinusoidal\""), ""), 16 * 32 * 4);
}

/// Ranks sum the gradient of the embedding of tokens, and not that of positions.
#[test]
fn a_tied_embedding_is_sent_without_positions() {
    let pipeline = "[parallel.pipeline]\nstages = 2\nschedule = \"gpipe\"\nmicro_batches = 2\n";
    let tied = cell(GPT2, pipeline);
    let own = cell(&format!("{GPT2}\ntie_word_embeddings = false"), pipeline);
    assert_eq!(tied.sent().unwrap() - own.sent().unwrap(), 4 * 300 * 32);
}

/// A stage of GPipe is computed again, and so is each segment in it that is smaller than the stage.
#[test]
fn segments_within_a_recomputed_stage_are_computed_twice() {
    // Of the first stage, which has no head.
    let backward = |stages: usize, blocks: usize| {
        let more = format!(
            "[checkpoint]\nblocks = {blocks}\n[parallel.pipeline]\nstages = {stages}\nschedule = \"gpipe\"\n\
             micro_batches = 2\n"
        );
        let cell = cell(GPT2, &more);
        let times = cell.stage_times(cell.parallel.pipeline.as_ref().expect("it is written"));
        times.backward[0] / times.forward[0]
    };
    for (stages, blocks, forwards) in [(2, 4, 1.0), (2, 1, 2.0), (7, 1, 1.0)] {
        let more = backward(stages, blocks) - backward(stages, 0);
        assert!((more - forwards).abs() < 1e-9, "{stages} stages, segments of {blocks}: {more}");
    }
}

/// Whatever the rounding: the least limit with room for so many bytes has room for them.
#[test]
fn the_least_limit_has_room() {
    for id in [DeviceId::Cpu, DeviceId::Cuda(0)] {
        for bytes in [0, 1, 99, 100_001, 8 << 20, (8 << 20) + 1, 1_234_567_891, 79 << 30] {
            assert!(id.room(id.limit_for(bytes)) >= bytes, "{bytes} on {id}");
        }
    }
}
