//! [`prepared`]: the source of a template as MiniJinja reads it as jinja2 would.

use std::ops::Range;

/// The filter of what a loop runs over.
pub const ITERABLE: &str = "__iterable__";
/// What stands where a generated text begins and where it ends: templates by these names.
pub const MARKS: [&str; 2] = ["__generation__", "__endgeneration__"];

/// The source with `\n` for each end of a line; `{% generation %}`, which transformers adds to jinja2, as [`MARKS`] in a scope
/// of their own; loops that refuse `None`; and the line that a `{% raw %}` begins with, which MiniJinja takes away. Second,
/// whether it has marks.
///
/// # Errors
/// A `break` or `continue` that leaves another block than its loop's, where MiniJinja loses what follows.
pub fn prepared(source: &str) -> Result<(String, bool), String> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let (mut out, mut marked, mut rest) = (String::with_capacity(source.len()), false, &source[..]);
    let mut open = Vec::new();
    while let Some(start) = ["{{", "{%", "{#"].iter().filter_map(|tag| rest.find(tag)).min() {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = if rest.starts_with("{#") { rest.find("#}").map(|end| end + 2) } else { tag(rest) };
        let Some(length) = length else { break };
        let block = rest.starts_with("{%").then(|| Block::new(&rest[..length]));
        if let Some(block) = &block {
            block.enter(&mut open)?;
        }
        let (mut shown, mut taken) = (rest[..length].to_string(), length);
        match block {
            Some(block) if block.is("generation") || block.is("endgeneration") => {
                marked = true;
                let [begin, end] = MARKS;
                let marks = match block.is("generation") {
                    true => format!(" with %}}{{% include '{begin}' "),
                    false => format!(" include '{end}' %}}{{% endwith "),
                };
                shown.replace_range(block.body, &marks);
            }
            Some(block) if block.is("raw") => {
                if rest[length..].starts_with('\n') && !shown.ends_with("-%}") {
                    shown.push('\n');
                }
                taken += rest[length..].find("endraw").unwrap_or_default();
                shown.push_str(&rest[length..taken]);
            }
            Some(block) if block.words.first() == Some(&"for") => {
                if let Some(items) = items(&shown, block.body) {
                    shown.replace_range(items.clone(), &format!(" ({})|{ITERABLE} ", &rest[items]));
                }
            }
            _ => {}
        }
        out.push_str(&shown);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Ok((out, marked))
}

/// A tag `{% … %}`.
struct Block<'s> {
    words: Vec<&'s str>,
    /// What stands between its marks.
    body: Range<usize>,
}

impl<'s> Block<'s> {
    fn new(tag: &'s str) -> Self {
        let sign = |at: usize| usize::from(matches!(tag.as_bytes()[at], b'-' | b'+'));
        let start = 2 + sign(2);
        let body = start..(tag.len() - 2 - sign(tag.len() - 3)).max(start);
        Self { words: tag[body.clone()].split_whitespace().collect(), body }
    }

    fn is(&self, word: &str) -> bool {
        self.words == [word]
    }

    /// Notes the blocks that are open behind this one.
    fn enter(&self, open: &mut Vec<&'s str>) -> Result<(), String> {
        let Some(word) = self.words.first() else { return Ok(()) };
        let opens = match *word {
            "for" | "with" | "filter" | "generation" | "autoescape" => true,
            // The text of a block becomes a variable.
            "set" => !self.words.concat().contains('='),
            "break" | "continue" => match open.last().filter(|inner| **inner != "for") {
                Some(inner) => {
                    return Err(format!(
                        "{word} stands within a block \"{inner}\" of its loop: move it out of that block"
                    ));
                }
                None => false,
            },
            _ => false,
        };
        if opens {
            open.push(word);
        } else if open.last().is_some_and(|last| word.strip_prefix("end") == Some(last)) {
            open.pop();
        }
        Ok(())
    }
}

/// The length of a tag with its ends, the first of which the text begins with.
fn tag(text: &str) -> Option<usize> {
    let close = if text.starts_with("{{") { "}}" } else { "%}" };
    tokens(&text[2..])
        .find(|(at, depth)| *depth == 0 && text[2 + at..].starts_with(close))
        .map(|(at, _)| at + 4)
}

/// Where the expression stands that a loop runs over.
fn items(tag: &str, body: Range<usize>) -> Option<Range<usize>> {
    let text = &tag[body.clone()];
    let word = |at: usize, word: &str| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        text[at..].starts_with(word)
            && !text[..at].ends_with(is_part)
            && !text[at + word.len()..].starts_with(is_part)
    };
    let places: Vec<usize> = tokens(text).filter(|(_, depth)| *depth == 0).map(|(at, _)| at).collect();
    let start = places.iter().find(|at| word(**at, "in"))? + "in".len();
    let end = places.iter().find(|at| **at >= start && (word(**at, "if") || word(**at, "recursive")));
    Some(body.start + start..end.map_or(body.end, |end| body.start + end))
}

/// The places of an expression's characters outside of strings, with the number of brackets that are open there.
fn tokens(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let (mut quote, mut escaped, mut depth) = (None, false, 0_usize);
    text.char_indices().filter_map(move |(at, c)| {
        if let Some(open) = quote {
            let ends = c == open && !escaped;
            escaped = c == '\\' && !escaped;
            if ends {
                quote = None;
            }
            return None;
        }
        let before = depth;
        match c {
            '\'' | '"' => {
                quote = Some(c);
                return None;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        Some((at, before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_loops_and_raw_text_are_what_jinja2_makes_of_them() {
        for (source, expected) in [
            (
                "{%- generation -%}x{% endgeneration +%}",
                "{%- with %}{% include '__generation__' -%}x{% include '__endgeneration__' %}{% endwith +%}",
            ),
            ("{% generation x %}", "{% generation x %}"),
            (
                "{# {% generation %} #}{{ '{% generation %}' }}",
                "{# {% generation %} #}{{ '{% generation %}' }}",
            ),
            ("{% raw %}\n{% generation %}{% endraw %}", "{% raw %}\n\n{% generation %}{% endraw %}"),
            ("{% for a, b in x['in'] if a in c %}", "{% for a, b in ( x['in'] )|__iterable__ if a in c %}"),
            ("{%- for x in y -%}", "{%- for x in ( y )|__iterable__ -%}"),
            ("{{ {'a': {}}}}\r\na\rb", "{{ {'a': {}}}}\na\nb"),
            ("{{ '}}' }}{% if '%}' %}", "{{ '}}' }}{% if '%}' %}"),
            ("é {{ open", "é {{ open"),
            ("{%", "{%"),
            ("{%%}", "{%%}"),
        ] {
            let marked = expected.contains("include");
            assert_eq!(prepared(source), Ok((expected.to_string(), marked)), "{source}");
        }
    }

    #[test]
    fn a_loop_is_left_from_within_itself_alone() {
        let source = |body: &str| format!("{{% for x in y %}}{body}{{% endfor %}}");
        for good in
            ["{% if x %}{% break %}{% endif %}", "{% set a = 1 %}{% with %}{% endwith %}{% continue %}"]
        {
            assert!(prepared(&source(good)).is_ok(), "{good}");
        }
        for bad in [
            "{% with %}{% break %}{% endwith %}",
            "{% set a %}{% if x %}{% continue %}{% endif %}{% endset %}",
        ] {
            let message = prepared(&source(bad)).unwrap_err();
            assert!(message.contains("of its loop: move it out"), "{message}");
        }
    }
}
