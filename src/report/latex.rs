//! `table.tex`: tables for a LaTeX document with the packages booktabs, graphicx and rotating.

use itertools::Itertools;

use super::document::Table;

/// Characters of a line of a column's name, and of a text. A longer one is broken at its spaces.
const HEADER_LINE: usize = 12;
const TEXT_LINE: usize = 40;
/// A table of more characters in a line lies on its side: upright, its letters would be too small.
const UPRIGHT: usize = 100;
/// Lines that fit on an upright page with its caption, and on a turned one.
const LINES: [usize; 2] = [48, 28];

/// Each table in a `table` or a `sidewaystable`, a long one in several with one number, to be read by `\input`. One wider
/// than the text is made smaller.
pub fn tables<'t>(tables: impl IntoIterator<Item = (&'static str, &'t Table)>) -> String {
    let mut out = String::from(
        "% \\usepackage{booktabs,graphicx,rotating}, and \\input{table} where the tables stand.\n",
    );
    tables.into_iter().for_each(|(label, of)| table(&mut out, label, of));
    out
}

fn table(out: &mut String, label: &str, table: &Table) {
    let is_text = |column: usize| column < table.texts;
    let columns: String =
        (0..table.header.len()).map(|column| if is_text(column) { 'l' } else { 'r' }).collect();
    let row = |cells: &[String], of_number: usize| {
        let of = |(column, text): (usize, &String)| {
            broken(text, if is_text(column) { TEXT_LINE } else { of_number })
        };
        Row(cells.iter().enumerate().map(of).collect())
    };
    let header = row(&table.header, HEADER_LINE);
    let rows: Vec<Row> = table.rows.iter().map(|cells| row(cells, usize::MAX)).collect();
    let width =
        |column: usize| rows.iter().chain([&header]).map(|row| row.width(column)).max().unwrap_or(0) + 2;
    let upright = (0..columns.len()).map(width).sum::<usize>() <= UPRIGHT;
    let (environment, most) = if upright { ("table", LINES[0]) } else { ("sidewaystable", LINES[1]) };
    for (part, rows) in pages(&rows, most).into_iter().enumerate() {
        out.push_str(&format!("\n\\begin{{{environment}}}\n\\centering\\footnotesize\n"));
        out.push_str(&match part {
            0 => format!("\\caption{{{}}}\n\\label{{tab:{label}}}\n", escape(&table.caption)),
            _ => String::from("\\addtocounter{table}{-1}\n\\caption[]{Continued.}\n"),
        });
        // As wide as it is, or as the text where that is less.
        out.push_str("\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n");
        let header = header.tex(&columns);
        out.push_str(&format!("\\begin{{tabular}}{{@{{}}{columns}@{{}}}}\n\\toprule\n{header}\\midrule\n"));
        rows.iter().for_each(|row| out.push_str(&row.tex(&columns)));
        out.push_str(&format!("\\bottomrule\n\\end{{tabular}}}}\n\\end{{{environment}}}\n"));
    }
}

/// The lines of each cell.
struct Row(Vec<Vec<String>>);

impl Row {
    fn height(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(1)
    }

