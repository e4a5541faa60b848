//! [`Reference`]: the batch and the prompts that a language model's values were computed from.

use miette::{Result, miette};

use super::{Golden, ReferenceTensor};
use crate::data::collate::NO_LABEL;
use crate::data::{Collated, Sources};
use crate::model::language::LmBatch;
use crate::recipe::Cell;
use crate::train::{Feed, on_device};

/// Whether a reference is a language model's: token ids, and what was computed from them.
pub fn is_known(golden: &Golden) -> bool {
    golden.has(&["input_ids"]) && (golden.has(&["logits"]) || golden.has(&["loss"]))
}

pub struct Reference {
    pub batch: usize,
    /// Tokens of each sequence: of each target, where there are sources.
    pub sequence: usize,
    /// Of sources, where there are some.
    ids: Vec<i32>,
    /// The token that a target begins with, of an encoder and a decoder.
    start: Option<u32>,
    /// Of each token its own; of a target what its tokens predict.
    labels: Vec<i32>,
    /// Each with its greedy continuation.
    pub prompts: Vec<(Vec<u32>, Vec<u32>)>,
}

impl Reference {
    /// For a model of `vocab` tokens and so many `positions`; `start`: the token that a target begins with, where it has an
    /// encoder.
    ///
    /// # Errors
    /// When the batch or the prompts cannot be the model's.
    pub fn read(golden: &Golden, vocab: usize, positions: usize, start: Option<u32>) -> Result<Self> {
        if let Some(start) = start {
            return Self::of_pairs(golden, vocab, start);
        }
        let ids = golden.get("input_ids");
        let [batch, sequence] = matrix("input_ids", ids)?;
        if batch == 0 || sequence < 2 {
            return Err(miette!(
                "input_ids of the reference are {batch} sequences of {sequence} tokens: there must be one at \
                 least, of two tokens or more"
            ));
        }
        let labels = golden.find("labels").unwrap_or(ids);
        if labels.shape != ids.shape {
            return Err(miette!(
                "labels of the reference have the shape {:?}, and input_ids {:?}: they must be equal",
                labels.shape,
                ids.shape
            ));
        }
        let mut prompts = Vec::new();
        if golden.has(&CONTINUATION) {
            let [prompt, tokens] = CONTINUATION.map(|name| golden.get(name));
            let [rows, start] = matrix(CONTINUATION[0], prompt)?;
            let [results, end] = matrix(CONTINUATION[1], tokens)?;
            let (prompt, tokens) =
                (self::ids(CONTINUATION[0], prompt, vocab)?, self::ids(CONTINUATION[1], tokens, vocab)?);
            let fits = rows == results && rows > 0 && (1..end).contains(&start);
            if fits {
                prompts = prompt
                    .chunks(start)
                    .map(<[_]>::to_vec)
                    .zip(tokens.chunks(end).map(<[_]>::to_vec))
                    .collect();
            }
            if !fits || prompts.iter().any(|(prompt, tokens)| !tokens.starts_with(prompt)) {
                return Err(miette!("each row of generate.tokens must be a row of generate.prompt and more"));
            }
        }
        let reference = Self {
            batch,
            sequence,
            ids: whole("input_ids", ids, |id| is_id(id, vocab), vocab)?,
            start: None,
            labels: own_labels(labels, vocab)?,
            prompts,
        };
        // A sequence's first label is no token's next one.
        let predicts = |row: &[i32]| row[1..].iter().any(|label| *label != NO_LABEL);
        if !reference.labels.chunks(sequence).any(predicts) {
            return Err(miette!("no label of the reference counts: all are -100"));
        }
        if reference.positions() > positions {
            let needed = reference.positions();
            return Err(miette!(
                "the reference has sequences of {needed} tokens, and config.json {positions} positions"
            ));
        }
        Ok(reference)
    }

    /// For an encoder and a decoder: `input_ids` are sources, `labels` targets, and `generate.tokens` what follows the first
    /// sources, each behind the token `start`.
    fn of_pairs(golden: &Golden, vocab: usize, start: u32) -> Result<Self> {
        let [ids, labels] = ["input_ids", "labels"].map(|name| golden.find(name));
        let (Some(ids), Some(labels)) = (ids, labels) else {
            return Err(miette!("the reference of an encoder and a decoder needs input_ids and labels"));
        };
        let ([batch, source], [targets, sequence]) = (matrix("input_ids", ids)?, matrix("labels", labels)?);
        if batch != targets || batch * source * sequence == 0 {
            return Err(miette!(
                "the reference has {batch} sources of {source} tokens and {targets} targets of {sequence}: there must be a \
                 target for each, of a token or more"
            ));
        }
        let sources = self::ids("input_ids", ids, vocab)?;
        let mut prompts = Vec::new();
        if let Some(tokens) = golden.find(CONTINUATION[1]) {
            let [results, length] = matrix(CONTINUATION[1], tokens)?;
            let tokens = self::ids(CONTINUATION[1], tokens, vocab)?;
            if results > batch || length < 2 || tokens.chunks(length).any(|row| row[0] != start) {
                return Err(miette!(
                    "each row of generate.tokens must begin with the token {start} and go on"
                ));
            }
            let whole =
                |(source, tokens): (&[u32], &[u32])| (source.to_vec(), [source, &tokens[1..]].concat());
            prompts = sources.chunks(source).zip(tokens.chunks(length)).map(whole).collect();
        }
        let labels = own_labels(labels, vocab)?;
        if labels.iter().all(|label| *label == NO_LABEL) {
            return Err(miette!("no label of the reference counts: all are -100"));
        }
        let ids = sources.into_iter().map(|id| id as i32).collect();
        Ok(Self { batch, sequence, ids, start: Some(start), labels, prompts })
    }

