//! Data sets of the Hub: their configurations, and what is there already.

use super::*;

fn records(subset: Option<&str>) -> Needs<'_> {
    let is_read =
        |path: &Path| path.extension().is_some_and(|ending| ending == "parquet" || ending == "jsonl");
    Needs::Records(Records { subset, is_read })
}

fn data_set(files: &[&'static str]) -> Server {
    let files: Vec<_> = files.iter().map(|name| (*name, name.as_bytes().to_vec())).collect();
    Server { is_data_set: true, ..Server::new(&files) }
}

fn data_name() -> HubName {
    name("me/small").with(records(None))
}

/// As `openai/gsm8k` and `Salesforce/wikitext` lie there.
#[test]
fn a_configuration_of_a_data_set_is_its_folder() {
    let server = data_set(&[
        ".gitattributes",
        "README.md",
        "main/train-00000-of-00001.parquet",
        "main/test-00000-of-00001.parquet",
        "socratic/train-00000-of-00001.parquet",
    ]);
    let cache = tempfile::tempdir().unwrap();
    let hub = server.start(cache.path());
    let message = hub.folder(&data_name(), records(None)).unwrap_err();
    assert!(
        message.contains("several configurations: name one in data.subset. It has main and socratic"),
        "{message}"
    );
    let message = hub.folder(&data_name(), records(Some("mein"))).unwrap_err();
    assert!(message.contains("no configuration \"mein\"; it has main and socratic"), "{message}");
    let folder = hub.folder(&data_name(), records(Some("main"))).unwrap();
    assert_eq!(folder, cache.path().join("datasets--me--small/snapshots").join(COMMIT).join("main"));
    let file = std::fs::read_to_string(folder.join("test-00000-of-00001.parquet")).unwrap();
    assert_eq!(file, "main/test-00000-of-00001.parquet");
    assert!(!folder.parent().unwrap().join("socratic").exists());
    // Now it is there, and the other one is not.
    let asked = locked(&server.asked).len();
    assert_eq!(hub.cached(&data_name(), records(Some("main"))), Some(folder.clone()));
    assert_eq!(hub.folder(&data_name(), records(Some("main"))).unwrap(), folder);
    assert_eq!(locked(&server.asked).len(), asked);
    assert_eq!(hub.cached(&data_name(), records(Some("socratic"))), None);
    hub.folder(&data_name(), records(Some("socratic"))).unwrap();
    // A file that is gone is fetched again.
    std::fs::remove_file(folder.join("train-00000-of-00001.parquet")).unwrap();
    std::fs::remove_dir_all(cache.path().join("datasets--me--small/.complete")).unwrap();
    assert_eq!(hub.cached(&data_name(), records(Some("main"))), None);
    // Without a way to the Hub what others have fetched is taken as it is.
    let offline = Hub { offline: Some("HF_HUB_OFFLINE"), ..hub };
    assert_eq!(offline.folder(&data_name(), records(Some("main"))).unwrap(), folder);
    assert!(
        offline.folder(&data_name(), records(Some("other"))).unwrap_err().contains("HF_HUB_OFFLINE forbids")
    );
}

#[test]
fn files_without_configurations_are_all_read() {
    let folder = |files: &[&'static str], subset| {
        let cache = tempfile::tempdir().unwrap();
        let folder = data_set(files).start(cache.path()).folder(&data_name(), records(subset));
        let root = cache.path().join("datasets--me--small/snapshots").join(COMMIT);
        folder.map(|folder| folder.strip_prefix(root).unwrap().to_path_buf())
    };
    for (files, expected) in [
        (&["README.md", "train.jsonl", "test.jsonl"][..], ""),
        (
            &[
                "data/train-00000-of-00002.parquet",
                "data/train-00001-of-00002.parquet",
                "data/test-0.parquet",
            ],
            "",
        ),
        (&["train/0.parquet", "test/0.parquet"], ""),
        (&["train.jsonl", "extra/a.jsonl"], ""),
        (&["default/train/0000.parquet", "default/test/0000.parquet"], "default"),
    ] {
        assert_eq!(folder(files, None).unwrap(), Path::new(expected), "{files:?}");
    }
    let sample = &["sample/10BT/0.parquet", "sample/100BT/0.parquet", "data/CC/0.parquet"];
    assert_eq!(folder(sample, Some("sample/10BT")).unwrap(), Path::new("sample/10BT"));
    let message = folder(&["train.jsonl"], Some("main")).unwrap_err();
    assert!(message.contains("no configurations, which are folders: remove data.subset"), "{message}");
    let message = folder(&["a.json.gz", ".gitattributes"], None).unwrap_err();
    assert!(message.contains("me/small has no files that are read; it has a.json.gz"), "{message}");
    let message =
        Server::new(&[]).start(tempfile::tempdir().unwrap().path()).folder(&data_name(), records(None));
    assert!(message.unwrap_err().contains("the Hub has no data set me/small, or it is private"));
}
