//! [`Store`]: the tokens of all samples, one after the other and uncut, in memory or in a file of the cache.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flate2::Crc;
use memmap2::Mmap;
use rayon::prelude::*;

use super::encoder::Encoded;
use super::token::{Token, given};

/// Begins a file of tokens. A change of what its bytes mean changes it.
const MAGIC: u64 = u64::from_le_bytes(*b"tokens 1");
/// Numbers before the places: [`MAGIC`], how many places and tokens there are, records that were left out as broken and as
/// duplicates, and a CRC-32 of these five and of all that follows.
const HEADER: usize = 6;
/// Bytes that a core sums at once.
const CHUNK: usize = 1 << 20;
/// Stands for no label in a [`Place`].
const NO_LABEL: u32 = u32::MAX;

/// Where a sample ends, and what of it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Tokens of all samples up to its end.
    pub end: usize,
    /// How many of its tokens come before the first learned one.
    pub given: usize,
    pub last_label: Option<u32>,
}

/// As it stands in a file.
type Packed = [u64; 2];

impl Place {
    fn packed(self) -> Packed {
        let last_label = u64::from(self.last_label.unwrap_or(NO_LABEL));
        [self.end as u64, self.given as u64 | last_label << 32]
    }

    fn unpacked([end, rest]: Packed) -> Self {
        let last_label = Some((rest >> 32) as u32).filter(|label| *label != NO_LABEL);
        Self { end: end as usize, given: rest as u32 as usize, last_label }
    }
}

/// See the module.
pub struct Store {
    content: Content,
    /// Records that could not be read or encoded, and were left out.
    pub broken: u64,
    /// Records that were left out because another split has them.
    pub duplicates: u64,
}

enum Content {
    Memory { places: Vec<Packed>, tokens: Vec<Token> },
    File { map: Mmap, places: usize },
}

impl Store {
    /// Without samples.
    pub fn empty() -> Self {
        Self { content: Content::Memory { places: Vec::new(), tokens: Vec::new() }, broken: 0, duplicates: 0 }
    }

    /// # Panics
    /// When it is of a file.
    pub fn push(&mut self, sample: &Encoded) {
        let Content::Memory { places, tokens } = &mut self.content else { panic!("a file is complete") };
        tokens.extend_from_slice(&sample.tokens);
        places.push(
            Place { end: tokens.len(), given: given(&sample.tokens), last_label: sample.last_label }.packed(),
        );
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.places().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn places(&self) -> &[Packed] {
        match &self.content {
            Content::Memory { places, .. } => places,
            Content::File { map, places } => bytemuck::cast_slice(&map[8 * HEADER..][..16 * places]),
        }
    }

    pub fn tokens(&self) -> &[Token] {
        match &self.content {
            Content::Memory { tokens, .. } => tokens,
            Content::File { map, places } => bytemuck::cast_slice(&map[8 * HEADER + 16 * places..]),
        }
    }

    /// Where a sample begins, and its place.
    pub fn place(&self, index: usize) -> (usize, Place) {
        let start = index.checked_sub(1).map_or(0, |before| self.places()[before][0] as usize);
        (start, Place::unpacked(self.places()[index]))
    }

    /// Maps a file that [`write`](Self::write) made; `None` where there is none, or it is not as it was written.
    pub fn open(path: &Path) -> Option<Self> {
        Self::map(path).filter(Self::is_intact)
    }

    /// The same without reading all of it: of a file that was written just now.
    pub fn map(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        // SAFETY: the mapping is read-only, and files of the cache are replaced by others, never changed or cut short.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        let header: &[u64] = bytemuck::cast_slice(map.get(..8 * HEADER)?);
        let &[MAGIC, places, tokens, broken, duplicates, _] = header else { return None };
        let bytes = places.checked_mul(16)?.checked_add(tokens.checked_mul(4)?)?;
        let is_whole = bytes.checked_add(8 * HEADER as u64)? == map.len() as u64;
        let content = Content::File { places: places as usize, map };
        is_whole.then_some(Self { content, broken, duplicates })
    }

    fn is_intact(&self) -> bool {
        let Content::File { map, .. } = &self.content else { return true };
        let (header, content) = map.split_at(8 * HEADER);
        let (header, checksum) = header.split_at(8 * (HEADER - 1));
        checksum_of(header, content).to_le_bytes() == checksum
    }

    /// Writes what [`open`](Self::open) reads.
    pub fn write(&self, file: &mut File) -> io::Result<()> {
        let (places, tokens) = (self.places(), self.tokens());
        let header = [MAGIC, places.len() as u64, tokens.len() as u64, self.broken, self.duplicates];
        let [places, tokens] = [bytemuck::cast_slice(places), bytemuck::cast_slice(tokens)];
        let mut checksum = crc(bytemuck::cast_slice(&header));
        [places, tokens].into_iter().for_each(|part| checksum.combine(&crc_of(part)));
        file.write_all(bytemuck::cast_slice(&header))?;
        file.write_all(&u64::from(checksum.sum()).to_le_bytes())?;
        file.write_all(places)?;
        file.write_all(tokens)
    }
}

/// The checksum of a file with this header before these bytes.
fn checksum_of(header: &[u8], bytes: &[u8]) -> u64 {
    let mut checksum = crc(header);
    checksum.combine(&crc_of(bytes));
    u64::from(checksum.sum())
}

/// The CRC-32 of many bytes, which the cores share.
fn crc_of(bytes: &[u8]) -> Crc {
    let parts = bytes.par_chunks(CHUNK).map(crc);
    parts.reduce(Crc::new, |mut before, after| {
        before.combine(&after);
        before
    })
}

fn crc(bytes: &[u8]) -> Crc {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
