//! [`Document`]: the elements of the report, from which `typeset` makes HTML and PDF.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::columns::{Column, Of};
use super::frame::Frame;

#[derive(Clone, Default, Serialize)]
pub struct Document {
    pub title: String,
    /// The date of the newest row, RFC 3339; empty without rows.
    pub date: String,
    /// Where and when: the line below the title.
    pub measured: String,
    pub elements: Vec<Element>,
    /// Elements that only HTML has, folded.
    pub details: Vec<Element>,
}

#[derive(Clone, Serialize)]
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
    /// What stands behind it is for reference, on pages of its own.
    Appendix,
    Code {
        text: String,
    },
}

/// The first figures and tables of a document: those of page 1, and the table of all methods.
const KEPT: usize = 3;

/// A drawn chart.
#[derive(Clone, Serialize)]
pub struct Chart {
    /// The file's name without its ending.
    pub name: String,
    /// The text below it.
    pub caption: String,
    pub svg: String,
}

/// A table as `tables.toml` has it. One that has no row for each cell has a caption alone.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Defined {
    pub caption: String,
    /// The table has the cells with a value in this column.
    pub of: String,
    /// Whether it says how each cell ended, where not all ended well.
    pub status: bool,
    /// Whether cells stand in the recipe's order, not by their sizes.
    pub in_order: bool,
    /// Columns, each with what the caption says where it says something of a cell; `a and b` where both do.
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
#[derive(Clone, Serialize)]
pub struct Table {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// How many columns are text; they are the first.
    pub texts: usize,
    /// Rows that it had behind these. The PDF's identifier is made of this text, so a whole table has none of it.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Element {
    pub fn heading(text: &str) -> Self {
        Self::Heading { text: text.into() }
    }

    /// A heading and its tables; nothing without a table.
    pub fn section(heading: &str, tables: impl IntoIterator<Item = Option<Table>>) -> Vec<Self> {
        let mut out: Vec<Self> = tables.into_iter().flatten().map(Self::Table).collect();
        if !out.is_empty() {
            out.insert(0, Self::heading(heading));
        }
        out
    }

    pub fn paragraph(text: impl Into<String>) -> Self {
        Self::Paragraph { text: text.into() }
    }
}

/// A text of a row, behind its heading.
pub type Text = (&'static str, String);

impl Table {
    /// Rows of texts, each with what its columns are computed from; `None` without a row.
    pub fn of_rows<T, R: Borrow<T>>(
        caption: &str,
        columns: &[Column<Of<T>>],
        rows: impl Iterator<Item = (Vec<Text>, R)>,
    ) -> Option<Self> {
        let (texts, rows): (Vec<_>, Vec<R>) = rows.unzip();
        let mut frame = Frame::default();
        frame.add("", columns, rows.len(), |i| Some(rows[i].borrow()));
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        Self::new(caption, texts.into_iter().zip(0..), &frame, &names)
    }

    /// Texts with their headings, each with a row of the frame, followed by those of `columns` that have a value in one of these
    /// rows; `None` without a row.
    pub fn new(
        caption: &str,
        rows: impl Iterator<Item = (Vec<Text>, usize)>,
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
        let cells = |(texts, row): &(Vec<Text>, usize)| {
            let numbers = columns.iter().map(|name| frame.written(name, *row).unwrap_or_else(|| "–".into()));
            texts.iter().map(|(_, text)| text.clone()).chain(numbers).collect()
        };
        let texts = texts.len();
        let rows = rows.iter().map(cells).collect();
        Some(Self { caption: caption.into(), header, rows, texts, left_out: 0 })
    }
}

impl Document {
    /// Leaves so many rows in each table: nobody reads more of them here.
    pub fn shorten(&mut self, most: usize) {
        for element in self.elements.iter_mut().chain(&mut self.details) {
            if let Element::Table(table) = element
                && table.rows.len() > most
            {
                table.left_out += table.rows.len() - most;
                table.rows.truncate(most);
            }
        }
    }

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
            let bare = |i: usize| matches!(self.elements.get(i), None | Some(Element::Heading { .. }));
            if place > 0 && matches!(self.elements[place - 1], Element::Heading { .. }) && bare(place) {
                self.elements.remove(place - 1);
            }
        }
        !removable.is_empty()
    }
}
