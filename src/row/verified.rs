//! [`Record`]: the outcome of a verification, kept beside results for their report.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::common::files::write_whole;

const FILE: &str = "verify.json";

/// What one build on one device came to with one reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// The name of the reference's folder, and the settings that were not its own.
    pub reference: String,
    pub settings: Vec<String>,
    /// The maker's name of the device.
    pub device: String,
    /// Hash of the sources and the profile of the program.
    pub build: String,
    pub commit: String,
    /// UTC, RFC 3339.
    pub date: String,
    /// Quantities that pass, of so many.
    pub passed: usize,
    pub of: usize,
}

impl Record {
    /// The records of a results folder; none where nothing was verified.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn all(folder: &Path) -> io::Result<Vec<Self>> {
        match fs::read(folder.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text).map_err(Into::into),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Adds records to those of a results folder; of the same verification the new one stays.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn add(folder: &Path, new: Vec<Self>) -> io::Result<()> {
        let mut all = Self::all(folder)?;
        for record in new {
            let same = |other: &Self| {
                (&other.reference, &other.settings, &other.device, &other.build)
                    == (&record.reference, &record.settings, &record.device, &record.build)
            };
            // The later one counts.
            if all.iter().any(|other| same(other) && other.date > record.date) {
                continue;
            }
            all.retain(|other| !same(other));
            all.push(record);
        }
        all.sort();
        let mut text = serde_json::to_string_pretty(&all).expect("records are plain data");
        text.push('\n');
        write_whole(folder, Some(FILE), text.as_bytes())
    }
}
