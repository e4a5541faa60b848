//! Algorithms that were measured before, on disk: one small file for each problem, so that processes
//! which write at the same time do not lose each other's entries.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::WORKSPACE;
use super::problem::Problem;
use super::tuning::Fastest;
use crate::common::cache;
use crate::common::text::hex;

/// The algorithms of one kind of device, driver and library. cuBLASLt's numbers mean the same in every
/// process that has the same version.
pub struct Remembered {
    /// `None`: nothing is remembered.
    pub folder: Option<PathBuf>,
    pub device: String,
    pub driver: String,
    pub library: usize,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    key: Value,
    algorithm: [u64; 8],
    /// For people who open the file: seconds of this algorithm, and of cuBLASLt's own choice.
    #[serde(default)]
    seconds: [f64; 2],
}

impl Remembered {
    /// `None` when there is no entry, or one that cannot be read or is for something else.
    pub fn get(&self, problem: &Problem) -> Option<[u64; 8]> {
        let key = self.key(problem);
        let text = fs::read(self.folder.as_ref()?.join(name(&key))).ok()?;
        let entry: Entry = serde_json::from_slice(&text).ok()?;
        (entry.key == key).then_some(entry.algorithm)
    }

    pub fn put(&self, problem: &Problem, algorithm: [u64; 8], measured: &Fastest) {
        let Some(folder) = &self.folder else { return };
        let key = self.key(problem);
        let name = name(&key);
        let seconds = [measured.seconds, measured.own];
        if let Ok(text) = serde_json::to_vec(&Entry { key, algorithm, seconds }) {
            cache::keep(folder, &name, &text);
        }
    }

    fn key(&self, problem: &Problem) -> Value {
        json!({
            "device": self.device,
            "driver": self.driver,
            "cublaslt": self.library,
            "workspace": WORKSPACE,
            "problem": problem,
        })
    }
}

/// The name of the entry's file.
fn name(key: &Value) -> String {
    format!("{}.json", hex(&Sha256::digest(key.to_string())[..16]))
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::super::problem::{Epilogue, Fp32Math, Layout};
    use super::*;

    const TIMES: Fastest = Fastest { candidate: 1, seconds: 1e-3, own: 2e-3 };

    fn problem(rows: usize) -> Problem {
        let layout = Layout {
            dtype: DType::BF16,
            rows,
            columns: 64,
            stride: 64,
            batch_stride: 0,
            transposed: false,
            alignment: 256,
        };
        Problem {
            lhs: layout,
            rhs: layout,
            out: layout,
            batch: 1,
            math: Fp32Math::Exact,
            accumulate: false,
            epilogue: Epilogue::None,
        }
    }

    fn remembered(folder: &std::path::Path, library: usize) -> Remembered {
        let folder = Some(folder.join("below"));
        Remembered { folder, device: "a GPU".into(), driver: "1.2".into(), library }
    }

    #[test]
    fn an_entry_is_for_its_problem_and_its_library() {
        let folder = tempfile::tempdir().unwrap();
        let ours = remembered(folder.path(), 130_100);
        assert_eq!(ours.get(&problem(64)), None, "nothing is there yet");
        ours.put(&problem(64), [u64::MAX; 8], &TIMES);
        ours.put(&problem(32), [1; 8], &TIMES);
        assert_eq!(ours.get(&problem(64)), Some([u64::MAX; 8]));
        assert_eq!(remembered(folder.path(), 130_100).get(&problem(32)), Some([1; 8]));
        assert_eq!(remembered(folder.path(), 130_200).get(&problem(64)), None);
        ours.put(&problem(64), [2; 8], &TIMES);
        assert_eq!(ours.get(&problem(64)), Some([2; 8]), "the last one counts");
    }

    #[test]
    fn what_cannot_be_read_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let ours = remembered(folder.path(), 1);
        ours.put(&problem(64), [3; 8], &TIMES);
        ours.put(&problem(32), [4; 8], &TIMES);
        let path = |rows| ours.folder.as_ref().unwrap().join(name(&ours.key(&problem(rows))));
        // An entry under another's name.
        fs::copy(path(32), path(64)).unwrap();
        assert_eq!(ours.get(&problem(64)), None);
        for text in ["", "{", "{}", r#"{"key":1,"algorithm":[1,2]}"#] {
            fs::write(path(64), text).unwrap();
            assert_eq!(ours.get(&problem(64)), None, "{text}");
        }
        ours.put(&problem(64), [5; 8], &TIMES);
        assert_eq!(ours.get(&problem(64)), Some([5; 8]));
        let nowhere = Remembered { folder: None, ..ours };
        nowhere.put(&problem(64), [6; 8], &TIMES);
        assert_eq!(nowhere.get(&problem(64)), None);
    }
}
