//! The document as HTML and as PDF, set by Typst. Its text reaches the templates as data (`report.json`), so nothing that a user
//! writes becomes markup.

use std::ops::Deref;
use std::sync::LazyLock;

use itertools::Itertools;
use miette::{IntoDiagnostic, WrapErr, miette};
use typst::diag::{FileError, FileResult, SourceDiagnostic};
use typst::foundations::{Bytes, Datetime, Duration, Smart};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook};
use typst::utils::LazyHash;
use typst::{Feature, Library, LibraryExt, World};
use typst_html::{HtmlDocument, HtmlOptions};
use typst_layout::PagedDocument;
use typst_pdf::{PdfOptions, Timestamp};

use super::charts::font_files;
use super::document::{Chart, Document, Element};
use crate::common::text::printable;

/// A single file with everything in it; the same document gives the same bytes.
///
/// # Errors
/// When Typst cannot set the document.
pub fn html(document: &Document) -> miette::Result<String> {
    let style = include_bytes!("report.css").to_vec();
    let world = ReportWorld::of(document, include_str!("html.typ"), vec![("report.css", style)])?;
    let page: HtmlDocument = typst::compile(&world).output.map_err(failed)?;
    let html = typst_html::html(&page, &HtmlOptions { pretty: true }).map_err(failed)?;
    // Typst would escape a script's text.
    let script = concat!("<script>\n", include_str!("report.js"), "</script>");
    let mut html = html.replace("<report-script></report-script>", script);
    for element in document.elements.iter().chain(&document.details) {
        if let Element::Figure(Chart { name, svg, .. }) = element {
            html = html.replace(&format!("<chart-svg name=\"{name}\"></chart-svg>"), svg);
        }
    }
    Ok(html)
}

/// A chart as a page of its size, for LaTeX; the same chart gives the same bytes.
///
/// # Errors
/// When Typst cannot set it.
pub fn chart_pdf(chart: &Chart) -> miette::Result<Vec<u8>> {
    const PAGE: &str = "#set page(width: auto, height: auto, margin: 0pt)\n\
                        #image(read(\"chart.svg\", encoding: none), format: \"svg\")";
    let world = ReportWorld::new(PAGE, vec![("chart.svg", printable(&chart.svg).into_bytes())])?;
    let page: PagedDocument = typst::compile(&world).output.map_err(failed)?;
    let options = PdfOptions { ident: Smart::Custom(chart.svg.clone()), ..PdfOptions::default() };
    typst_pdf::pdf(&page, &options).map_err(failed)
}

/// The PDF is no longer than this, as far as figures and tables can go.
const PAGES: usize = 6;
/// Rows of a table on its pages: three of them.
const ROWS: usize = 150;

/// The bytes of the PDF, with as many of the figures and tables as its pages hold; the same document gives the same bytes.
///
/// # Errors
/// When Typst cannot set the document.
pub fn pdf(mut document: Document) -> miette::Result<Vec<u8>> {
    document.shorten(ROWS);
    let pages = loop {
        let pages = set(&document)?;
        let beyond = pages.pages().len().saturating_sub(PAGES);
        if beyond == 0 || !document.leave_out(beyond) {
            break pages;
        }
    };
    let options = PdfOptions {
        ident: Smart::Custom(serde_json::to_string(&document).into_diagnostic()?),
        timestamp: datetime(&document.date).map(Timestamp::new_utc),
        ..PdfOptions::default()
    };
    // Typst cannot tag some documents with figures that move, by where their pages end: "internal error: parent group" and
    // "tags weren't properly closed", https://github.com/typst/typst/issues/8487 and 8776. Their pages are right.
    typst_pdf::pdf(&pages, &options)
        .or_else(|_| typst_pdf::pdf(&pages, &PdfOptions { tagged: false, ..options }))
        .map_err(failed)
}

fn set(document: &Document) -> miette::Result<PagedDocument> {
    let world = ReportWorld::of(document, include_str!("pdf.typ"), Vec::new())?;
    typst::compile(&world).output.map_err(failed)
}

fn failed(errors: impl Deref<Target = [SourceDiagnostic]>) -> miette::Report {
    miette!("cannot set the report: {}", errors.iter().map(|error| &error.message).join("; "))
}

/// `2026-11-21T07:30:00Z`
fn datetime(text: &str) -> Option<Datetime> {
    let at: toml::value::Datetime = text.parse().ok()?;
    let (date, time) = (at.date?, at.time?);
    Datetime::from_ymd_hms(date.year.into(), date.month, date.day, time.hour, time.minute, time.second?)
}

/// Typst's functions.
static LIBRARY: LazyLock<LazyHash<Library>> = LazyLock::new(|| {
    LazyHash::new(Library::builder().with_features([Feature::Html].into_iter().collect()).build())
});

/// The fonts of the charts, and one for commands.
static FONTS: LazyLock<Vec<Font>> = LazyLock::new(|| {
    let files = font_files().into_iter().chain([dejavu::sans_mono::regular()]);
    files.flat_map(|file| Font::iter(Bytes::new(file))).collect()
});

static BOOK: LazyLock<LazyHash<FontBook>> =
    LazyLock::new(|| LazyHash::new(FontBook::from_fonts(FONTS.iter())));

/// The files that Typst may read: no disk, no network, no clock.
struct ReportWorld {
    template: Source,
    files: Vec<(FileId, Bytes)>,
}

impl ReportWorld {
    /// With the document as `report.json`, beside other files.
    fn of(document: &Document, template: &str, mut files: Vec<(&str, Vec<u8>)>) -> miette::Result<Self> {
        let report = printable(&serde_json::to_string(document).into_diagnostic()?).into_bytes();
        files.push(("report.json", report));
        Self::new(template, files)
    }

    fn new(template: &str, files: Vec<(&str, Vec<u8>)>) -> miette::Result<Self> {
        let file = |name: &str| -> miette::Result<FileId> {
            let path = VirtualPath::new(name).into_diagnostic().wrap_err("the name of a template file")?;
            Ok(FileId::new(RootedPath::new(VirtualRoot::Project, path)))
        };
        let read = |(name, bytes): (&str, Vec<u8>)| Ok((file(name)?, Bytes::new(bytes)));
        Ok(Self {
            template: Source::new(file("template.typ")?, template.into()),
            files: files.into_iter().map(read).collect::<miette::Result<_>>()?,
        })
    }
}

impl World for ReportWorld {
    fn library(&self) -> &LazyHash<Library> {
        &LIBRARY
    }

    fn book(&self) -> &LazyHash<FontBook> {
        &BOOK
    }

    fn main(&self) -> FileId {
        self.template.id()
    }

    fn source(&self, id: FileId) -> FileResult<Source> {
        if id == self.template.id() { Ok(self.template.clone()) } else { Err(not_found(id)) }
    }

    fn file(&self, id: FileId) -> FileResult<Bytes> {
        let file = self.files.iter().find(|(file, _)| *file == id);
        file.map(|(_, bytes)| bytes.clone()).ok_or_else(|| not_found(id))
    }

    fn font(&self, index: usize) -> Option<Font> {
        FONTS.get(index).cloned()
    }

    fn today(&self, _offset: Option<Duration>) -> Option<Datetime> {
        None
    }
}

fn not_found(id: FileId) -> FileError {
    FileError::NotFound(id.get().vpath().get_with_slash().into())
}

#[cfg(test)]
#[path = "typeset_tests.rs"]
mod tests;
