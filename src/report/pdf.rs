//! The document as a PDF, set by Typst. Its text reaches the template as data (`report.json`), so
//! nothing a user writes is read as markup.

use miette::{IntoDiagnostic, WrapErr, miette};
use typst::diag::{FileError, FileResult, SourceDiagnostic};
use typst::foundations::{Bytes, Datetime, Duration, Smart};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook};
use typst::utils::LazyHash;
use typst::{Library, LibraryExt, World};
use typst_kit::fonts::{self, FontStore};
use typst_layout::PagedDocument;
use typst_pdf::{PdfOptions, Timestamp};

use super::charts::font_files;
use super::document::Document;

const TEMPLATE: &str = include_str!("template.typ");

/// The bytes of the PDF; the same document gives the same bytes.
///
/// # Errors
/// When Typst cannot set the document.
pub fn render(document: &Document) -> miette::Result<Vec<u8>> {
    let report = serde_json::to_vec(document).into_diagnostic()?;
    let ident = String::from_utf8_lossy(&report).into_owned();
    let world = ReportWorld::new(report)?;
    let pages: PagedDocument = typst::compile(&world).output.map_err(|errors| failed(&errors))?;
    let options = PdfOptions {
        ident: Smart::Custom(ident),
        timestamp: datetime(&document.date).map(Timestamp::new_utc),
        ..PdfOptions::default()
    };
    typst_pdf::pdf(&pages, &options).map_err(|errors| failed(&errors))
}

fn failed(errors: &[SourceDiagnostic]) -> miette::Report {
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    miette!("cannot set report.pdf: {}", messages.join("; "))
}

/// `2026-11-21T07:30:00Z`
fn datetime(text: &str) -> Option<Datetime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u8>().ok();
    Datetime::from_ymd_hms(
        text.get(0..4)?.parse().ok()?,
        number(5, 7)?,
        number(8, 10)?,
        number(11, 13)?,
        number(14, 16)?,
        number(17, 19)?,
    )
}

/// The two files and the fonts that Typst may read: no disk, no network, no clock.
struct ReportWorld {
    library: LazyHash<Library>,
    fonts: FontStore,
    template: Source,
    data: (FileId, Bytes),
}

impl ReportWorld {
    fn new(report: Vec<u8>) -> miette::Result<Self> {
        let file = |name: &str| -> miette::Result<FileId> {
            let path = VirtualPath::new(name).into_diagnostic().wrap_err("the name of a template file")?;
            Ok(FileId::new(RootedPath::new(VirtualRoot::Project, path)))
        };
        let mut fonts = FontStore::new();
        fonts.extend(fonts::embedded());
        for data in font_files() {
            fonts.extend(Font::iter(Bytes::new(data)).map(|font| {
                let info = font.info().clone();
                (font, info)
            }));
        }
        Ok(Self {
            library: LazyHash::new(Library::default()),
            fonts,
            template: Source::new(file("template.typ")?, TEMPLATE.into()),
            data: (file("report.json")?, Bytes::new(report)),
        })
    }
}

impl World for ReportWorld {
    fn library(&self) -> &LazyHash<Library> {
        &self.library
    }

    fn book(&self) -> &LazyHash<FontBook> {
        self.fonts.book()
    }

    fn main(&self) -> FileId {
        self.template.id()
    }

    fn source(&self, id: FileId) -> FileResult<Source> {
        if id == self.template.id() { Ok(self.template.clone()) } else { Err(not_found(id)) }
    }

    fn file(&self, id: FileId) -> FileResult<Bytes> {
        if id == self.data.0 { Ok(self.data.1.clone()) } else { Err(not_found(id)) }
    }

    fn font(&self, index: usize) -> Option<Font> {
        self.fonts.font(index)
    }

    fn today(&self, _offset: Option<Duration>) -> Option<Datetime> {
        None
    }
}

fn not_found(id: FileId) -> FileError {
    FileError::NotFound(id.get().vpath().get_with_slash().into())
}
