//! Fetches the files of a model or data set into the cache: each goes on where an earlier try ended, and counts only when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use ureq::Agent;

use super::remote::{RemoteFile, Revision, agent, get, revision};
use super::{Hub, HubName, Needs, cache, data_set};
use crate::common::files;

/// Fetches what is needed of a model or data set into its folder in the cache; returns the folder of the snapshot in which it
/// is.
///
/// # Errors
/// What the Hub lacks or refuses, and what did not come; what came stays for the next try.
pub fn fetch(hub: &Hub, repository: &Path, name: &HubName, needs: Needs) -> Result<PathBuf, String> {
    let agent = agent();
    let Revision { sha, files, folder } = revision(&agent, hub, name, needs)?;
    let is_safe = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_safe(&sha) || files.iter().any(|file| !cache::is_within(&file.name) || !is_safe(file.oid())) {
        return Err(format!("{name}: {} does not answer as the Hub does; correct HF_ENDPOINT", hub.endpoint));
    }
    let bar = progress(name, files.iter().map(|file| file.size).sum());
    for file in &files {
        let blob = repository.join("blobs").join(file.oid());
        if fs::metadata(&blob).is_ok_and(|found| found.len() == file.size) {
            bar.inc(file.size);
        } else {
            whole(&agent, hub, name, (&sha, file), &blob, &bar)?;
        }
        cache::place(repository, &sha, &file.name, file.oid())?;
    }
    bar.finish_and_clear();
    cache::remember(repository, &name.revision, &sha)?;
    let snapshot = repository.join("snapshots").join(sha);
    if matches!(needs, Needs::Records(_)) {
        data_set::remember(&snapshot, &folder)?;
    }
    Ok(snapshot.join(folder))
}

fn progress(name: &HubName, bytes: u64) -> ProgressBar {
    let style = "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta}";
    let bar = ProgressBar::new(bytes).with_style(ProgressStyle::with_template(style).expect("a template"));
    bar.with_message(format!("fetching {name}"))
}

/// Fetches one file of a commit into its blob. One process fetches a blob at a time; another waits, and finds it.
fn whole(
    agent: &Agent,
    hub: &Hub,
    name: &HubName,
    (commit, file): (&str, &RemoteFile),
    blob: &Path,
    bar: &ProgressBar,
) -> Result<(), String> {
    let part = blob.with_extension("incomplete");
    let at_part = |e: io::Error| cache::unwritable(&part, &e);
    fs::create_dir_all(blob.parent().expect("of a file")).map_err(at_part)?;
    let mut held = OpenOptions::new().append(true).read(true).create(true).open(&part).map_err(at_part)?;
    held.lock().map_err(at_part)?;
    if fs::metadata(blob).is_ok_and(|found| found.len() == file.size) {
        bar.inc(file.size);
        return Ok(());
    }
    let start = bar.position();
    let length = |held: &File| held.metadata().map(|found| found.len()).map_err(at_part);
    loop {
        let before = length(&held)?;
        if before >= file.size {
            break;
        }
        bar.set_position(start + before);
        let ended = more(agent, hub, name, (commit, file), &mut held, bar)?.map_err(at_part)?;
        let after = length(&held)?;
        if after <= before {
            return Err(format!(
                "{name}: the download of {} stopped after {after} of {} bytes ({ended}). What came is kept: run the command \
                 again",
                file.name, file.size
            ));
        }
    }
    bar.set_position(start + file.size);
    if !is_right(&part, file).map_err(at_part)? {
        fs::remove_file(&part).map_err(at_part)?;
        return Err(format!(
            "{name}: {} came damaged: its checksum or length is not the Hub's. It is deleted: run the command again",
            file.name
        ));
    }
    fs::rename(&part, blob).map_err(at_part)
}

/// Adds what the Hub sends of a file to the part that is there; why it ended, or why the part cannot be written.
fn more(
    agent: &Agent,
    hub: &Hub,
    name: &HubName,
    (commit, file): (&str, &RemoteFile),
    held: &mut File,
    bar: &ProgressBar,
) -> Result<io::Result<String>, String> {
    let from = held.metadata().map_or(0, |found| found.len());
    let path = format!("{}/resolve/{commit}/{}", name.page(), file.name);
    let mut answer = get(agent, hub, name, &path, from)?;
    // A server that does not continue sends all of it.
    let begins_anew = from > 0 && answer.status().as_u16() != 206;
    let mut body = answer.body_mut().as_reader();
    let mut buffer = vec![0; 1 << 20];
    let mut add = || {
        if begins_anew {
            held.set_len(0)?;
        }
        loop {
            match body.read(&mut buffer) {
                Ok(0) => return Ok("the connection ended".into()),
                Err(e) => return Ok(e.to_string()),
                Ok(bytes) => {
                    held.write_all(&buffer[..bytes])?;
                    bar.inc(bytes as u64);
                }
            }
        }
    };
    Ok(add())
}

/// Whether a file is whole, by its length, and by its SHA-256 where the Hub gives it: of large files, so of all weights.
fn is_right(path: &Path, file: &RemoteFile) -> io::Result<bool> {
    let is_whole = fs::metadata(path)?.len() == file.size;
    match file.sha256().filter(|_| is_whole) {
        Some(expected) => Ok(files::sha256(path)? == expected),
        None => Ok(is_whole),
    }
}
