//! `table.tex`: tables for a LaTeX document with the packages booktabs and longtable.

use super::document::Table;

/// More rows than this do not fit on a page.
const ON_A_PAGE: usize = 40;

/// Each table in a `table` environment, a long one in a `longtable`, to be read by `\input`.
pub fn tables<'t>(tables: impl IntoIterator<Item = (&'static str, &'t Table)>) -> String {
    let mut out =
        String::from("% \\usepackage{booktabs,longtable}, and \\input{table} where the tables stand.\n");
    tables.into_iter().for_each(|(label, of)| table(&mut out, label, of));
    out
}

fn table(out: &mut String, label: &str, table: &Table) {
    let columns: String =
        (0..table.header.len()).map(|column| if column < table.texts { 'l' } else { 'r' }).collect();
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("{} \\\\\n", cells.join(" & "))
    };
    let (caption, header) = (escape(&table.caption), row(&table.header));
    let (head, end) = match table.rows.len() > ON_A_PAGE {
        true => (
            format!(
                "\n{{\\footnotesize\n\\begin{{longtable}}{{@{{}}{columns}@{{}}}}\n\\caption{{{caption}}}\\label{{tab:{label}}} \\\\\n\
                 \\toprule\n{header}\\midrule\n\\endfirsthead\n\\toprule\n{header}\\midrule\n\\endhead\n\\bottomrule\n\
                 \\endfoot\n"
            ),
            "\\end{longtable}}\n",
        ),
        false => (
            format!(
                "\n\\begin{{table}}\n\\centering\\footnotesize\n\\caption{{{caption}}}\n\\label{{tab:{label}}}\n\
                 \\begin{{tabular}}{{@{{}}{columns}@{{}}}}\n\\toprule\n{header}\\midrule\n"
            ),
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n",
        ),
    };
    out.push_str(&head);
    table.rows.iter().for_each(|cells| out.push_str(&row(cells)));
    out.push_str(end);
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
        };
        let tex = tables([("methods", &table)]);
        let body = "\\begin{tabular}{@{}lr@{}}\n\\toprule\nmethod & time \\\\\n\\midrule\nlevel\\_1 & 1.00 ms \\\\\n\
                    \\bottomrule\n\\end{tabular}\n";
        assert!(tex.contains(body) && tex.contains("\\caption{What \\& why.}"), "{tex}");
        let long = Table { rows: vec![text(["level_1", "1.00 ms"]); ON_A_PAGE + 1], ..table };
        let tex = tables([("methods", &long)]);
        assert!(
            tex.contains(
                "\\begin{longtable}{@{}lr@{}}\n\\caption{What \\& why.}\\label{tab:methods} \\\\\n\\toprule\n"
            ),
            "{tex}"
        );
        assert!(tex.ends_with("level\\_1 & 1.00 ms \\\\\n\\end{longtable}}\n"), "{tex}");
    }
}
