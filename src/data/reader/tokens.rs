//! [`TokenFile`]: tokens that llm.c, LLMQ and nanoGPT write.
//!
//! | program | header | tokens | source |
//! |---|---|---|---|
//! | llm.c | 256 int32: 20240520, 1, count | uint16 | `dev/data/data_common.py` |
//! | llm.c | 256 int32: 20240801, 7, count | uint32 | `dev/data/data_common.py` |
//! | LLMQ | 1024 bytes: `BIN.TOK\n`, int32: 2, 4, count, vocabulary, 1 if masked | int32, then a bit for each token | `scripts/tokenize_data.py` |
//! | nanoGPT | none | uint16 | `data/openwebtext/prepare.py` |

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::lines::cannot_read;
use super::{DataError, Part};
use crate::data::record::{Record, Tokens};

/// Bytes of a header, of any program that writes one.
const HEADER: u64 = 1024;
const LLMQ: &[u8] = b"BIN.TOK\n";
/// With which PyTorch's files begin.
const ZIP: &[u8] = b"PK\x03\x04";
/// Of llm.c: magic number, version, and bytes of a token.
const LLM_C: [(i32, i32, u64); 2] = [(20_240_520, 1, 2), (20_240_801, 7, 4)];
/// Tokens of one record: the file does not say where its texts end. A multiple of 8, so that a record's bits begin with a
/// byte.
const CHUNK: u64 = 1 << 16;

/// Where the tokens of a file are.
#[derive(Debug, PartialEq)]
struct Layout {
    /// Of the first token.
    offset: u64,
    token_bytes: u64,
    count: u64,
    /// Whether a bit for each token follows: 1 where it is learned.
    is_masked: bool,
}

pub struct TokenFile {
    path: PathBuf,
    layout: Layout,
    tokens: BufReader<File>,
    masks: BufReader<File>,
    done: u64,
}

impl TokenFile {
    /// # Errors
    /// A file that cannot be read, is cut, or is none of these.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let cannot = |e: std::io::Error| cannot_read(path, &e);
        let mut file = File::open(path).map_err(cannot)?;
        let size = file.metadata().map_err(cannot)?.len();
        let mut begin = Vec::new();
        (&mut file).take(HEADER).read_to_end(&mut begin).map_err(cannot)?;
        let layout =
            layout(&begin, size).map_err(|reason| DataError::new(format!("{}: {reason}", path.display())))?;
        let at = |offset: u64| {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(offset))?;
            Ok(BufReader::with_capacity(1 << 18, file))
        };
        let tokens = at(layout.offset).map_err(cannot)?;
        let masks = at(layout.offset + layout.count * layout.token_bytes).map_err(cannot)?;
        Ok(Self { path: path.to_path_buf(), layout, tokens, masks, done: 0 })
    }

    fn chunk(&mut self, count: u64) -> std::io::Result<Tokens> {
        let mut bytes = vec![0; (count * self.layout.token_bytes) as usize];
        self.tokens.read_exact(&mut bytes)?;
        let ids = match self.layout.token_bytes {
            2 => bytes.chunks_exact(2).map(|id| u16::from_le_bytes([id[0], id[1]]).into()).collect(),
            _ => bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])).collect(),
        };
        let mut learned = vec![true; count as usize];
        if self.layout.is_masked {
            let mut bits = vec![0; count.div_ceil(8) as usize];
            self.masks.read_exact(&mut bits)?;
            for (index, learned) in learned.iter_mut().enumerate() {
                *learned = bits[index / 8] >> (index % 8) & 1 == 1;
            }
        }
        Ok(Tokens { ids, learned })
    }
}

/// `begin`: the first bytes of a file of `size` bytes.
fn layout(begin: &[u8], size: u64) -> Result<Layout, String> {
    let number = |index: usize| {
        let bytes = begin.get(index * 4..index * 4 + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    };
    let count = |index: usize| number(index).map_or(0, |count| u64::from(count as u32));
    let layout = if begin.starts_with(LLMQ) {
        let (Some(version @ (1 | 2)), Some(4)) = (number(2), number(3)) else {
            return Err(
                "it is neither version 1 nor version 2 of LLMQ's files, or has not 4 bytes for each token"
                    .into(),
            );
        };
        let is_masked = version == 2 && number(6) == Some(1);
        Layout { offset: HEADER, token_bytes: 4, count: count(4), is_masked }
    } else if let Some((magic, version, token_bytes)) =
        LLM_C.into_iter().find(|(magic, ..)| number(0) == Some(*magic))
    {
        if number(1) != Some(version) {
            return Err(format!(
                "it is no file of llm.c of version {version}, though it begins with {magic}"
            ));
        }
        Layout { offset: HEADER, token_bytes, count: count(2), is_masked: false }
    } else if begin.starts_with(ZIP) {
        return Err("it is an archive, as PyTorch writes weights, and no file of tokens".into());
    } else if size.is_multiple_of(2) {
        Layout { offset: 0, token_bytes: 2, count: size / 2, is_masked: false }
    } else {
        return Err(format!(
            "it has no header of llm.c or LLMQ, and its {size} bytes are no tokens of 2 bytes as nanoGPT writes them"
        ));
    };
    let masks = if layout.is_masked { layout.count.div_ceil(8) } else { 0 };
    let expected = layout.offset + layout.count * layout.token_bytes + masks;
    match size == expected {
        true => Ok(layout),
        false => Err(format!(
            "it has {size} bytes, and {} tokens by its header need {expected}: it is cut, or was not finished",
            layout.count
        )),
    }
}

impl Iterator for TokenFile {
    type Item = Result<Part, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let count = CHUNK.min(self.layout.count - self.done);
        if count == 0 {
            return None;
        }
        let number = self.done as usize + 1;
        self.done += count;
        let chunk = self.chunk(count).map_err(|e| cannot_read(&self.path, &e));
        Some(chunk.map(|tokens| Part { number, record: Ok(Some(Record::Tokens(tokens))) }))
    }
}
