//! What the Hub says of a model or data set, and its answers when it refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::{Hub, HubName, Needs};
use crate::params::companions::{GENERATION, TEMPLATES, TOKENIZER};
use crate::params::save::WEIGHTS;
use crate::params::weights::INDEX;

/// How long the Hub may take to connect, to answer, or to send nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of a list of files: a data set has thousands.
const MOST_OF_A_LIST: u64 = 256 << 20;

/// A revision of a model or data set.
#[derive(Debug, Deserialize)]
pub struct Revision {
    /// Its commit.
    pub sha: String,
    #[serde(rename = "siblings")]
    pub files: Vec<RemoteFile>,
    /// In which what is needed is: a data set's configuration.
    #[serde(skip)]
    pub folder: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteFile {
    #[serde(rename = "rfilename")]
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Git's hash of the file, or of a large one's pointer.
    blob_id: String,
    lfs: Option<Large>,
}

/// A large file, which the Hub keeps beside the repository.
#[derive(Clone, Debug, Deserialize)]
struct Large {
    sha256: String,
}

impl RemoteFile {
    /// The name of its blob.
    pub fn oid(&self) -> &str {
        self.sha256().unwrap_or(&self.blob_id)
    }

    pub fn sha256(&self) -> Option<&str> {
        self.lfs.as_ref().map(|large| large.sha256.as_str())
    }
}

/// What fetches: it waits for no silent server, and gives its token to the Hub alone.
pub fn agent() -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .timeout_resolve(Some(PATIENCE))
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .timeout_per_read(Some(PATIENCE));
    config.build().into()
}

/// Asks the Hub for this path, from this byte on.
///
/// # Errors
/// Why there is no answer, or a refusal, and what to do.
pub fn get(
    agent: &Agent,
    hub: &Hub,
    name: &HubName,
    path: &str,
    from: u64,
) -> Result<Response<Body>, String> {
    let url = format!("{}/{path}", hub.endpoint);
    let mut request = agent.get(&url);
    if let Some(token) = &hub.token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    if from > 0 {
        request = request.header("Range", format!("bytes={from}-"));
    }
    let response = request.call().map_err(|e| {
        format!(
            "{name} is not here as a folder, and {} cannot be reached: {e}. Check the connection and run the command again, or \
             name a folder; HF_ENDPOINT names another Hub",
            hub.endpoint
        )
    })?;
    match response.status().as_u16() {
        200..=299 => Ok(response),
        status => Err(refused(hub, name, status, &response)),
    }
}

fn refused(hub: &Hub, name: &HubName, status: u16, response: &Response<Body>) -> String {
    let code = response.headers().get("X-Error-Code").and_then(|value| value.to_str().ok()).unwrap_or("");
    let HubName { id, revision, kind } = name;
    let (page, noun) = (format!("{}/{}", hub.endpoint, name.page()), kind.noun());
    match (code, status, &hub.token) {
        ("GatedRepo", ..) | (_, 403, _) => format!(
            "{id} is given to those who accept its terms: accept them at {page}, and set HF_TOKEN to a token of that account"
        ),
        ("RevisionNotFound", ..) => {
            format!("{id} has no revision \"{revision}\"; {page} lists its branches and commits")
        }
        ("EntryNotFound", ..) => {
            format!("{name} lacks a file that its own list names; run the command again")
        }
        // The Hub gives the same answer for both.
        (_, 401 | 404, None) => format!(
            "the Hub has no {noun} {id}, or it is private: correct the name, set HF_TOKEN to a token that may read it, or name \
             a folder that is here"
        ),
        (_, 401 | 404, Some(_)) => format!(
            "the Hub has no {noun} {id}, or the token in HF_TOKEN may not read it: correct the name or the token, or name a \
             folder that is here"
        ),
        (_, 429, _) => format!(
            "the Hub has too many requests from here ({page}: 429); run the command again in some minutes"
        ),
        _ => format!("{page} answers with status {status}; run the command again later"),
    }
}

/// The files that are needed, and the commit.
///
/// # Errors
/// As [`get`]; a model or data set that cannot be read, by what it holds.
pub fn revision(agent: &Agent, hub: &Hub, name: &HubName, needs: Needs) -> Result<Revision, String> {
    let HubName { id, revision, kind } = name;
    let kind: &str = kind.into();
    let path = format!("api/{kind}/{id}/revision/{}?blobs=true", revision.replace('/', "%2F"));
    let mut answer = get(agent, hub, name, &path, 0)?;
    let text = answer
        .body_mut()
        .with_config()
        .limit(MOST_OF_A_LIST)
        .read_to_string()
        .map_err(|e| format!("{name}: the Hub's list of files did not come whole: {e}"))?;
    let mut found: Revision = serde_json::from_str(&text).map_err(|e| {
        format!("{name}: {} does not answer as the Hub does ({e}); correct HF_ENDPOINT", hub.endpoint)
    })?;
    match needs {
        Needs::Records(records) => {
            let names: Vec<&str> = found.files.iter().map(|file| file.name.as_str()).collect();
            found.folder = records.folder(name, &names)?;
            found.files.retain(|file| records.has(&found.folder, &file.name));
        }
        Needs::Description | Needs::Weights => {
            let weights = matches!(needs, Needs::Weights);
            found.files = files_of_model(name, found.files, weights)?;
        }
    }
    Ok(found)
}

/// The files of a model that are needed. `weights`: whether these are too.
fn files_of_model(name: &HubName, files: Vec<RemoteFile>, weights: bool) -> Result<Vec<RemoteFile>, String> {
    let is_there = |name: &str| files.iter().any(|file| file.name == name);
    if !is_there("config.json") {
        return Err(format!("{name} holds no config.json: it is no model of transformers; name another"));
    }
    let sharded = !is_there(WEIGHTS) && is_there(INDEX);
    if weights && !is_there(WEIGHTS) && !sharded {
        let other = files.iter().find(|file| {
            [".bin", ".pth", ".gguf", ".h5", ".msgpack", ".safetensors"]
                .iter()
                .any(|end| file.name.ends_with(end))
        });
        let holds = other.map_or(String::new(), |file| format!("; it holds {}", file.name));
        return Err(format!(
            "{name} has no {WEIGHTS}{holds}: the runner reads safetensors alone, since a pickle can run code. Look for a \
             copy in safetensors, or convert it with transformers and name the folder"
        ));
    }
    let wanted: BTreeSet<&str> = TOKENIZER.into_iter().chain(["config.json", GENERATION]).collect();
    let is_shard =
        |name: &str| name == INDEX || (name.starts_with("model-") && name.ends_with(".safetensors"));
    let is_weights = |name: &str| if sharded { is_shard(name) } else { name == WEIGHTS };
    let is_template = |name: &str| {
        TEMPLATES.iter().any(|folder| name.split_once('/').is_some_and(|(first, _)| first == *folder))
    };
    let files = files.into_iter().filter(|file| {
        let name = file.name.as_str();
        wanted.contains(name) || is_template(name) || (weights && is_weights(name))
    });
    Ok(files.collect())
}
