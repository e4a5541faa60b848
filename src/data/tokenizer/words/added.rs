//! [`Added`]: tokens that are found in a text before it is split.

use std::ops::Range;

use tokenizers::Tokenizer as Inner;

/// A piece of a text, and its token, if it is one that was added.
pub type Split = (Range<usize>, Option<u32>);

/// Tokens that are found in a text before it is split.
#[derive(Debug)]
pub struct Added {
    /// The longest first.
    tokens: Vec<(String, u32)>,
    /// The bytes that they begin with.
    begins: Box<[bool; 256]>,
    /// Whether they take nothing of what is beside them, and none of them is looked for after others.
    stands_alone: bool,
}

impl Added {
    pub fn new(inner: &Inner) -> Self {
        let all = inner.get_added_tokens_decoder();
        let late = all.values().filter(|token| token.normalized).count();
        let takes = all.values().any(|token| token.lstrip || token.rstrip || token.single_word);
        let mut tokens: Vec<(String, u32)> = all
            .into_iter()
            .map(|(id, token)| (token.content, id))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        tokens.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut begins = Box::new([false; 256]);
        tokens.iter().for_each(|(text, _)| begins[usize::from(text.as_bytes()[0])] = true);
        let stands_alone = !takes && (late == 0 || late == tokens.len());
        Self { tokens, begins, stands_alone }
    }

    /// The pieces of a text; `None` where a token that does not stand alone is in it.
    pub fn splits(&self, text: &str) -> Option<Vec<Split>> {
        let (mut splits, mut start, mut i) = (Vec::new(), 0, 0);
        while let Some(next) = text.as_bytes()[i..].iter().position(|byte| self.begins[usize::from(*byte)]) {
            i += next;
            let behind = &text.as_bytes()[i..];
            match self.tokens.iter().find(|(token, _)| behind.starts_with(token.as_bytes())) {
                None => i += 1,
                Some(_) if !self.stands_alone => return None,
                Some((token, id)) => {
                    if start < i {
                        splits.push((start..i, None));
                    }
                    start = i + token.len();
                    splits.push((i..start, Some(*id)));
                    i = start;
                }
            }
        }
        if start < text.len() {
            splits.push((start..text.len(), None));
        }
        Some(splits)
    }
}