    fn width(&self, column: usize) -> usize {
        self.0[column].iter().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// A cell's last line is level with the other cells'.
    fn tex(&self, columns: &str) -> String {
        let cells = self.0.iter().zip(columns.chars()).map(|(lines, side)| match &lines[..] {
            [one] => escape(one),
            lines => {
                format!("\\shortstack[{side}]{{{}}}", lines.iter().map(|line| escape(line)).join("\\\\"))
            }
        });
        format!("{} \\\\\n", cells.collect_vec().join(" & "))
    }
}

/// The rows of each page, of at most so many lines. A table without rows has one page.
fn pages(rows: &[Row], most: usize) -> Vec<&[Row]> {
    let (mut pages, mut first, mut lines) = (Vec::new(), 0, 0);
    for (i, row) in rows.iter().enumerate() {
        if i > first && lines + row.height() > most {
            pages.push(&rows[first..i]);
            (first, lines) = (i, 0);
        }
        lines += row.height();
    }
    pages.push(&rows[first..]);
    pages
}

/// The text in lines of at most so many characters, where it has spaces for that.
fn broken(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count().saturating_add(1 + word.chars().count()) <= most => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Text without commands in LaTeX, in ASCII as far as LaTeX has names for characters.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            // After a line of a table these would be arguments.
            '[' | '*' => out.extend(['{', c, '}']),
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '|' => out.push_str("\\textbar{}"),
            // Two of them would be a dash, and ?` another sign.
            '-' if out.ends_with('-') => out.push_str("{}-"),
            '`' => out.push_str("\\textasciigrave{}"),
            '×' => out.push_str("$\\times$"),
            '±' => out.push_str("$\\pm$"),
            '·' => out.push_str("$\\cdot$"),
            '−' => out.push_str("$-$"),
            'µ' => out.push_str("\\textmu{}"),
            '–' => out.push_str("--"),
            '…' => out.push_str("\\ldots{}"),
            '\u{a0}' => out.push('~'),
            '\n' | '\r' | '\t' => out.push(' '),
            c => match "⁰¹²³⁴⁵⁶⁷⁸⁹⁻".chars().position(|raised| raised == c) {
                Some(10) => out.push_str("\\textsuperscript{-}"),
                Some(digit) => out.push_str(&format!("\\textsuperscript{{{digit}}}")),
                None => out.push(c),
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_user_writes_is_a_command() {
        let of = |text: &str| escape(text);
        assert_eq!(of("50 % & #1_a {x} \\input $"), "50 \\% \\& \\#1\\_a \\{x\\} \\textbackslash{}input \\$");
        assert_eq!(of("a^b ~ <b>"), "a\\textasciicircum{}b \\textasciitilde{} \\textless{}b\\textgreater{}");
        assert_eq!(of("[a] *"), "{[}a] {*}", "no argument of the line before");
        assert_eq!(
            of("16×128, 2⁻¹⁴"),
            "16$\\times$128, 2\\textsuperscript{-}\\textsuperscript{1}\\textsuperscript{4}"
        );
    }

    #[test]
    fn a_table_by_hand() {
        let text = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let table = Table {
            caption: "What & why.".into(),
            header: text(["method", "time"]),
            rows: vec![text(["level_1", "1.00 ms"])],
            texts: 1,
            left_out: 0,
        };
        let tex = tables([("methods", &table)]);
        let body = "\\begin{tabular}{@{}lr@{}}\n\\toprule\nmethod & time \\\\\n\\midrule\nlevel\\_1 & 1.00 ms \\\\\n\
                    \\bottomrule\n\\end{tabular}}\n";
        assert!(tex.contains(body) && tex.contains("\\caption{What \\& why.}"), "{tex}");
        let long = Table { rows: vec![text(["level_1", "1.00 ms"]); LINES[0] + 1], ..table };
        let tex = tables([("methods", &long)]);
        assert_eq!(tex.matches("method & time").count(), 2, "{tex}");
        assert!(tex.contains("\\addtocounter{table}{-1}\n\\caption[]{Continued.}\n"), "{tex}");
        let wide = Table { header: text(["method", &"time".repeat(30)]), ..long };
        let tex = tables([("methods", &wide)]);
        assert_eq!(tex.matches("\\begin{sidewaystable}").count(), 2, "{tex}");
    }

    #[test]
    fn long_names_stand_in_lines() {
        assert_eq!(broken("share of the matmul rate", 12), ["share of the", "matmul rate"]);
        assert_eq!(broken("unbreakable_name", 12), ["unbreakable_name"]);
        assert_eq!(broken("1.0 to 1.1x", usize::MAX), ["1.0 to 1.1x"]);
        let row = Row(vec![broken("a_b c", 3), broken("1", 3)]);
        assert_eq!((row.height(), row.width(0)), (2, 3));
        assert_eq!(row.tex("lr"), "\\shortstack[l]{a\\_b\\\\c} & 1 \\\\\n");
        let rows = [row, Row(vec![broken("d", 3), broken("2", 3)])];
        assert_eq!((pages(&rows, 2).len(), pages(&rows, 3).len(), pages(&[], 3).len()), (2, 1, 1));
    }
}
