//! One safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes without
//! gaps. Everything the header says is checked against the file before it is believed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::Dtype;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde_json::Value;

use super::WeightsError;

/// Largest header that is read, as in the format's own library: 100 MB.
const MAX_HEADER: u64 = 100_000_000;
const METADATA: &str = "__metadata__";

/// A mapped file and its tensors by name.
#[derive(Debug)]
pub struct TensorFile {
    pub path: PathBuf,
    pub tensors: BTreeMap<String, Entry>,
    map: Mmap,
}

/// Where a tensor lies in its file.
#[derive(Debug)]
pub struct Entry {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    range: Range<usize>,
}

/// A tensor as the header describes it.
#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    /// From the first byte after the header.
    data_offsets: (usize, usize),
}

impl TensorFile {
    /// Maps the file and reads its header.
    ///
    /// # Errors
    /// An unreadable file, or one whose header does not describe its bytes.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let read = |source| WeightsError::Read { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(read)?;
        // SAFETY: the mapping is read-only; a file must not be cut short while a run reads it, as
        // with every memory-mapped format.
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        let tensors =
            parse(&map).map_err(|message| WeightsError::Damaged { path: path.to_path_buf(), message })?;
        Ok(Self { path: path.to_path_buf(), tensors, map })
    }

    pub fn bytes(&self, entry: &Entry) -> &[u8] {
        &self.map[entry.range.clone()]
    }
}

fn parse(file: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(format!("it is cut short: {} bytes, less than the 8 of a header length", file.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER || length > rest.len() as u64 {
        return Err(format!(
            "its header is said to have {length} bytes, but only {} follow (at most {MAX_HEADER} are read); \
             it is cut short or not a safetensors file",
            rest.len()
        ));
    }
    let (header, data) = rest.split_at(length as usize);
    let Header(raw) =
        serde_json::from_slice(header).map_err(|e| format!("its header is not a table of tensors: {e}"))?;

    let data_start = 8 + header.len();
    let mut tensors = BTreeMap::new();
    for (name, value) in raw {
        if name == METADATA {
            continue;
        }
        let entry = entry(&name, value, data.len(), data_start)?;
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(format!("tensor {name} is described twice"));
        }
    }
    check_gapless(&tensors, data_start, data.len())?;
    Ok(tensors)
}

fn entry(name: &str, value: Value, data_len: usize, data_start: usize) -> Result<Entry, String> {
    let raw: RawEntry = serde_json::from_value(value)
        .map_err(|e| format!("tensor {name} needs dtype, shape and data_offsets: {e}"))?;
    let known: StrDeserializer<'_, ValueError> = raw.dtype.as_str().into_deserializer();
    let dtype = Dtype::deserialize(known)
        .map_err(|_| format!("tensor {name} has the unknown dtype \"{}\"", raw.dtype))?;
    let (start, end) = raw.data_offsets;
    if start > end || end > data_len {
        return Err(format!(
            "tensor {name} is said to lie at bytes {start}..{end} of {data_len}; the file is cut short or \
             its offsets are wrong"
        ));
    }
    let bits = raw.shape.iter().try_fold(dtype.bitsize(), |bits, n| bits.checked_mul(*n));
    if bits != (end - start).checked_mul(8) {
        return Err(format!(
            "tensor {name} has {} bytes, which is not the size of shape {:?} in {dtype:?}",
            end - start,
            raw.shape
        ));
    }
    Ok(Entry { dtype, shape: raw.shape, range: data_start + start..data_start + end })
}

/// Every byte after the header belongs to exactly one tensor.
fn check_gapless(
    tensors: &BTreeMap<String, Entry>,
    data_start: usize,
    data_len: usize,
) -> Result<(), String> {
    let mut order: Vec<_> = tensors.iter().map(|(name, entry)| (&entry.range, name)).collect();
    order.sort_by_key(|(range, _)| (range.start, range.end));
    let mut end = data_start;
    let mut before = None;
    for (range, name) in order {
        if range.start < end {
            let other: &String = before.unwrap_or(name);
            return Err(format!("tensors {other} and {name} overlap"));
        }
        if range.start > end {
            return Err(format!("{} bytes before tensor {name} belong to no tensor", range.start - end));
        }
        end = range.end;
        before = Some(name);
    }
    let rest = data_start + data_len - end;
    if rest > 0 { Err(format!("{rest} bytes at its end belong to no tensor")) } else { Ok(()) }
}

/// The header's keys in their order, with repetitions, which a map would hide.
struct Header(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a table")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Header(pairs))
            }
        }
        d.deserialize_map(Pairs)
    }
}
