//! What the Hub says of a model, and its answers when it refuses.

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

/// A revision of a model.
#[derive(Debug, Deserialize)]
pub struct Revision {
    /// Its commit.
    pub sha: String,
    #[serde(rename = "siblings")]
    pub files: Vec<RemoteFile>,
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
    let HubName { id, revision } = name;
    let page = format!("{}/{id}", hub.endpoint);
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
            "the Hub has no model {id}, or it is private: correct the name, set HF_TOKEN to a token that may read it, or name \
             a folder that is here"
        ),
        (_, 401 | 404, Some(_)) => format!(
            "the Hub has no model {id}, or the token in HF_TOKEN may not read it: correct the name or the token, or name a \
             folder that is here"
        ),
        (_, 429, _) => format!(
            "the Hub has too many requests from here ({page}: 429); run the command again in some minutes"
        ),
        _ => format!("{page} answers with status {status}; run the command again later"),
    }
}

/// The files of a model that are needed, and its commit.
///
/// # Errors
/// As [`get`]; a model that cannot be read, by what it holds.
pub fn revision(agent: &Agent, hub: &Hub, name: &HubName, needs: Needs) -> Result<Revision, String> {
    let HubName { id, revision } = name;
    let path = format!("api/models/{id}/revision/{}?blobs=true", revision.replace('/', "%2F"));
    let mut answer = get(agent, hub, name, &path, 0)?;
    let text = answer
        .body_mut()
        .read_to_string()
        .map_err(|e| format!("{name}: the Hub's list of files did not come whole: {e}"))?;
    let Revision { sha, files } = serde_json::from_str(&text).map_err(|e| {
        format!("{name}: {} does not answer as the Hub does ({e}); correct HF_ENDPOINT", hub.endpoint)
    })?;
    let is_there = |name: &str| files.iter().any(|file| file.name == name);
    if !is_there("config.json") {
        return Err(format!("{name} holds no config.json: it is no model of transformers; name another"));
    }
    let sharded = !is_there(WEIGHTS) && is_there(INDEX);
    if needs == Needs::Weights && !is_there(WEIGHTS) && !sharded {
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
        wanted.contains(name) || is_template(name) || (needs == Needs::Weights && is_weights(name))
    });
    Ok(Revision { sha, files: files.collect() })
}
