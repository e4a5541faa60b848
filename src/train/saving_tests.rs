//! A cell that is interrupted and resumed ends as one that was not.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::measure::{Measurement, Stop};
use crate::params::weights::Weights;
use crate::recipe::{Recipe, Source};
use crate::train::protocol::{Advance, StepRecord};
use crate::train::{Watch, train};
use crate::world::World;

const GPT2: &str = "kind = \"gpt2\"\nvocab_size = 300\nhidden_size = 8\nnum_hidden_layers = 3\n\
                    num_attention_heads = 2\nmax_position_embeddings = 32\n";
const QWEN2: &str = "kind = \"qwen2\"\nvocab_size = 300\nhidden_size = 8\nintermediate_size = 12\n\
                     num_hidden_layers = 3\nnum_attention_heads = 2\nnum_key_value_heads = 1\n";
const ADAMW: &str = "optimizer = { kind = \"adamw\", lr = 0.01 }\n";
const TEXT: &str = "[data]\ncorpus = \"generated\"\nsize = \"64 KiB\"\nvocab_size = 300\n";

/// A cell with seven steps, which writes to `out`; the weights of a classifier of a task cannot be saved.
fn cell(out: &Path, model: &str, train: &str, more: &str) -> Cell {
    let out = out.display();
    let weights =
        if more.contains("[task]") { String::new() } else { format!("weights = \"{out}/model\"\n") };
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}[train]\nbatch_size = 2\nseq_len = 16\n{train}\n\
         [measure]\nwarmup = 2\nsteps = 5\n[save]\n{weights}state = \"{out}/state\"\nevery = 2\n\
         {more}"
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse(&source).expect("a recipe").cells.remove(0)
}

/// Runs the cell; with `kill` it ends there, when so many steps are done.
fn run(cell: &Cell, kill: Option<usize>) -> Option<Measurement> {
    let mut on_step = |advance| {
        if matches!(advance, Advance::Step { done, .. } if Some(done) == kill) {
            panic_any("killed");
        }
    };
    let stop = AtomicBool::new(false);
    let watch = Watch { trace: None, logged: false, on_tuned: |_| (), on_step: &mut on_step, stop: &stop };
    let ended = catch_unwind(AssertUnwindSafe(|| train(cell, &World::alone(), u64::MAX, watch)));
    ended.ok().map(|measurement| measurement.expect("it trains"))
}

fn bytes(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model").join(WEIGHTS)).expect("the weights were written")
}

/// Trains without an interruption and with two, and compares.
fn resumes(model: &str, train: &str, more: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let expected = run(&cell(&whole, model, train, more), None).expect("it ends");
    let cell = cell(&parts, model, train, more);
    let apart = if cell.data.sampler().sampler.keeps_samples() { 2 } else { 0 };
    for kill in [3, 5] {
        assert!(run(&cell, Some(kill + apart)).is_none());
    }
    let resumed = run(&cell, None).expect("it ends");
    assert_eq!(resumed.resumed, [2, 4], "{train}{more}");
    assert_eq!(expected.loss, resumed.loss, "{train}{more}");
    assert_eq!(expected.evaluations, resumed.evaluations);
    assert_eq!(expected.scaler, resumed.scaler);
    assert_eq!(expected.step.seconds.len(), resumed.step.seconds.len());
    let tokens = |measurement: &Measurement| measurement.loading.as_ref().map(|l| l.step_tokens.clone());
    assert_eq!(tokens(&expected), tokens(&resumed));
    let unsaved = more.contains("[task]");
    assert!(unsaved || bytes(&whole) == bytes(&parts), "other weights: {train}{more}");
    assert!(parts.join("state").exists(), "until its row is there");
    remove_states(&cell).expect("they can be removed");
    assert!(!parts.join("state").exists(), "a cell that has ended needs no state");
}

#[test]
fn adamw_resumes_on_the_device() {
    let schedule =
        "schedule = { kind = \"cosine\", warmup_steps = 2 }\nclip_norm = 0.5\naccumulation_steps = 2\n";
    resumes(GPT2, &format!("{ADAMW}{schedule}"), "[eval]\nevery = 2\nbatches = 1\n");
    resumes(QWEN2, ADAMW, "[precision]\ncompute = \"bf16\"\n");
    let remainders = "optimizer = { kind = \"adamw\", lr = 0.01, store_param_remainders = true }\n";
    resumes(QWEN2, remainders, "[precision]\ncompute = \"bf16\"\n");
    resumes(GPT2, &format!("{ADAMW}clip_norm = 0.5\nclip = \"previous_norm\"\n"), "");
}

