//! [`merge`]: puts results of one recipe from several machines into one folder.
//!
//! The name of a row's file identifies cell, device and process, so folders merge file by file. Files are copied as they
//! are, and the merged folders do not change.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use itertools::Itertools;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde_json::Value;

use super::progress::Label;
use super::results::{recipe_of, resolve_graphs};
use super::row_files::read_row;
use super::store::{RECIPE, ROWS};
use crate::common::files::write_whole;
use crate::common::text::counted;
use crate::device::trace;
use crate::recipe::{Recipe, Source};
use crate::row::Row;
use crate::verify::Record;

/// Name of the folder for results of several devices.
const SEVERAL: &str = "merged";
/// Most conflicts that an error lists.
const LISTED: usize = 5;

/// Which of two rows of the same cell, device and process counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// The one measured last
    Newest,
    /// The one in the folder named first
    First,
}

/// The result of a merge.
#[derive(Debug)]
pub struct Merged {
    pub folder: PathBuf,
    /// For the user.
    pub notices: Vec<String>,
}

/// A results folder to merge.
struct Part {
    folder: PathBuf,
    source: Source,
    /// The names of the recipe's folder and of the device's.
    names: [String; 2],
}

/// The file of a row.
struct Found<'a> {
    part: &'a Part,
    bytes: Vec<u8>,
    /// `None` for another version, which this one cannot read.
    row: Option<Row>,
    date: String,
}

/// Copies the rows of results folders of one recipe, with their traces, into `<into>/<recipe>/<device>`, or into
/// `<into>/<recipe>/merged` if the folders belong to several devices. Rows that are already there take part. The row of a
/// skipped cell gives way to any other. Damaged rows stay where they are.
///
/// # Errors
/// When the folders belong to different recipes, two rows of the same cell and device differ without `keep`, or a file cannot
/// be read or written. Nothing is written before everything is read.
pub fn merge(folders: &[PathBuf], into: &Path, keep: Option<Keep>) -> Result<Merged> {
    let mut parts: Vec<Part> = folders.iter().map(|folder| Part::open(folder)).try_collect()?;
    let [recipe, device] = parts[0].names.clone();
    let device = if parts.iter().all(|part| part.names[1] == device) { &device } else { SEVERAL };
    let folder = into.join(recipe).join(device);
    if folder.join(RECIPE).is_file() {
        parts.push(Part::open(&folder)?);
    }
    require_one_recipe(&parts)?;
    let (chosen, mut notices) = choose_rows(&parts, keep)?;
    write_merged(&folder, &parts, &chosen)?;
    let (rows, folders) = (counted(chosen.len(), "row"), counted(parts.len(), "folder"));
    notices.push(format!("{rows} of {folders} are in {}", folder.display()));
    Ok(Merged { folder, notices })
}

fn require_one_recipe(parts: &[Part]) -> Result<()> {
    let same = |part: &&Part| part.source.text == parts[0].source.text;
    if let Some(other) = parts.iter().filter(same).find(|part| part.names[0] != parts[0].names[0]) {
        return Err(miette!(
            help = format!(
                "a results folder is <results>/<recipe>/<device>: copy the second one into a folder called `{}`",
                parts[0].names[0]
            ),
            "{} and {} have the same recipe, and the folders around them other names",
            parts[0].folder.display(),
            other.folder.display()
        ));
    }
    if let Some(other) = parts.iter().find(|part| !same(part)) {
        return Err(miette!(
            help = "merge folders of one recipe, whose copies recipe.toml are the same; `runner compare` sets results of \
                    two recipes side by side",
            "{} and {} hold results of two recipes",
            parts[0].folder.display(),
            other.folder.display()
        ));
    }
    Ok(())
}

/// The row of each file name that counts, and what the user should know.
fn choose_rows(parts: &[Part], keep: Option<Keep>) -> Result<(BTreeMap<String, Found<'_>>, Vec<String>)> {
    let (mut chosen, mut notices, mut conflicts) = (BTreeMap::new(), Vec::new(), Vec::new());
    for part in parts {
        for (name, found) in part.rows(&mut notices)? {
            let Some(had) = chosen.remove(&name) else {
                chosen.insert(name, found);
                continue;
            };
            let (better, conflict) = choose(had, found, keep);
            if let Some(with) = conflict {
                // The name of a cell takes its whole recipe to find.
                let named = (conflicts.len() < LISTED).then(|| cell_of(&better, &parts[0]));
                let folders = [better.part, with].map(|part| part.folder.display());
                conflicts.push(named.map(|cell| format!("{cell}: {} and {}", folders[0], folders[1])));
            }
            chosen.insert(name, better);
        }
    }
    if !conflicts.is_empty() {
        let more = conflicts.len().saturating_sub(LISTED);
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        return Err(miette!(
            help = "nothing was written: say --keep newest, or --keep first for the rows of the folder named first",
            "{} of the same cell on the same device differ:\n{}{more}",
            if conflicts.len() == 1 {
                "rows".to_string()
            } else {
                format!("{} pairs of rows", conflicts.len())
            },
            conflicts.iter().flatten().join("\n")
        ));
    }
    Ok((chosen, notices))
}

