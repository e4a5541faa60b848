//! [`Server`]: a Hub on this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::common::locked;
use crate::common::text::hex;
use crate::params::hub::Hub;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A Hub on this machine with one model or data set, `me/small`.
#[derive(Clone, Default)]
pub struct Server {
    pub files: Arc<BTreeMap<&'static str, Vec<u8>>>,
    /// What it was asked for: path, and the first byte.
    pub asked: Arc<Mutex<Vec<(String, usize)>>>,
    /// After how many bytes of a body the next connection breaks; each break is used once.
    pub breaks: Arc<Mutex<Vec<usize>>>,
    /// Weights are sent with one byte changed.
    pub damages: Arc<Mutex<bool>>,
    pub needs_token: bool,
    pub is_data_set: bool,
}

impl Server {
    pub fn new(files: &[(&'static str, Vec<u8>)]) -> Self {
        Self { files: Arc::new(files.iter().cloned().collect()), ..Self::default() }
    }

    /// The Hub that reaches it, with a cache of its own.
    pub fn start(&self, cache: &Path) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that leaves early is no matter of the server.
                let _ = server.answer(stream.unwrap());
            }
        });
        Hub { cache: Some(cache.into()), endpoint, token: None, offline: None }
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let path = lines.next().unwrap()?.split(' ').nth(1).unwrap().to_string();
        let (mut from, mut token) = (0, false);
        for line in lines {
            let line = line?.to_lowercase();
            if line.is_empty() {
                break;
            }
            from = line
                .strip_prefix("range: bytes=")
                .map_or(from, |range| range.trim_end_matches('-').parse().unwrap());
            token |= line == "authorization: bearer secret";
        }
        locked(&self.asked).push((path.clone(), from));
        if self.needs_token && !token {
            return stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nX-Error-Code: GatedRepo\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let repository = if self.is_data_set { "datasets/me/small" } else { "me/small" };
        let list =
            format!("/api/{}/me/small/revision/main", if self.is_data_set { "datasets" } else { "models" });
        let body = match path.strip_prefix(&list) {
            Some(_) => Some(self.list()),
            None => {
                let file = path.strip_prefix(&format!("/{repository}/resolve/{COMMIT}/"));
                file.and_then(|name| self.file(name))
            }
        };
        let Some(body) = body else {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nX-Error-Code: RepoNotFound\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        };
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let body = &body[from..];
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
        let is_file = !path.starts_with("/api");
        let end = if is_file { locked(&self.breaks).pop() } else { None };
        stream.write_all(&body[..end.unwrap_or(body.len()).min(body.len())])
    }

    fn file(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = self.files.get(name)?.clone();
        if *locked(&self.damages) {
            bytes[0] ^= 1;
        }
        Some(bytes)
    }

    fn list(&self) -> Vec<u8> {
        let entry = |(name, bytes): (&&str, &Vec<u8>)| {
            let lfs = name
                .ends_with(if self.is_data_set { ".parquet" } else { ".safetensors" })
                .then(|| json!({"sha256": hex(&Sha256::digest(bytes)), "size": bytes.len()}));
            let git = format!("{:040x}", bytes.len());
            json!({"rfilename": name, "size": bytes.len(), "blobId": git, "lfs": lfs})
        };
        json!({"sha": COMMIT, "siblings": self.files.iter().map(entry).collect::<Vec<_>>()})
            .to_string()
            .into_bytes()
    }
}
