//! A folder of its own for each test, and the binary in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Two sizes at two levels, milliseconds each.
pub const TINY: &str = r#"title = "tiny"
[model]
kind = "swiglu"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
[train]
batch_size = 2
seq_len = 16
optimizer = { kind = "sgd", lr = 0.1 }
[measure]
repeats = 1
warmup = 1
steps = 3
[grid]
"train.batch_size" = [2, 4]
"checkpoint.level" = [0, 1]
"#;

/// 2 layers on generated text, well under a second.
pub const SMALL: &str = r#"title = "small"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 32
[data]
corpus = "generated"
size = "100 KiB"
vocab_size = 300
[train]
batch_size = 2
seq_len = 16
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 2
"#;

/// Three layers of odd sizes, tuned as these lines say.
macro_rules! tuned {
    ($lines:literal) => {
        concat!(
            r#"title = "tuned"
[model]
kind = "qwen2"
vocab_size = 307
hidden_size = 66
intermediate_size = 151
num_hidden_layers = 3
num_attention_heads = 3
num_key_value_heads = 1
max_position_embeddings = 64
tie_word_embeddings = true
[data]
corpus = "generated"
size = "30 KiB"
vocab_size = 307
[train]
batch_size = 3
seq_len = 47
optimizer = { kind = "adamw", lr = 1e-2 }
[measure]
repeats = 1
warmup = 1
steps = 5
[tuning]
"#,
            $lines
        )
    };
}
pub(crate) use tuned;

/// The recipe with each of these pieces, which is in it, replaced by another.
#[track_caller]
pub fn changed(recipe: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(recipe.to_string(), |recipe, (from, to)| {
        assert!(recipe.contains(from), "no `{from}` in:\n{recipe}");
        recipe.replace(from, to)
    })
}

/// Enough steps that a cell can be interrupted.
pub fn slow() -> String {
    changed(TINY, &[("steps = 3", "steps = 1000000")])
}

pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// With `recipe.toml` in it.
    pub fn new(recipe: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        place.write("recipe.toml", recipe);
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("the folder is writable");
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(runner());
        command
            .args(args)
            .current_dir(self.path())
            // Device locks of its own: tests do not wait for each other.
            .env("TMPDIR", self.path())
            .env("NO_COLOR", "1")
            // The same tests on every machine: `auto` is the CPU where no GPU is seen.
            .env("CUDA_VISIBLE_DEVICES", "")
            .stdin(Stdio::null());
        command
    }

    /// With the GPUs that the tests themselves see.
    pub fn command_on_gpu(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        match std::env::var_os("CUDA_VISIBLE_DEVICES") {
            Some(devices) => command.env("CUDA_VISIBLE_DEVICES", devices),
            None => command.env_remove("CUDA_VISIBLE_DEVICES"),
        };
        command
    }

    /// Runs to the end, with this machine's GPUs in sight.
    pub fn runner_on_gpu(&self, args: &[&str]) -> Ended {
        Ended::from(self.command_on_gpu(args).output().expect("the binary starts"))
    }

    /// Runs to the end.
    pub fn runner(&self, args: &[&str]) -> Ended {
        Ended::from(self.command(args).output().expect("the binary starts"))
    }

    /// Runs to the end with nobody to read what it prints.
    pub fn runner_unread(&self, args: &[&str]) -> Ended {
        let closed = || std::io::pipe().expect("the system has pipes").1;
        let status = self.command(args).stdout(closed()).stderr(closed()).status();
        Ended { code: status.expect("the binary starts").code(), out: String::new(), err: String::new() }
    }

    /// Starts without waiting.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    }

    /// `results/recipe/<device>`
    pub fn results(&self) -> PathBuf {
        let mut devices = files(&self.path().join("results/recipe"));
        assert_eq!(devices.len(), 1, "one device: {devices:?}");
        devices.remove(0)
    }

    /// The row files, sorted by name; none when there are no results yet.
    pub fn row_files(&self) -> Vec<PathBuf> {
        if !self.path().join("results/recipe").is_dir() {
            return Vec::new();
        }
        let rows = self.results().join("rows");
        files(&rows).into_iter().filter(|path| path.extension().is_some_and(|e| e == "json")).collect()
    }

    pub fn rows(&self) -> Vec<Value> {
        let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a row can be read");
        self.row_files()
            .iter()
            .map(|path| serde_json::from_str(&read(path)).expect("a row is JSON"))
            .collect()
    }

    /// How many rows have this status.
    pub fn count(&self, status: &str) -> usize {
        self.rows().iter().filter(|row| row["status"] == status).count()
    }

    /// Waits until `done` holds; the test fails after a minute.
    pub fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The program under test: cargo's, or `RUNNER_BIN` where the tests were taken to another machine.
pub fn runner() -> PathBuf {
    let elsewhere = std::env::var_os("RUNNER_BIN");
    let path = elsewhere.map_or_else(|| assert_cmd::cargo::cargo_bin!("runner").into(), PathBuf::from);
    std::path::absolute(path).expect("there is a current directory")
}

/// A folder of `tests/fixtures`: of the sources, or of the current directory where there are none.
pub fn fixture(name: &str) -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = if sources.is_dir() { sources.into() } else { std::env::current_dir().expect("a folder") };
    format!("{}/tests/fixtures/{name}", root.display())
}

/// The loss of every step of a row.
pub fn losses(row: &Value) -> Vec<f64> {
    let losses = row["measurement"]["loss"].as_array().unwrap_or_else(|| panic!("no losses in {row}"));
    losses.iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

/// The number at a JSON pointer of a row.
pub fn number(row: &Value, path: &str) -> f64 {
    row.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {row}"))
}

/// The bytes of tensors that a row's cell was estimated to need.
pub fn estimated(row: &Value) -> f64 {
    let classes = ["weights", "gradients", "optimizer", "activations", "workspace"];
    classes.iter().map(|class| row["estimate"][class].as_f64().expect("bytes")).sum()
}

/// The files of a folder, sorted; a folder that is not there yet has none.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    paths.sort();
    paths
}

/// Every file below a folder with its content.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in files(folder) {
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let content = std::fs::read(&path).expect("a result can be read");
            all.insert(path, content);
        }
    }
    all
}

/// How the binary ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ended {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Asserts that the messages hold every part, however they are broken into lines.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        let flat = |text: &str| text.replace('│', "").split_whitespace().collect::<String>();
        let all = flat(&format!("{}\n{}", self.out, self.err));
        for part in parts {
            assert!(all.contains(&flat(part)), "missing `{part}` in:\n{}\n{}", self.out, self.err);
        }
        self
    }
}
