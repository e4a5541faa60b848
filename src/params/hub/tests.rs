mod data_sets;
mod server;

use serde_json::json;
use server::{COMMIT, Server};

use super::*;
use crate::common::locked;

fn name(text: &str) -> HubName {
    HubName::parse(Path::new(text)).unwrap()
}

/// Bytes without a pattern that a shift would keep.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * i % 251) as u8).collect()
}

fn model() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{ }".to_vec()),
        ("model.safetensors", bytes(3_000_017)),
        ("pytorch_model.bin", bytes(50)),
        ("onnx/model.onnx", bytes(60)),
        ("README.md", b"# me".to_vec()),
    ]
}

#[test]
fn a_name_has_one_slash_and_is_no_folder() {
    let parts = |text: &str| HubName::parse(Path::new(text)).map(|name| (name.id, name.revision));
    assert_eq!(parts("Qwen/Qwen3-0.6B"), Some(("Qwen/Qwen3-0.6B".into(), "main".into())));
    assert_eq!(parts("me/small@refs/pr/3"), Some(("me/small".into(), "refs/pr/3".into())));
    for other in
        ["gpt2", "./a/b", "a/b/c", "/a/b", "~/models", "src/params", "src/none", "a/b@", "a/b@../c", "a b/c"]
    {
        assert_eq!(parts(other), None, "{other}");
    }
}

#[test]
fn a_model_is_fetched_once_with_the_files_that_are_needed() {
    let (server, cache) = (Server::new(&model()), tempfile::tempdir().unwrap());
    let hub = server.start(cache.path());
    assert_eq!(hub.cached(&name("me/small"), Needs::Description), None);
    let described = hub.folder(&name("me/small"), Needs::Description).unwrap();
    assert!(!described.join("model.safetensors").exists());
    assert_eq!(hub.cached(&name("me/small"), Needs::Weights), None);
    let folder = hub.folder(&name("me/small"), Needs::Weights).unwrap();
    assert_eq!(folder, cache.path().join("models--me--small/snapshots").join(COMMIT));
    let there: Vec<String> = walkdir::WalkDir::new(&folder)
        .min_depth(1)
        .sort_by_file_name()
        .into_iter()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into())
        .collect();
    assert_eq!(there, ["config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(std::fs::read(folder.join("model.safetensors")).unwrap(), bytes(3_000_017));
    // Now it is there, also by its commit, and for processes that may not fetch.
    let asked = locked(&server.asked).len();
    assert_eq!(hub.folder(&name("me/small"), Needs::Weights).unwrap(), folder);
    let offline = Hub { offline: Some("HF_HUB_OFFLINE"), ..hub };
    assert_eq!(offline.folder(&name(&format!("me/small@{COMMIT}")), Needs::Weights).unwrap(), folder);
    assert_eq!(locked(&server.asked).len(), asked);
    let other = offline.folder(&name("me/other"), Needs::Weights).unwrap_err();
    assert!(other.contains("HF_HUB_OFFLINE forbids"), "{other}");
}

#[test]
fn a_cut_download_goes_on_where_it_ended() {
    let (server, cache) = (Server::new(&model()), tempfile::tempdir().unwrap());
    let hub = server.start(cache.path());
    hub.folder(&name("me/small"), Needs::Description).unwrap();
    // The first connection breaks, the second brings nothing.
    locked(&server.breaks).extend([0, 1_234_567]);
    let cut = hub.folder(&name("me/small"), Needs::Weights).unwrap_err();
    assert!(cut.contains("model.safetensors stopped after 1234567 of 3000017 bytes"), "{cut}");
    assert_eq!(hub.cached(&name("me/small"), Needs::Weights), None);
    locked(&server.asked).clear();
    let folder = hub.folder(&name("me/small"), Needs::Weights).unwrap();
    assert_eq!(std::fs::read(folder.join("model.safetensors")).unwrap(), bytes(3_000_017));
    let weights: Vec<usize> = locked(&server.asked)
        .iter()
        .filter(|(path, _)| path.ends_with("model.safetensors"))
        .map(|(_, from)| *from)
        .collect();
    assert_eq!(weights, [1_234_567]);
}

#[test]
fn damaged_weights_do_not_count() {
    let (server, cache) = (Server::new(&model()), tempfile::tempdir().unwrap());
    let hub = server.start(cache.path());
    *locked(&server.damages) = true;
    let damaged = hub.folder(&name("me/small"), Needs::Weights).unwrap_err();
    assert!(damaged.contains("model.safetensors came damaged"), "{damaged}");
    *locked(&server.damages) = false;
    let folder = hub.folder(&name("me/small"), Needs::Weights).unwrap();
    assert_eq!(std::fs::read(folder.join("model.safetensors")).unwrap(), bytes(3_000_017));
}

#[test]
fn shards_come_with_their_index_alone() {
    let files = vec![
        ("config.json", b"{}".to_vec()),
        ("model-00001-of-00002.safetensors", bytes(101)),
        ("model-00002-of-00002.safetensors", bytes(99)),
        (
            "model.safetensors.index.json",
            json!({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})
                .to_string()
                .into_bytes(),
        ),
        ("consolidated.safetensors", bytes(200)),
    ];
    let (server, cache) = (Server::new(&files), tempfile::tempdir().unwrap());
    let folder = server.start(cache.path()).folder(&name("me/small"), Needs::Weights).unwrap();
    assert_eq!(std::fs::read(folder.join("model-00002-of-00002.safetensors")).unwrap(), bytes(99));
    assert!(!folder.join("consolidated.safetensors").exists());
}

#[test]
fn refusals_say_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    let refused = |server: Server, id: &str, token: Option<&str>| {
        let hub = Hub { token: token.map(String::from), ..server.start(cache.path()) };
        hub.folder(&name(id), Needs::Weights).unwrap_err()
    };
    let missing = refused(Server::new(&model()), "me/none", None);
    assert!(missing.contains("the Hub has no model me/none, or it is private"), "{missing}");
    let gated = Server { needs_token: true, ..Server::new(&model()) };
    let closed = refused(gated.clone(), "me/small", None);
    assert!(closed.contains("accept them at http://") && closed.contains("set HF_TOKEN"), "{closed}");
    let pickled = [("config.json", b"{}".to_vec()), ("pytorch_model.bin", bytes(5))];
    let pickles = refused(Server::new(&pickled), "me/small", None);
    assert!(pickles.contains("it holds pytorch_model.bin: the runner reads safetensors alone"), "{pickles}");
    let closed = Hub { endpoint: "http://127.0.0.1:9".into(), ..gated.start(cache.path()) };
    let unreachable = closed.folder(&name("me/small"), Needs::Weights).unwrap_err();
    assert!(unreachable.contains("http://127.0.0.1:9 cannot be reached"), "{unreachable}");
    let open = Hub { token: Some("secret".into()), ..gated.start(cache.path()) };
    open.folder(&name("me/small"), Needs::Weights).unwrap();
}
