//! [`Document`]: the report as blocks that `html` and `pdf` each set in their own way.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use super::charts::Chart;
use super::content;
use super::table::Comparison;
use super::timelines::Timelines;

#[derive(Serialize)]
pub struct Document {
    pub title: String,
    /// The date of the newest row, RFC 3339; empty without rows.
    pub date: String,
    /// Where and when: the line below the title.
    pub measured: String,
    pub blocks: Vec<Block>,
}

#[derive(Serialize)]
#[serde(tag = "block", rename_all = "snake_case")]
pub enum Block {
    Heading {
        text: String,
    },
    Paragraph {
        text: String,
    },
    /// The conclusion: sentences set apart.
    Summary {
        items: Vec<String>,
    },
    List {
        items: Vec<String>,
    },
    Table(Table),
    Figure {
        caption: String,
        svg: String,
        /// Height over width.
        aspect: f64,
    },
    Code {
        text: String,
    },
    /// Steps of a derivation: why, and what follows.
    Derivation {
        steps: Vec<Step>,
    },
}

/// Text columns stand left, the others right.
#[derive(Serialize)]
pub struct Table {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// The first columns, and the last if it says words, hold text.
    pub text_columns: Vec<usize>,
}

#[derive(Serialize)]
pub struct Step {
    pub text: &'static str,
    pub formula: Formula,
}

/// A formula in words separated by spaces: `dU = h^⊤ g`. A word is a symbol, a number, an
/// operator, a name, a differential (`d` and a letter), or one of these with `^` and a superscript.
pub struct Formula(pub &'static str);

/// A word of a formula, taken apart.
pub struct Word<'a> {
    pub differential: bool,
    pub base: &'a str,
    pub superscript: Option<&'a str>,
}

impl Formula {
    pub fn words(&self) -> impl Iterator<Item = Word<'_>> {
        self.0.split(' ').map(|word| {
            let (base, superscript) =
                word.split_once('^').map_or((word, None), |(base, superscript)| (base, Some(superscript)));
            let differential = base.chars().count() == 2 && base.starts_with('d');
            Word { differential, base: if differential { &base[1..] } else { base }, superscript }
        })
    }

    /// The formula in Typst's notation.
    fn typst(&self) -> String {
        let words = self.words().map(|word| {
            let base = match word.base {
                "," => ", quad".to_string(),
                name if name.len() > 1 && name.is_ascii() => format!("op(\"{name}\")"),
                symbol => symbol.to_string(),
            };
            let base = word.superscript.map_or(base.clone(), |s| format!("{base}^{s}"));
            if word.differential { format!("upright(d) {base}") } else { base }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

impl Serialize for Formula {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.typst())
    }
}

impl Document {
    pub fn new(comparison: &Comparison, charts: &[Chart], timelines: &Timelines) -> Self {
        let environments = || comparison.lines.iter().filter_map(|line| line.row).map(|row| &row.environment);
        let date = environments().map(|e| e.date.clone()).max().unwrap_or_default();
        let devices: BTreeSet<&str> = environments().map(|e| e.device.name.as_str()).collect();
        let mut measured: Vec<&str> = devices.into_iter().collect();
        measured.extend(date.split('T').next().filter(|day| !day.is_empty()));
        Self {
            title: comparison.recipe.title.clone(),
            measured: measured.join(", "),
            date,
            blocks: content::blocks(comparison, charts, timelines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_in_typst() {
        let formula = Formula("dU = h^⊤ g , s = SiLU ( a )");
        assert_eq!(formula.typst(), "upright(d) U = h^⊤ g , quad s = op(\"SiLU\") ( a )");
    }
}
