//! [`Records`]: the records of files, one after the other.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::fit::{fitting, names};
use super::kind::Kind;
use super::rows::{Rows, Wanted, rows};
use super::shape::record;
use super::split::Keep;
use super::text::{Documents, paragraphs};
use super::tokens::TokenFile;
use super::{DataError, Part, Reading};
use crate::data::record::Record;
use crate::data::samples::SampleUnit;

/// What was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Records that cannot be read, with `data.skip_broken`.
    pub broken: usize,
    /// Records that a split behind this one (train, valid, test) has too.
    pub duplicates: usize,
}

/// The records of files, which are read as it goes on. It ends with its first error.
pub struct Records {
    files: std::vec::IntoIter<PathBuf>,
    reading: Reading,
    unit: SampleUnit,
    keep: Keep,
    /// Tokens of other programs may not be beyond it.
    vocab_size: Option<usize>,
    file: Option<FileParts>,
    /// Paragraphs that are read and not given yet.
    ready: VecDeque<Record>,
    left_out: LeftOut,
    ended: bool,
}

/// The file that is read.
struct FileParts {
    path: PathBuf,
    kind: Kind,
    parts: Box<dyn Iterator<Item = Result<Part, DataError>> + Send>,
    /// Parts that are read and not blank.
    read: usize,
    broken: usize,
    /// Where the first of them is, and why it is broken.
    first: Option<(usize, String)>,
}

/// The records of these files, in their order. `unit`: whether the records of text are its documents or its paragraphs.
pub fn open(files: Vec<PathBuf>, reading: &Reading, unit: SampleUnit) -> Records {
    Records {
        files: files.into_iter(),
        reading: reading.clone(),
        unit,
        keep: Keep::default(),
        vocab_size: None,
        file: None,
        ready: VecDeque::new(),
        left_out: LeftOut::default(),
        ended: false,
    }
}

impl Records {
    /// Those that are in memory already.
    pub fn in_memory(records: impl IntoIterator<Item = Record>) -> Self {
        let ready = records.into_iter().collect();
        Self { ready, ..open(Vec::new(), &Reading::default(), SampleUnit::Documents) }
    }

    /// Those of one split.
    #[must_use]
    pub fn kept_by(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// With tokens of a vocabulary of this size: a record with others is broken.
    #[must_use]
    pub fn within(self, vocab_size: usize) -> Self {
        Self { vocab_size: Some(vocab_size), ..self }
    }

    /// With its files in another order; before the first is read.
    #[must_use]
    pub fn in_order(mut self, order: impl FnOnce(&mut [PathBuf])) -> Self {
        order(self.files.as_mut_slice());
        self
    }

    /// What was left out so far; all of it at the end.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// The next record; `None` at the end of the files.
    fn read(&mut self) -> Result<Option<Record>, DataError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            let Some(file) = &mut self.file else {
                let Some(path) = self.files.next() else { return Ok(None) };
                self.file = Some(FileParts::open(path, &self.reading)?);
                continue;
            };
            let Some(part) = file.parts.next().transpose()? else {
                file.check(self.reading.skip_broken)?;
                self.left_out.broken += file.broken;
                self.file = None;
                continue;
            };
            let kind = file.kind;
            // A file that is refused is read to its end, to count what is broken.
            let is_refused = file.broken > 0 && !self.reading.skip_broken;
            if let Some(record) = file.count(part, self.vocab_size).filter(|_| !is_refused) {
                self.add(record, kind);
            }
        }
    }

    fn add(&mut self, record: Record, kind: Kind) {
        if !self.keep.is_of(&record) {
            return;
        }
        if !kind.is_plain() && self.keep.is_elsewhere(&record) {
            self.left_out.duplicates += 1;
            return;
        }
        match record {
            Record::Text(text) if kind.is_plain() && self.unit == SampleUnit::Paragraphs => {
                self.ready.extend(paragraphs(kind, &text).into_iter().map(Record::Text));
            }
            record => self.ready.push_back(record),
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FileParts {
    fn open(path: PathBuf, reading: &Reading) -> Result<Self, DataError> {
        let kind = Kind::from_path(&path).expect("a corpus has files of a kind");
        let (kind, parts): (_, Box<dyn Iterator<Item = _> + Send>) = match kind {
            Kind::Text | Kind::WikiText => (kind, Box::new(Documents::open(&path, kind)?)),
            Kind::Tokens => (kind, Box::new(TokenFile::open(&path)?)),
            _ => {
                let rows = rows(&path, Wanted::these(names(reading)))?;
                (rows.kind(), Box::new(columned(&path, rows, reading)?))
            }
        };
        Ok(Self { path, kind, parts, read: 0, broken: 0, first: None })
    }

    /// The record of a part, where it is one; the part is counted.
    fn count(&mut self, part: Part, vocab_size: Option<usize>) -> Option<Record> {
        let Part { number, record } = part;
        let record = record.and_then(|record| match (&record, vocab_size) {
            (Some(Record::Tokens(tokens)), Some(vocab_size)) => {
                match tokens.ids.iter().find(|id| **id as usize >= vocab_size) {
                    Some(id) => Err(format!(
                        "token {id} is beyond a vocabulary of {vocab_size}: another tokenizer made it; name that one in \
                         data.tokenizer, with the model that belongs to it"
                    )),
                    None => Ok(record),
                }
            }
            _ => Ok(record),
        });
        self.read += usize::from(!matches!(record, Ok(None)));
        match record {
            Ok(record) => record,
            Err(reason) => {
                self.broken += 1;
                self.first.get_or_insert((number, reason));
                None
            }
        }
    }

    /// Refuses a file at its end: one with broken records, and also where these may be left out, one without others.
    fn check(&self, skip_broken: bool) -> Result<(), DataError> {
        let Self { path, kind, read, broken, first, .. } = self;
        let Some((number, reason)) = first.as_ref().filter(|_| !skip_broken || broken == read) else {
            return Ok(());
        };
        let counted = match (*broken, *read) {
            (_, 1) => String::new(),
            (1, read) => format!(" (the only broken one of {read}; data.skip_broken = true leaves it out)"),
            (broken, read) if broken == read => format!(" (all {read} are broken)"),
            (broken, read) => {
                format!(" ({broken} of {read} are broken; data.skip_broken = true leaves them out)")
            }
        };
        let place = format!("{}, {} {number}", path.display(), kind.unit());
        Err(DataError::new(format!("{place}: {reason}{counted}")))
    }
}

/// The parts of a file with columns.
fn columned(
    path: &Path,
    rows: Rows,
    reading: &Reading,
) -> Result<impl Iterator<Item = Result<Part, DataError>> + Send + use<>, DataError> {
    let format = rows.names().filter(|names| !names.is_empty()).map(|names| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        fitting(reading, |name| names.contains(&name), &names)
    });
    let fail = |reason: String| DataError::new(format!("{}: {reason}", path.display()));
    let format = format.transpose().map_err(fail)?;
    let reading = reading.clone();
    Ok(rows.map(move |row| {
        let row = row?;
        let record = row.columns.and_then(|fields| record(&fields, format, &reading));
        Ok(Part { number: row.number, record })
    }))
}
