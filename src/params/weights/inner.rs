//! Names of the text part's tensors in the file of a model that reads more than text, such as pictures.

/// How they begin there, and in the text model alone: of published files, of transformers' modules, and of a head of its own.
const BEGINNINGS: [(&str, &str); 3] = [
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
];

/// The name in the text model alone, with what may stand before it; `None` where it is no other.
pub fn own_name(stored: &str) -> Option<String> {
    let is_part = |at: usize| at == 0 || stored[..at].ends_with('.');
    let (whole, own) = BEGINNINGS.iter().find(|(whole, _)| stored.find(whole).is_some_and(is_part))?;
    Some(stored.replacen(whole, own, 1))
}

/// The name in a file where one of the text part's tensors has the name `example`.
pub fn stored_name(own: &str, example: &str) -> String {
    let is_published = example.starts_with("language_model.");
    match own.strip_prefix("model.") {
        _ if is_published && (own.starts_with("model.") || own.starts_with("lm_head.")) => {
            format!("language_model.{own}")
        }
        Some(rest) if !is_published => format!("model.language_model.{rest}"),
        _ => own.to_string(),
    }
}

/// PEFT's name of an adapter's tensor on the whole model, from that on the text model alone.
pub fn in_adapter(wrapped: &str) -> String {
    wrapped.replacen("base_model.model.model.", "base_model.model.model.language_model.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of published files, and of transformers' modules, whose head is outside.
    #[test]
    fn names_of_a_text_part_come_and_go() {
        for (own, published, of_modules) in [
            ("model.norm.weight", "language_model.model.norm.weight", "model.language_model.norm.weight"),
            ("lm_head.weight", "language_model.lm_head.weight", "lm_head.weight"),
            ("score.weight", "score.weight", "score.weight"),
        ] {
            for (stored, example) in [
                (published, "language_model.model.embed_tokens.weight"),
                (published, "language_model.lm_head.weight"),
                (of_modules, "model.language_model.embed_tokens.weight"),
            ] {
                assert_eq!(stored_name(own, example), stored);
                assert_eq!(own_name(stored), Some(own.to_string()).filter(|own| own != stored), "{stored}");
            }
        }
        let adapted = "base_model.model.model.language_model.layers.0.q_proj.lora_A.weight";
        let own = "base_model.model.model.layers.0.q_proj.lora_A.weight";
        assert_eq!((own_name(adapted).as_deref(), in_adapter(own).as_str()), (Some(own), adapted));
        assert_eq!(
            own_name("grad.model.language_model.norm.weight").as_deref(),
            Some("grad.model.norm.weight")
        );
        for other in ["model.vision_tower.head.probe", "vision_tower.head.probe", "model.norm.weight"] {
            assert_eq!(own_name(other), None);
        }
    }
}