fn write_merged(folder: &Path, parts: &[Part], chosen: &BTreeMap<String, Found<'_>>) -> Result<()> {
    let write = |part: &str, name: &str, bytes: &[u8]| {
        let folder = folder.join(part);
        fs::create_dir_all(&folder)
            .and_then(|()| write_whole(&folder, Some(name), bytes))
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", folder.join(name).display()))
    };
    let made = fs::create_dir_all(folder.join(ROWS)).into_diagnostic();
    made.wrap_err_with(|| format!("cannot make {}", folder.join(ROWS).display()))?;
    write("", RECIPE, parts[0].source.text.as_bytes())?;
    for (name, found) in chosen {
        if found.part.folder == folder {
            continue;
        }
        write(ROWS, name, &found.bytes)?;
        let of = |folder: &Path| trace::path(folder, name.strip_suffix(".json").unwrap_or(name));
        let merged = of(folder);
        match fs::read(of(&found.part.folder)) {
            Ok(trace) => {
                let file = merged.file_name().expect("a path ends with the file's name");
                write(trace::FOLDER, &file.to_string_lossy(), &trace)?;
            }
            // The trace of an earlier row says nothing of this one.
            Err(_) => _ = fs::remove_file(merged),
        }
    }
    for part in parts {
        let verified = Record::all(&part.folder).and_then(|records| match records.is_empty() {
            true => Ok(()),
            false => Record::add(folder, records),
        });
        verified.into_diagnostic().wrap_err_with(|| {
            format!("cannot add what was verified in {} to {}", part.folder.display(), folder.display())
        })?;
    }
    Ok(())
}

impl Part {
    fn open(folder: &Path) -> Result<Self> {
        let source = recipe_of(folder)?;
        let absolute = fs::canonicalize(folder)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot read {}", folder.display()))?;
        let name = |path: Option<&Path>| {
            path.and_then(Path::file_name)
                .map_or_else(|| "recipe".into(), |name| name.to_string_lossy().into_owned())
        };
        let names = [name(absolute.parent()), name(Some(&absolute))];
        Ok(Self { folder: folder.to_path_buf(), source, names })
    }

    /// Its rows, by the names of their files.
    fn rows(&self, notices: &mut Vec<String>) -> Result<BTreeMap<String, Found<'_>>> {
        let folder = self.folder.join(ROWS);
        let mut read = || -> std::io::Result<BTreeMap<String, Found>> {
            let mut all = BTreeMap::new();
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
                if path.extension().is_none_or(|extension| extension != "json") {
                    continue;
                }
                // A folder, say, which has the name of a row, or a link to nothing.
                if !path.is_file() {
                    notices.push(format!("{} stays where it is: it is no file", path.display()));
                    continue;
                }
                let bytes = fs::read(&path)?;
                match read_row(&path, &bytes) {
                    Ok(row) => {
                        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                        let date = value.pointer("/environment/date").and_then(Value::as_str);
                        let date = date.unwrap_or_default().to_string();
                        all.insert(name.to_string(), Found { part: self, bytes, row, date });
                    }
                    Err(why) => notices.push(format!("{} stays where it is: {why}", path.display())),
                }
            }
            Ok(all)
        };
        let help = "check that the folder exists and that you may read it";
        read().map_err(|e| miette!(help = help, "cannot read the rows in {}: {e}", folder.display()))
    }
}

/// The row that counts, and the folder of the other if the two conflict.
fn choose<'a>(had: Found<'a>, found: Found<'a>, keep: Option<Keep>) -> (Found<'a>, Option<&'a Part>) {
    let ran = |of: &Found| of.row.as_ref().is_none_or(|row| row.worth().0);
    let newer = found.date > had.date;
    match (ran(&had), ran(&found), keep) {
        (true, false, _) => (had, None),
        (false, true, _) => (found, None),
        (false, false, _) | (_, _, Some(Keep::Newest)) => (if newer { found } else { had }, None),
        (_, _, Some(Keep::First)) => (had, None),
        (true, true, None) => {
            let same = had.bytes == found.bytes || (had.row.is_some() && had.row == found.row);
            let other = found.part;
            (had, (!same).then_some(other))
        }
    }
}

/// `cell 2/4 train.batch_size=2`, or the name of a row whose cell is not in the recipe.
fn cell_of(found: &Found, part: &Part) -> String {
    let Some(row) = &found.row else { return "a row of another version".into() };
    let on_cpu = row.is_on_cpu();
    let position = |recipe: &mut Recipe| {
        resolve_graphs(recipe, std::slice::from_ref(row));
        let known_by = recipe.apart_from_device();
        let wanted = known_by(row.settings());
        recipe.cells.iter().position(|cell| known_by(cell.settings()) == wanted)
    };
    let label = Recipe::parse_finished(&part.source, on_cpu).ok().and_then(|mut recipe| {
        position(&mut recipe).map(|position| Label::of(&recipe)[position].to_string())
    });
    let label = label.unwrap_or_else(|| format!("the row {}", row.name()));
    if row.repeat > 1 { format!("{label}, process {}", row.repeat) } else { label }
}
