//! What a folder's `config.json` says that the runner does not compute: told to the user, since it changes what is trained,
//! or might.

use serde_json::Value;

use super::ConfigFile;
use crate::common::text::printable;
use crate::model::families::Family;

/// Rates of the model's own dropout, which changes training alone.
pub const DROPOUT: [&str; 10] = [
    "attention_dropout",
    "attn_pdrop",
    "dropout",
    "dropout_rate",
    "embd_pdrop",
    "embedding_dropout",
    "hidden_dropout",
    "layerdrop",
    "resid_pdrop",
    "residual_dropout",
];

/// Fields that change neither what a causal language model computes nor how it is trained: where it comes from, how programs
/// keep or show it, heads that are not its language model's, and how it generates.
const HARMLESS: [&str; 95] = [
    // The file itself and the programs that wrote it.
    "_name_or_path",
    "_model_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "model_type",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "written_by",
    // How it is run.
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_flash_attn_2_enabled",
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "gradient_checkpointing",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pretraining_tp",
    "return_dict",
    "return_dict_in_generate",
    "output_scores",
    "torchscript",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
    // Kinds of models that it is none of.
    "cross_attention_hidden_size",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "tie_encoder_decoder",
    // Of heads that classify.
    "classifier_dropout",
    "finetuning_task",
    "id2label",
    "label2id",
    "num_labels",
    "_num_labels",
    "problem_type",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    // Tokens that the tokenizer and the text have already.
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "pad_token_id",
    "prefix",
    "sep_token_id",
    "tokenizer_class",
    "unk_token_id",
    // Of random weights alone.
    "init_std",
    "initializer_factor",
    // Old files repeat a size in these, or have sizes of what is not used.
    "dense_act_fn",
    "is_gated_act",
    "max_window_layers",
    "n_ctx",
    "n_positions",
    "predict_special_tokens",
    "rope_interleaved",
    "scale_attn_weights",
    "sliding_window",
    "original_max_position_embeddings",
    // How text is generated, as in generation_config.json.
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "remove_invalid_values",
    "repetition_penalty",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "top_k",
    "top_p",
    "typical_p",
];

/// What becomes of a field of a `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It gives a size, or it is refused unless it has the value that the runner computes.
    Read,
    /// The runner trains without it, and says so.
    Dropout,
    /// It changes nothing that is computed.
    Harmless,
    /// The runner does not know it, and says so.
    Unknown,
}

impl ConfigFile {
    /// Every field with what becomes of it.
    ///
    /// # Errors
    /// A key whose value is not supported.
    pub fn fates(&self, family: &'static Family) -> Result<Vec<(&str, Fate)>, String> {
        self.written(family)?;
        let read = self.asked();
        let fate = |key: &str| match key {
            _ if family.pads && key == "pad_token_id" || key == "initializer_range" => Fate::Read,
            _ if read.contains(key) => Fate::Read,
            _ if DROPOUT.contains(&key) => Fate::Dropout,
            _ if HARMLESS.contains(&key) => Fate::Harmless,
            _ => Fate::Unknown,
        };
        Ok(self.keys().map(|key| (key, fate(key))).collect())
    }

    /// What the user should know of the file, a sentence each. `trains`: whether weights change.
    pub fn notices(&self, family: &'static Family, trains: bool) -> Vec<String> {
        let fates = self.fates(family).unwrap_or_default();
        // Text of somebody else's.
        let written = |key: &str| printable(&format!("{key} = {}", self.get(key).unwrap_or(&Value::Null)));
        let of = |wanted: Fate| fates.iter().filter(move |(_, fate)| *fate == wanted).map(|(key, _)| *key);
        let rates: Vec<String> = of(Fate::Dropout)
            .filter(|key| {
                trains && self.get(key).and_then(Value::as_f64) != Some(0.0) && self.get(key).is_some()
            })
            .map(written)
            .collect();
        let unknown: Vec<String> = of(Fate::Unknown).map(printable).collect();
        let mut notices = Vec::new();
        if let Some(whole) = self.whole() {
            notices.push(format!(
                "it is the text part of a {whole}, which is read alone; what is saved has the other parts as they are"
            ));
        }
        if !rates.is_empty() {
            notices
                .push(format!("{}: the runner trains without dropout of the model's own", rates.join(", ")));
        }
        if !unknown.is_empty() {
            notices.push(format!(
                "it has keys that the runner does not know: {}; they are kept in what is saved, and nothing is computed by \
                 them",
                unknown.join(", ")
            ));
        }
        notices
    }
}
