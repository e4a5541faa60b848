//! [`Kind`]: what a data file is, which its ending says.

use std::path::Path;

/// What a data file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Documents with marks between them. A paragraph is a line.
    Text,
    /// Articles. A paragraph is a line that is no heading.
    WikiText,
    /// An object on each line.
    JsonLines,
    /// A list of objects, or an object on each line.
    Json,
    /// Fields with this byte between them, and their names in the first line.
    Csv(u8),
    Parquet,
    /// Tokens of another program.
    Tokens,
}

/// Endings and what they mean.
const KINDS: [(&str, Kind); 11] = [
    ("txt", Kind::Text),
    ("tokens", Kind::WikiText),
    ("raw", Kind::WikiText),
    ("jsonl", Kind::JsonLines),
    ("ndjson", Kind::JsonLines),
    ("jl", Kind::JsonLines),
    ("json", Kind::Json),
    ("csv", Kind::Csv(b',')),
    ("tsv", Kind::Csv(b'\t')),
    ("parquet", Kind::Parquet),
    ("bin", Kind::Tokens),
];

/// Ends the name of a compressed file.
const GZIP: &str = "gz";

/// Files beside data and models that describe them.
const DESCRIPTIONS: [&str; 11] = [
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
];

impl Kind {
    /// `None` for a file that is not read.
    pub fn from_path(path: &Path) -> Option<Self> {
        let compressed = is_compressed(path);
        let ending = if compressed { ending(&path.with_extension("")) } else { ending(path) };
        let kind = KINDS.iter().find(|(own, _)| *own == ending).map(|(_, kind)| *kind);
        // Files of these kinds are read from several places.
        kind.filter(|kind| !compressed || !matches!(kind, Self::Parquet | Self::Tokens))
    }

    /// Endings of the files that are read, with dots.
    pub fn endings() -> String {
        format!(".{} (text, JSON and CSV also with .{GZIP})", KINDS.map(|(ending, _)| ending).join(", ."))
    }

    /// Whether it is text without records.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Text | Self::WikiText)
    }

    /// What its parts are counted in, in messages.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Text | Self::WikiText | Self::JsonLines | Self::Csv(_) => "line",
            Self::Json => "record",
            Self::Parquet => "row",
            Self::Tokens => "token",
        }
    }
}

/// Whether a file describes data or a model.
pub fn describes(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| DESCRIPTIONS.contains(&name))
}

/// Whether a file is compressed.
pub fn is_compressed(path: &Path) -> bool {
    ending(path) == GZIP
}

/// The ending of a path in lower case; empty without one.
pub fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}
