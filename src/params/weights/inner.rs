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

/// The name in a file whose tensors of the text part have such names as `example`.
pub fn stored_name(own: &str, example: &str) -> String {
    let begins = |of: &str| BEGINNINGS[..2].iter().find(|(whole, _)| of.starts_with(whole));
    let of_head = own.starts_with(BEGINNINGS[2].1) && example.starts_with("language_model.");
    match begins(example).filter(|(_, short)| own.starts_with(short)) {
        _ if of_head => format!("language_model.{own}"),
        Some((whole, short)) => format!("{whole}{}", &own[short.len()..]),
        None => own.to_string(),
    }
}

/// PEFT's name of an adapter's tensor on the whole model, from that on the text model alone.
pub fn in_adapter(wrapped: &str) -> String {
    wrapped.replacen("base_model.model.model.", "base_model.model.model.language_model.", 1)
}
