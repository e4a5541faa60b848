//! Every rule over more than one section: what cannot go together, and what has no effect with something else.
//! Rules over one section stand with it.

mod buffer;
mod encoder;
mod generate;
mod graph;
mod inference;
mod offload;
mod operators;
mod optimizer;
mod parallel;
mod sizes;
mod task;
mod tuning;

use serde_json::Value;

use super::CPU;
use super::cell::Cell;
use crate::common::{Compute, DeviceId};
use crate::data::{Data, Found, Rows, Split, TokenizerSource};
use crate::device::{Feature, Target};
use crate::keys::Rule;
use crate::model::Model;
use crate::model::language::DecoderSizes;
use crate::params::hub;
use crate::params::save::check_free;
use crate::recipe::Folders;

type Checked = Result<(), Rule>;

/// Checks each section, and then all together. `written`: whether a dotted key stands in the recipe.
pub(super) fn check(cell: &Cell, written: impl Fn(&str) -> bool) -> Checked {
    cell.precision.check()?;
    cell.offload.check()?;
    let sampler = cell.data.sampler();
    sampler.check()?;
    let rules: [fn(&Cell) -> Checked; 16] = [
        sequences,
        encoder::check,
        // Before the rules that compute costs: no product of sizes may overflow.
        sizes::check,
        generate::check,
        graph::check,
        inference::check,
        operators::check,
        scaler,
        optimizer::check,
        histogram,
        offload::check,
        text,
        tuning::check,
        epochs,
        evaluation,
        buffer::check,
    ];
    rules.into_iter().try_for_each(|rule| rule(cell))?;
    cell.train.check()?;
    cell.measure.check()?;
    tuning::saving(cell)?;
    cell.log.as_ref().map_or(Ok(()), |log| log.folder(cell).map(drop))?;
    parallel::check(cell, &written)?;
    task::check(cell, &written)?;
    Rule::refuse_if(
        sampler.num_workers == 0 && written("data.prefetch_factor"),
        &["data.prefetch_factor"],
        "`prefetch_factor` has no effect with num_workers = 0: no batch is ready ahead of the loop",
        "remove it, or set num_workers to 1",
    )
}

/// What cannot run on `device`, which is the cell's own or what `"auto"` means here.
/// `written`: whether a dotted key stands in the recipe.
pub(super) fn on_device(
    cell: &Cell,
    device: DeviceId,
    target: &Target,
    written: impl Fn(&str) -> bool,
) -> Checked {
    parallel::on_device(cell, device, target)?;
    match device {
        // The default is for every device.
        DeviceId::Cpu if cell.ops.fused_attention && written("ops.fused_attention") => Err(needs_gpu(
            cell,
            &["ops.fused_attention"],
            "ops.fused_attention = true has no effect on the CPU: the fused kernels are CUDA's",
            "remove ops.fused_attention, or set device = \"cuda:0\"",
        )),
        DeviceId::Cpu if cell.precision.compute == Compute::Tf32 => Err(needs_gpu(
            cell,
            &["precision.compute"],
            "tf32 is a format of NVIDIA's tensor cores; the CPU has none",
            "use compute = \"fp32\" on the CPU, or device = \"cuda:0\"",
        )),
        DeviceId::Cpu if cell.train.graph => Err(needs_gpu(
            cell,
            &["train.graph"],
            "a step is recorded as a CUDA graph; the CPU has none",
            "remove train.graph, or set device = \"cuda:0\"",
        )),
        DeviceId::Cuda(_) if cell.measure.warmup == 0 => Err(Rule::new(
            &["measure.warmup"],
            "a cell on CUDA needs a warm-up step: kernels are compiled and memory is observed in it",
            "set measure.warmup to 1 or more",
        )),
        DeviceId::Cpu => Ok(()),
        DeviceId::Cuda(_) => on_gpu(cell, device, target, written),
    }
}

/// What a GPU of this compute capability lacks.
fn on_gpu(cell: &Cell, device: DeviceId, target: &Target, written: impl Fn(&str) -> bool) -> Checked {
    target.check(device, "device", Feature::Kernels, "set device = \"cpu\"")?;
    let narrow = "use compute = \"fp16\" with precision.autocast and precision.scaler, or \"fp32\"";
    if let Some(need) = Feature::of_products(cell.precision.compute) {
        target.check(device, "precision.compute", need, narrow)?;
    }
    // The default is for every device.
    match cell.ops.fused_attention && written("ops.fused_attention") {
        true => target.check(
            device,
            "ops.fused_attention",
            Feature::FusedAttention,
            "remove ops.fused_attention: attention is then by blocks of queries where there are no fused kernels",
        ),
        false => Ok(()),
    }
}

