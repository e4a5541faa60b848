//! [`Document`]: the elements of the report, from which `typeset` makes HTML and PDF.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::charts::Chart;
use super::content;
use super::frame::Frame;
use super::table::Comparison;
use super::timelines::Timelines;

#[derive(Serialize)]
pub struct Document {
    pub title: String,
    /// Whether a PDF has less space between lines.
    pub tight: bool,
    /// The date of the newest row, RFC 3339; empty without rows.
    pub date: String,
    /// Where and when: the line below the title.
    pub measured: String,
    pub elements: Vec<Element>,
    /// Elements that only HTML has, folded.
    pub details: Vec<Element>,
}

#[derive(Serialize)]
#[serde(tag = "element", rename_all = "snake_case")]
pub enum Element {
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
    Figure(Chart),
    /// In a PDF no figure from above moves below it.
    Flush,
    Code {
        text: String,
    },
    /// Formulas with their reasons, in Typst's markup.
    Derivation {
        markup: &'static str,
    },
}

/// The first figures and tables of a document, which answer its question.
const KEPT: usize = 5;

/// A table of cells as `tables.toml` has it.
#[derive(Deserialize)]
pub struct Defined {
    /// The table has the cells with a value in this column.
    pub of: String,
    pub caption: String,
    /// Columns, each with what the caption says where it says something of a cell; `a and b` where both do.
    #[serde(default)]
    pub notes: Vec<(String, String)>,
    pub columns: Vec<String>,
}

impl Defined {
    pub fn named(name: &str) -> &'static Self {
        static TABLES: LazyLock<BTreeMap<String, Defined>> =
            LazyLock::new(|| toml::from_str(include_str!("tables.toml")).expect("tables.toml is valid"));
        &TABLES[name]
    }
}

/// Columns of text stand left, those of numbers right.
#[derive(Serialize)]
pub struct Table {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// How many columns are text; they are the first.
    pub texts: usize,
}

impl Element {
    pub fn heading(text: &str) -> Self {
        Self::Heading { text: text.into() }
    }

    pub fn paragraph(text: impl Into<String>) -> Self {
        Self::Paragraph { text: text.into() }
    }
}

impl Table {
    /// Texts with their headings, each with a row of the frame, followed by those of `columns` that have a value in one of these
    /// rows; `None` without a row.
    pub fn new(
        caption: &str,
        rows: impl Iterator<Item = (Vec<(&'static str, String)>, usize)>,
        frame: &Frame,
        columns: &[impl AsRef<str>],
    ) -> Option<Self> {
        let rows: Vec<_> = rows.collect();
        let any = |name: &&str| rows.iter().any(|(_, row)| frame.says(name, *row));
        let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).filter(any).collect();
        let (texts, _) = rows.first()?;
        let headings = texts.iter().map(|(heading, _)| *heading);
        let header =
            headings.chain(columns.iter().map(|name| frame.heading(name))).map(String::from).collect();
        let cells = |(texts, row): &(Vec<(&str, String)>, usize)| {
            let numbers = columns.iter().map(|name| frame.written(name, *row).unwrap_or_else(|| "–".into()));
            texts.iter().map(|(_, text)| text.clone()).chain(numbers).collect()
        };
        let texts = texts.len();
        Some(Self { caption: caption.into(), header, rows: rows.iter().map(cells).collect(), texts })
    }
}

impl Document {
    /// Moves the last figures and tables to the details, one for each of `pages`, but not the first ones; false where none can
    /// go.
    pub fn leave_out(&mut self, pages: usize) -> bool {
        let is_large = |element: &Element| matches!(element, Element::Figure(_) | Element::Table(_));
        let places: Vec<usize> = (0..self.elements.len()).filter(|&i| is_large(&self.elements[i])).collect();
        let removable = places.get(KEPT..).unwrap_or_default();
        for &place in removable.iter().rev().take(pages) {
            let element = self.elements.remove(place);
            self.details.push(element);
            // A heading with nothing left below it goes too.
            let bare = |i: usize| {
                matches!(self.elements.get(i), None | Some(Element::Heading { .. } | Element::Flush))
            };
            if place > 0 && matches!(self.elements[place - 1], Element::Heading { .. }) && bare(place) {
                self.elements.remove(place - 1);
            }
        }
        !removable.is_empty()
    }

    pub fn new(comparison: &Comparison, charts: Vec<Chart>, timelines: Timelines) -> Self {
        let environments = || comparison.lines.iter().filter_map(|line| line.row).map(|row| &row.environment);
        let date = environments().map(|e| e.date.clone()).max().unwrap_or_default();
        let devices: BTreeSet<&str> = environments().map(|e| e.device.name.as_str()).collect();
        let mut measured: Vec<&str> = devices.into_iter().collect();
        measured.extend(date.split('T').next().filter(|day| !day.is_empty()));
        let (elements, details) = content::elements(comparison, charts, timelines);
        Self {
            title: comparison.recipe.title.clone(),
            tight: false,
            measured: measured.join(", "),
            date,
            elements,
            details,
        }
    }
}
