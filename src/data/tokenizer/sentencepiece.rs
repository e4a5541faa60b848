//! Llama 2's SentencePiece: where the space before a text stands.

use serde_json::{Value, json};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{NormalizerWrapper, Tokenizer as Inner};

/// Takes the space before a text from `tokenizer_config.json`, as transformers 5 does for a `LlamaTokenizer`: it stands at
/// the very beginning, or with `legacy` behind every special token too, and not before a text that begins with one. The
/// normalizer in such a `tokenizer.json` puts it before every part of a text.
pub(super) fn place_first_space(inner: &mut Inner, config: &Value) -> Result<(), tokenizers::Error> {
    let is_llama = config["tokenizer_class"]
        .as_str()
        .is_some_and(|class| class.strip_suffix("Fast").unwrap_or(class) == "LlamaTokenizer");
    let every_part = json!({ "type": "Sequence", "normalizers": [
        { "type": "Prepend", "prepend": "▁" },
        { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
    ] });
    let prepends = serde_json::to_value(inner.get_normalizer()).is_ok_and(|own| own == every_part);
    if is_llama && prepends && inner.get_pre_tokenizer().is_none() && config["add_prefix_space"] != false {
        let scheme = if config["legacy"] == true { PrependScheme::Always } else { PrependScheme::First };
        inner.with_normalizer(None::<NormalizerWrapper>)?;
        inner.with_pre_tokenizer(Some(Metaspace::new('▁', scheme, false)));
    }
    Ok(())
}