#[test]
fn adamw_resumes_on_the_host_and_between_slots() {
    for optimizer in ["host", "device"] {
        let offload = format!("[offload]\nstrategy = \"overlap\"\noptimizer = \"{optimizer}\"\n");
        resumes(QWEN2, ADAMW, &format!("{offload}[precision]\ncompute = \"bf16\"\n"));
        resumes(QWEN2, ADAMW, &format!("{offload}resident_blocks = 1\n"));
    }
}

/// With tensors of more than 4096 elements: codes, random rounding, and rows and columns go on as they were.
#[test]
fn compact_state_resumes() {
    let model = GPT2.replace("hidden_size = 8", "hidden_size = 16");
    for kind in ["adamw8bit", "adamw_bf16", "adafactor"] {
        let train = format!("optimizer = {{ kind = \"{kind}\", lr = 0.01 }}\n");
        resumes(&model, &train, "");
        if kind != "adafactor" {
            for optimizer in ["host", "device"] {
                let offload = format!("[offload]\nstrategy = \"overlap\"\noptimizer = \"{optimizer}\"\n");
                resumes(&model, &train, &offload);
            }
        }
    }
}

#[test]
fn packed_weights_resume() {
    let qlora = "[tuning]\nmethod = \"qlora\"\nrank = 2\ntarget_modules = \"q_proj, down_proj\"\n";
    resumes(QWEN2, ADAMW, qlora);
    resumes(
        QWEN2,
        ADAMW,
        &format!("{qlora}[offload]\nstrategy = \"overlap\"\n[precision]\ncompute = \"bf16\"\n"),
    );
}

/// Also where the probe ends with the step whose state was saved.
#[test]
fn a_probe_before_full_tuning_resumes() {
    let model = QWEN2.replace("vocab_size = 300", "vocab_size = 257");
    let task = "[data]\ncorpus = \"task\"\nvocab_size = 257\nsampler = \"standard\"\n[task]\nkind = \"topics\"\n\
                sentences = 60\n[tuning]\nmethod = \"lp_ft\"\n";
    for steps in [1, 2, 3, 4] {
        resumes(&model, ADAMW, &format!("{task}probe_steps = {steps}\n"));
    }
}

#[test]
fn momentum_resumes_between_slots() {
    let sgd = "optimizer = { kind = \"sgd\", lr = 0.1, momentum = 0.9 }\naccumulation_steps = 3\n";
    resumes(GPT2, sgd, "[offload]\nstrategy = \"function\"\n");
}

/// The first step overflows, and the scale doubles after every three.
#[test]
fn a_scaler_resumes() {
    let scaler = "[precision]\ncompute = \"fp16\"\nscaler = { kind = \"dynamic\", init_scale = 262144, \
                  growth_interval = 3 }\n";
    let folder = tempfile::tempdir().unwrap();
    let measurement = run(&cell(folder.path(), GPT2, ADAMW, scaler), None).expect("it ends");
    assert!(measurement.scaler.expect("it has one").skipped > 0);
    resumes(GPT2, ADAMW, scaler);
    // With the skipped step before the state, and behind it.
    for offload in [
        "optimizer = \"host\"\n",
        "optimizer = \"host\"\nstrategy = \"overlap\"\n",
        "strategy = \"overlap\"\n",
    ] {
        for precision in [scaler, &scaler.replace("compute =", "autocast = true\ncompute =")] {
            resumes(QWEN2, ADAMW, &format!("{precision}[offload]\n{offload}"));
        }
    }
}

#[test]
fn samplers_resume_in_their_epoch() {
    for sampler in ["\"packed\"", "\"balanced\"\nk = 8\nnum_workers = 2", "\"blocks\""] {
        let data = format!("{TEXT}sampler = {sampler}\n[eval]\nevery = 3\nbatches = 1\n");
        resumes(GPT2, &format!("{ADAMW}accumulation_steps = 2\n"), &data);
    }
}

