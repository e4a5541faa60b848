//! What the user's terminal can show.

use comfy_table::Table;

/// Whether the terminal's locale has more signs than ASCII. The first variable that is set decides, as for a C program.
pub fn has_unicode() -> bool {
    let set = |name: &&str| std::env::var(name).ok().filter(|locale| !locale.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Text in ASCII, for a terminal that has no more: signs that tables, bars and units are made of become others like them.
pub fn in_ascii(text: &str) -> String {
    let sign = |c: char| match c {
        c if c.is_ascii() => c,
        '─' | '═' | '╌' | '–' | '—' | '−' => '-',
        '│' | '║' | '┆' => '|',
        '\u{2500}'..='\u{257f}' => '+',
        '×' => 'x',
        'µ' => 'u',
        '·' | '•' => '*',
        '▶' => '>',
        '“' | '”' | '„' => '"',
        '‘' | '’' => '\'',
        _ => '?',
    };
    text.replace('±', "+-").replace('…', "...").chars().map(sign).collect()
}

/// Columns of the terminal behind standard error; `None` where there is none.
pub fn width() -> Option<usize> {
    let mut table = Table::new();
    table.use_stderr();
    table.width().map(usize::from).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_have_others_like_them_in_ascii() {
        assert_eq!(in_ascii("│ 12.3 µs ± 4 %, 2 × 3 … ┌─┐"), "| 12.3 us +- 4 %, 2 x 3 ... +-+");
        assert_eq!(in_ascii("a “b” – Ω"), "a \"b\" - ?");
    }
}