/// What the CPU lacks. Where the cell leaves its device open, another machine may have a GPU.
fn needs_gpu(cell: &Cell, keys: &[&'static str], message: &str, help: &str) -> Rule {
    Rule { elsewhere: cell.device != CPU, ..Rule::new(keys, message, help) }
}

/// Whether an adapter drops a part of its input.
fn drops(cell: &Cell) -> bool {
    cell.settings().get("tuning.dropout").and_then(Value::as_f64).is_some_and(|share| share > 0.0)
}

/// Refuses files that lack what the cell reads, and folders that it must not write to.
pub(super) fn files(cell: &Cell, found: &Found) -> Checked {
    if let (Data::Text { tokenizer: TokenizerSource::Path(path), .. }, Some(folder)) =
        (&cell.data, cell.model.weights_folder())
        && path == folder
        && let folder = hub::local(folder)
        && folder.exists()
        && !folder.join("tokenizer.json").exists()
    {
        return Err(Rule::new(
            &["data.tokenizer", "model.weights"],
            format!(
                "{} holds no tokenizer.json, and other tokens mean nothing to its weights",
                folder.display()
            ),
            "name the tokenizer.json that belongs to them in data.tokenizer",
        ));
    }
    if let Some((peft_type, folder)) = cell.tuning.peft_type().zip(cell.tuning.folder()) {
        peft_type.check(folder)?;
    }
    let folders = Folders::of(cell)?;
    for (key, saved, folder) in folders.trained() {
        check_free(folder, saved, folders.overwrite).map_err(|message| {
            let help = match check_free(folder, saved, true) {
                Ok(()) => "name another folder, move away what is there, or set save.overwrite to true",
                Err(_) => "name another folder, or move away what is there",
            };
            Rule::new(&[key], message, help)
        })?;
    }
    if let Some(task) = &cell.task {
        task.check_files(u64::from(cell.seed))?;
    }
    cell.data.check_files(cell.eval.is_some(), found)
}

/// `precision.scaler` with `train.optimizer`.
fn scaler(cell: &Cell) -> Checked {
    Rule::refuse_if(
        cell.precision.scaler.is_some() && cell.train.optimizer.rule().is_none(),
        &["precision.scaler"],
        "a gradient scaler has no effect without an optimizer: there is no step to skip",
        "remove precision.scaler, or set train.optimizer",
    )
}

/// `[measure]` with `[offload]`.
fn histogram(cell: &Cell) -> Checked {
    Rule::refuse_if(
        cell.measure.gradient_histogram && cell.offload.moves(),
        &["measure.gradient_histogram"],
        "a histogram counts gradients on the device; offloaded blocks send theirs to the host",
        "remove measure.gradient_histogram, or offload.strategy",
    )
}

/// What only language models have.
fn text(cell: &Cell) -> Checked {
    if cell.model.decoder().is_some() {
        return Ok(());
    }
    let refused = [
        ("data", !cell.data.is_random()),
        ("task", cell.task.is_some()),
        ("eval", cell.eval.is_some()),
        ("generate", cell.generate.is_some()),
        ("save", cell.save.is_some()),
        ("tuning", !cell.tuning.is_full()),
        ("precision.autocast", cell.precision.autocast),
    ];
    match refused.into_iter().find(|(_, written)| *written) {
        None => Ok(()),
        Some((key, _)) => Err(Rule::new(
            &[key],
            format!("`{key}` is for language models; the swiglu network has a fixed random problem"),
            format!("remove `{key}`, or set model.kind to one of: {}", Model::LANGUAGE.join(", ")),
        )),
    }
}

/// `[measure]` with `data.sampler`.
fn epochs(cell: &Cell) -> Checked {
    Rule::refuse_if(
        cell.measure.epochs.is_some() && cell.data.is_random(),
        &["measure.epochs"],
        "an epoch is one pass over the text of data.corpus, and this cell has none",
        "set measure.steps in its place, or name a text in data.corpus",
    )
}

/// `[data]` with `[eval]`.
fn evaluation(cell: &Cell) -> Checked {
    let chosen = matches!(&cell.data, Data::Text { eval_split, .. } if *eval_split != Split::HELD_OUT);
    Rule::refuse_if(
        chosen && cell.eval.is_none(),
        &["data.eval_split"],
        "data.eval_split has no effect without [eval]: nothing is evaluated",
        "remove data.eval_split, or add [eval] with every = 25",
    )?;
    let same = matches!(&cell.data, Data::Text { train_split, eval_split, .. } if train_split == eval_split);
    Rule::refuse_if(
        same && cell.eval.is_some(),
        &["data.eval_split", "data.train_split"],
        "data.eval_split is data.train_split: what is trained on is not held out",
        "name another split in data.eval_split, or remove [eval]",
    )
}

/// `train.seq_len` with `[model]` and `[data]`.
fn sequences(cell: &Cell) -> Checked {
    let seq_len = cell.train.seq_len;
    let Some(DecoderSizes { max_positions: positions, .. }) = cell.model.decoder() else { return Ok(()) };
    Rule::refuse_if(
        seq_len > positions,
        &["train.seq_len", "model.max_position_embeddings"],
        format!("train.seq_len = {seq_len} is longer than the model's {positions} positions"),
        "make train.seq_len smaller, or model.max_position_embeddings larger",
    )?;
    let virtual_tokens = cell.tuning().virtual_count();
    Rule::refuse_if(
        seq_len + virtual_tokens > positions,
        &["tuning.num_virtual_tokens", "train.seq_len", "tuning.method"],
        format!(
            "train.seq_len = {seq_len} with {virtual_tokens} virtual tokens before it is longer than the model's \
             {positions} positions"
        ),
        "make tuning.num_virtual_tokens or train.seq_len smaller, or model.max_position_embeddings larger",
    )?;
    Rule::refuse_if(
        seq_len < 2,
        &["train.seq_len"],
        "a sequence of one token has no next token to predict",
        "set train.seq_len to 2 or more",
    )?;
    let sampler = cell.data.sampler();
    let multiple = sampler.pad_to_multiple_of;
    Rule::refuse_if(
        sampler.sampler.rows() != Rows::Longest && !seq_len.is_multiple_of(multiple),
        &["data.pad_to_multiple_of", "train.seq_len"],
        format!("this sampler makes rows of train.seq_len = {seq_len} tokens, not a multiple of {multiple}"),
        format!("make train.seq_len a multiple of {multiple}, or remove data.pad_to_multiple_of"),
    )
}

#[cfg(test)]
mod tests;