#[test]
fn a_state_of_another_cell_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(&cell(folder.path(), GPT2, ADAMW, ""), Some(3)).is_none());
    let other = cell(folder.path(), GPT2, &ADAMW.replace("0.01", "0.02"), "");
    let states = |cell: &Cell| States::of(cell, (folder.path().join("state"), 2));
    let reason = states(&other).last().err().expect("it is refused");
    assert!(reason.contains("other settings") && reason.contains("remove"), "{reason}");
    let same = cell(folder.path(), GPT2, ADAMW, "");
    let state = states(&same).last().expect("it can be read").expect("it is there");
    assert_eq!(state.progress.done, 2);
    let optimizer = fs::read(state.folder.join(OPTIMIZER)).unwrap();
    fs::write(state.folder.join(OPTIMIZER), [0; 7]).unwrap();
    assert!(run(&same, None).is_none(), "a damaged state is no start");
    fs::write(state.folder.join(OPTIMIZER), optimizer).unwrap();
    fs::write(state.folder.join(WEIGHTS), [0; 7]).unwrap();
    let reason = states(&same).last().err().expect("it is refused");
    assert!(reason.contains("model.safetensors is damaged; remove"), "{reason}");
}

/// Folders of others that are called as states are stay, and what killed runs left unfinished goes.
#[test]
fn only_own_states_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cell = cell(folder.path(), GPT2, ADAMW, "");
    let state = folder.path().join("state");
    for part in ["step-3", ".writing-killed.tmp"] {
        fs::create_dir_all(state.join(part)).unwrap();
        fs::write(state.join(part).join("file"), "precious").unwrap();
    }
    let states = States::of(&cell, (state.clone(), 2));
    let reason = states.last().err().expect("it is refused");
    assert!(reason.contains("step-3 is no state") && reason.contains("another folder"), "{reason}");
    fs::rename(state.join("step-3"), state.join("mine-3")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    run(&cell, None).expect("it ends");
    remove_states(&cell).expect("they can be removed");
    let left: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["mine-3"]);
}

/// What was saved is what the next training begins with.
#[test]
fn saved_weights_are_read_back() {
    for (model, offload) in [(GPT2, ""), (QWEN2, ""), (QWEN2, "[offload]\nstrategy = \"overlap\"\n")] {
        let folder = tempfile::tempdir().unwrap();
        run(&cell(folder.path(), model, ADAMW, &format!("{TEXT}{offload}")), None).expect("it ends");
        let saved = folder.path().join("model");
        let kind = model.lines().next().unwrap();
        let again = format!("{kind}\nweights = \"{}\"\n", saved.display());
        let out = folder.path().join("again");
        // Without an optimizer nothing changes.
        run(&cell(&out, &again, "", ""), None).expect("it ends");
        let read = |folder: &Path| Weights::open(folder).expect("they can be read");
        let (first, second) = (read(&saved), read(&out.join("model")));
        assert!(first.names().eq(second.names()) && first.names().count() > 20);
        for name in first.names() {
            let [a, b] = [&first, &second].map(|weights| weights.get(name).unwrap());
            assert!((a.shape(), a.data()) == (b.shape(), b.data()), "{name} has changed");
        }
        assert!(saved.join("tokenizer.json").exists());
    }
}

/// What is reported of each step has the losses of the row; neither a log nor an interruption changes them.
#[test]
fn a_cell_that_is_asked_to_stop_saves_its_state_and_goes_on_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let schedule = "schedule = { kind = \"cosine\", warmup_steps = 2 }\nclip_norm = 0.5\n";
    let cell = |name: &str| cell(&folder.path().join(name), GPT2, &format!("{ADAMW}{schedule}"), "");
    let mut records: Vec<StepRecord> = Vec::new();
    let mut run = |cell: &Cell, logged: bool, last: usize| {
        let stop = AtomicBool::new(false);
        let on_step = &mut |advance| {
            let Advance::Step { done, record, .. } = advance else { return };
            stop.store(done == last, Relaxed);
            records.extend(record.filter(|_| logged));
        };
        let watch = Watch { trace: None, logged, on_tuned: |_| (), on_step, stop: &stop };
        train(cell, &World::alone(), u64::MAX, watch)
    };
    let whole = run(&cell("whole"), false, usize::MAX).expect("it ends");
    let parts = cell("parts");
    assert_eq!(run(&parts, true, 3).err(), Some(Stop::Asked { step: 3 }));
    let resumed = run(&parts, true, usize::MAX).expect("it ends");
    assert_eq!((&resumed.loss, &resumed.resumed), (&whole.loss, &vec![3]));
    assert_eq!(records.iter().map(|record| record.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(records.iter().map(|record| record.loss).collect::<Vec<_>>(), whole.loss);
    assert_eq!([records[0].learning_rate, records[1].learning_rate], [Some(0.005), Some(0.01)]);
    assert_eq!(
        records.iter().map(|record| record.seconds.is_some()).collect::<Vec<_>>()[..3],
        [false, false, true]
    );
    assert!(
        records.iter().all(|record| record.tokens == 32 && record.gradient_norm > Some(0.5)),
        "{records:?}"
    );
}
