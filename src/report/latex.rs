//! `table.tex`: tables for a LaTeX document with the packages booktabs, longtable and pdflscape.

use super::prelude::*;

/// A table of more columns lies on its side.
const UPRIGHT: usize = 8;

/// Each table as a `longtable`, which goes on over pages, to be read by `\input`.
pub fn tables(tables: &[(&str, Table)]) -> String {
    let tables = tables.iter().map(|(label, table)| long_table(label, table)).join("");
    format!(
        "% \\usepackage{{booktabs,longtable,pdflscape}}, and \\input{{table}} where the tables stand.\n{tables}"
    )
}

fn long_table(label: &str, table: &Table) -> String {
    let columns = table.header.len();
    let sides = format!("{}{}", "l".repeat(table.texts), "r".repeat(columns - table.texts));
    let row = |cells: &[String]| format!("{} \\\\\n", cells.iter().map(|text| escape(text)).join(" & "));
    // A name is broken at its spaces.
    let name = |(text, side): (&String, char)| {
        format!("\\shortstack[{side}]{{{}}}", text.split(' ').map(escape).join("\\\\"))
    };
    let names = table.header.iter().zip(sides.chars()).map(name).join(" & ");
    let header = format!("\\toprule\n{names} \\\\\n\\midrule\n");
    let (begin, end) =
        if columns > UPRIGHT { ("\\begin{landscape}\n", "\\end{landscape}\n") } else { ("", "") };
    format!(
        "\n{begin}{{\\footnotesize\n\\begin{{longtable}}{{@{{}}{sides}@{{}}}}\n\\caption{{{}}}\\label{{tab:{label}}}\\\\\n\
         {header}\\endfirsthead\n{header}\\endhead\n\\bottomrule\n\\endfoot\n{}\\end{{longtable}}}}\n{end}",
        escape(&table.caption),
        table.rows.iter().map(|cells| row(cells)).join(""),
    )
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
            header: text(["method", "step time"]),
            rows: vec![text(["level_1", "1.00 ms"])],
            texts: 1,
            left_out: 0,
        };
        let tex = tables(&[("methods", table.clone())]);
        let body = "\\begin{longtable}{@{}lr@{}}\n\\caption{What \\& why.}\\label{tab:methods}\\\\\n\\toprule\n\
                    \\shortstack[l]{method} & \\shortstack[r]{step\\\\time} \\\\\n\\midrule\n\\endfirsthead\n";
        assert!(
            tex.contains(body) && tex.contains("\\endfoot\nlevel\\_1 & 1.00 ms \\\\\n\\end{longtable}}\n"),
            "{tex}"
        );
        assert!(!tex.contains("landscape"));
        let wide = Table { header: vec!["time".into(); UPRIGHT + 1], ..table };
        assert!(tables(&[("methods", wide)]).contains("\n\\begin{landscape}\n{\\footnotesize\n"), "{tex}");
    }
}
