//! [`bounds`]: where a text can be cut so that each piece keeps its tokens.

/// The bounds of words in a text, in bytes: before a space behind a letter, a digit or a sign, and before the end of a line
/// behind an ASCII letter or digit. No pattern of [`splits`](super::splits) has a match across them, or looks across them.
pub fn bounds(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    (1..bytes.len()).filter(move |&i| match (bytes[i - 1], bytes[i]) {
        (before, b' ') if before.is_ascii() => before.is_ascii_graphic(),
        (_, b' ') => text[..i].chars().next_back().is_some_and(char::is_alphanumeric),
        (before, b'\n') => before.is_ascii_alphanumeric(),
        _ => false,
    })
}
