//! The document as one HTML file that needs no other.

use std::fmt::Write;

use super::document::{Block, Document, Formula, Table};

const STYLE: &str = include_str!("report.css");

pub fn render(document: &Document) -> String {
    let title = escape(&document.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p class=\"where\">{}</p>\n",
        escape(&document.measured)
    );
    for block in &document.blocks {
        out.push_str(&html(block));
        out.push('\n');
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn html(block: &Block) -> String {
    let items = |items: &[String]| -> String {
        items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect()
    };
    match block {
        Block::Heading { text } => format!("<h2>{}</h2>", escape(text)),
        Block::Paragraph { text } => format!("<p>{}</p>", escape(text)),
        Block::Summary { items: sentences } => {
            format!(
                "<section class=\"summary\">\n<h2>Conclusion</h2>\n<ul>\n{}</ul>\n</section>",
                items(sentences)
            )
        }
        Block::List { items: entries } => format!("<ul>\n{}</ul>", items(entries)),
        Block::Table(content) => table(content),
        Block::Figure { caption, svg, .. } => {
            // The width is the page's; the height follows from the viewBox.
            let svg = svg.split_once("<svg ").map_or(svg.as_str(), |(_, rest)| rest);
            format!(
                "<figure>\n<svg role=\"img\" aria-label=\"{0}\" {svg}\n<figcaption>{0}</figcaption>\n</figure>",
                escape(caption)
            )
        }
        Block::Code { text } => format!("<pre><code>{}</code></pre>", escape(text)),
        Block::Derivation { steps } => {
            let steps = steps
                .iter()
                .map(|step| format!("<li>{}<br>{}</li>\n", escape(step.text), mathml(&step.formula)));
            format!("<ol class=\"derivation\">\n{}</ol>", steps.collect::<String>())
        }
    }
}

fn table(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| -> String {
        let cells = cells.iter().enumerate().map(|(i, cell)| {
            let number = if table.text_columns.contains(&i) { "" } else { "number" };
            // Short cells stay on one line; a reason may be long.
            let short = if cell.chars().count() < 28 { "short" } else { "" };
            format!("<{tag} class=\"{number} {short}\">{}</{tag}>", escape(cell))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let body: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!(
        "<figure class=\"table\">\n<figcaption>{}</figcaption>\n<div>\n<table>\n<thead>\n{}</thead>\n\
         <tbody>\n{body}</tbody>\n</table>\n</div>\n</figure>",
        escape(&table.caption),
        row(&table.header, "th")
    )
}

fn mathml(formula: &Formula) -> String {
    let mut out = String::from("<math display=\"block\">");
    for word in formula.words() {
        let first = word.base.chars().next().unwrap_or(' ');
        let base = match word.base {
            "," => "<mo>,</mo><mspace width=\"1em\"/>".to_string(),
            name if name.chars().count() > 1 => format!("<mi>{}</mi>", escape(name)),
            symbol if first.is_alphabetic() => format!("<mi>{symbol}</mi>"),
            symbol if first.is_ascii_digit() => format!("<mn>{symbol}</mn>"),
            symbol => format!("<mo>{}</mo>", escape(symbol)),
        };
        if word.differential {
            out.push_str("<mi mathvariant=\"normal\">d</mi>");
        }
        match word.superscript {
            Some(s) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "<msup>{base}<mo>{s}</mo></msup>");
            }
            None => out.push_str(&base),
        }
    }
    out.push_str("</math>");
    out
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let block = Block::Paragraph { text: "<script>a && \"b\"</script>".into() };
        assert_eq!(html(&block), "<p>&lt;script&gt;a &amp;&amp; &quot;b&quot;&lt;/script&gt;</p>");
    }

    #[test]
    fn formulas_in_mathml() {
        assert_eq!(
            mathml(&Formula("dU = h^⊤ g")),
            "<math display=\"block\"><mi mathvariant=\"normal\">d</mi><mi>U</mi><mo>=</mo>\
             <msup><mi>h</mi><mo>⊤</mo></msup><mi>g</mi></math>"
        );
    }
}
