//! What `[data]` says, from the keys that are written, and which of these have no meaning together.

use super::{GENERATED, TextSource, TokenizerSource, VOCAB_SIZE, Written};
use crate::common::Bytes;
use crate::data::reader::Reading;

/// Where the text comes from; `None`: there is none.
pub fn source(
    corpus: Option<&str>,
    size: Option<Bytes>,
    keeps_samples: bool,
) -> Result<Option<TextSource>, String> {
    Ok(Some(match corpus {
        None | Some("random") => return Ok(None),
        Some("generated") => TextSource::Generated { size: size.unwrap_or(GENERATED) },
        Some(_) if size.is_some() => {
            return Err(
                "`size` belongs to corpus = \"generated\"; any other corpus has a size of its own; remove it"
                    .into(),
            );
        }
        Some("task") if !keeps_samples => {
            return Err(
                "corpus = \"task\" has samples, each with its prompt, which blocks would cut apart; set \
                        data.sampler to \"padded\", \"standard\", \"balanced\" or \"packed\""
                    .into(),
            );
        }
        Some("task") => TextSource::Task,
        Some(path) => TextSource::Path(path.into()),
    }))
}

pub fn tokenizer_source(
    tokenizer: Option<&str>,
    vocab_size: Option<usize>,
) -> Result<TokenizerSource, String> {
    match tokenizer {
        None | Some("train") => Ok(TokenizerSource::Train { vocab_size: vocab_size.unwrap_or(VOCAB_SIZE) }),
        Some(_) if vocab_size.is_some() => {
            Err("`vocab_size` belongs to tokenizer = \"train\"; a tokenizer file has its own; remove it"
                .into())
        }
        Some(path) => Ok(TokenizerSource::Path(path.into())),
    }
}

/// The keys of how files are read.
pub fn reading(written: &Written) -> Result<Reading, String> {
    let Written { format, skip_broken, held_out, subset, columns, .. } = written.clone();
    if held_out == Some(0.0) {
        return Err("held_out = 0 holds nothing out; remove it".into());
    }
    let (columns, skip_broken) = (columns.unwrap_or_default(), skip_broken.unwrap_or_default());
    Ok(Reading { format, columns, skip_broken, held_out, subset })
}

/// The first key that has no meaning with the corpus.
pub fn meaningless(written: &Written) -> Option<&'static str> {
    let of_files = [
        ("format", written.format.is_some()),
        ("columns", written.columns.is_some()),
        ("skip_broken", written.skip_broken.is_some()),
        ("held_out", written.held_out.is_some()),
        ("subset", written.subset.is_some()),
        ("shuffle_buffer", written.shuffle_buffer.is_some()),
    ];
    let of_answers = [
        ("template", written.template.is_some()),
        ("template_variables", written.template_variables.is_some()),
        ("learn", written.learn.is_some()),
    ];
    let of_text = [
        ("size", written.size.is_some()),
        ("tokenizer", written.tokenizer.is_some()),
        ("vocab_size", written.vocab_size.is_some()),
        ("train_split", written.train_split.is_some()),
        ("eval_split", written.eval_split.is_some()),
        ("sampler", written.sampler.is_some()),
    ];
    let meaningless: &[&[_]] = match written.corpus.as_deref() {
        None | Some("random") => &[&of_text, &of_files, &of_answers],
        Some("generated") => &[&of_files, &of_answers],
        Some("task") => &[&of_files],
        Some(_) => &[],
    };
    meaningless.iter().copied().flatten().find(|(_, written)| *written).map(|(key, _)| *key)
}