    /// Of the longest sequence.
    pub fn positions(&self) -> usize {
        let generated = self.prompts.iter().map(|(_, tokens)| tokens.len());
        let longest = self.sequence.max(self.ids.len() / self.batch);
        generated.fold(longest, usize::max)
    }

    /// The mean loss that follows from the reference's `logits` [batch, sequence, vocab], in f64.
    pub fn loss_of(&self, logits: &[f64]) -> f64 {
        let vocab = logits.len() / self.labels.len();
        let rows = logits.chunks(vocab).enumerate();
        // A token predicts the next one's label, and the last of a sequence nothing; of a target each predicts its own.
        let next = usize::from(self.start.is_none());
        let predicting = rows.filter(|(place, _)| place % self.sequence + next < self.sequence);
        let losses: Vec<f64> = predicting
            .filter_map(|(place, row)| {
                let label = usize::try_from(self.labels[place + next]).ok()?;
                let largest = row.iter().fold(f64::MIN, |largest, logit| logit.max(largest));
                let sum: f64 = row.iter().map(|logit| (logit - largest).exp()).sum();
                Some(largest + sum.ln() - row[label])
            })
            .collect();
        losses.iter().sum::<f64>() / losses.len() as f64
    }

    /// The sequences as the cell trains on them: blocks of text, or samples.
    pub fn batch(&self, cell: &Cell) -> LmBatch {
        if let Some(start) = self.start {
            let sources = Sources::of_rows(self.ids.clone(), self.batch);
            return on_device(Collated::of_pairs(sources, self.labels.clone(), start), cell.device_id());
        }
        let rows = Collated::of_rows(self.ids.clone(), &self.labels, self.batch);
        let rows = if cell.data.is_packed() { rows.joined() } else { rows };
        on_device(rows.with_virtual_tokens(cell.tuning().virtual_tokens), cell.device_id())
    }

    /// The batch as each of a step's micro-batches: their mean is the batch's own.
    pub fn feed(&self, cell: &Cell) -> Box<dyn Feed<LmBatch>> {
        let mut batch = self.batch(cell);
        batch.total *= cell.train.accumulation_steps as f64;
        Box::new(Repeated { batch, times: cell.train.accumulation_steps })
    }
}

fn own_labels(labels: &ReferenceTensor, vocab: usize) -> Result<Vec<i32>> {
    whole("labels", labels, |label| label == NO_LABEL || is_id(label, vocab), vocab)
}

/// Names of the prompts and of what follows them.
pub const CONTINUATION: [&str; 2] = ["generate.prompt", "generate.tokens"];

struct Repeated {
    batch: LmBatch,
    times: usize,
}

impl Feed<LmBatch> for Repeated {
    fn next(&mut self) -> Vec<LmBatch> {
        vec![self.batch.clone(); self.times]
    }
}

fn matrix(name: &str, values: &ReferenceTensor) -> Result<[usize; 2]> {
    values.shape.as_slice().try_into().map_err(|_| {
        miette!("{name} of the reference must be [sequences, tokens], not of the shape {:?}", values.shape)
    })
}

fn is_id(value: i32, vocab: usize) -> bool {
    usize::try_from(value).is_ok_and(|id| id < vocab)
}

fn ids(name: &str, values: &ReferenceTensor, vocab: usize) -> Result<Vec<u32>> {
    let ids = whole(name, values, |id| is_id(id, vocab), vocab)?;
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

/// Whole numbers, each of them `valid`.
fn whole(
    name: &str,
    values: &ReferenceTensor,
    valid: impl Fn(i32) -> bool,
    vocab: usize,
) -> Result<Vec<i32>> {
    let wrong = values.data.iter().find(|value| value.fract() != 0.0 || !valid(**value as i32));
    match wrong {
        Some(value) => Err(miette!(
            help = "the reference and the config.json in its folder must be of one model",
            "{name} of the reference holds {value}, and the model has the {vocab} tokens from 0 to {}",
            vocab - 1
        )),
        None => Ok(values.data.iter().map(|value| *value as i32).collect()),
    }
}
