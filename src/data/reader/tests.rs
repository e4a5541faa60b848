//! The reader: values as Python's readers have them, and what is refused.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::data::Prompted;
use crate::data::record::{Chat, Tokens};
use crate::data::samples::SampleUnit;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data")
}

/// A record as the fixtures' expected.json has it.
fn shown(record: Record) -> Value {
    match record {
        Record::Text(text) => json!({ "text": text }),
        Record::Pair(Prompted { prompt, completion }) => {
            json!({ "prompt": prompt, "completion": completion })
        }
        Record::Chat(Chat { messages, tools }) => json!({
            "messages": serde_json::to_string(&messages).unwrap(),
            "tools": tools.map(|tools| serde_json::to_string(&tools).unwrap()),
        }),
        Record::Tokens(Tokens { ids, learned }) => json!({ "ids": ids, "learned": learned }),
    }
}

fn read(path: &Path, reading: &Reading) -> Result<Vec<Value>, String> {
    let records = open(vec![path.to_path_buf()], reading, SampleUnit::Documents);
    records.map(|record| record.map(shown).map_err(|e| e.to_string())).collect()
}

/// What is read of a file with this content.
fn read_text(name: &str, text: impl AsRef<[u8]>, reading: &Reading) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    read(&path, reading)
}

fn columns(written: &[(&str, &str)]) -> Columns {
    let table: serde_json::Map<String, Value> =
        written.iter().map(|(key, name)| (key.to_string(), (*name).into())).collect();
    serde_json::from_value(table.into()).unwrap()
}

#[test]
fn every_format_has_the_values_that_python_reads() {
    let text = std::fs::read_to_string(fixtures().join("expected.json")).unwrap();
    let expected: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(expected.len(), 20);
    for (name, records) in expected {
        let read =
            read(&fixtures().join(&name), &Reading::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(Value::from(read), records, "{name}");
    }
}

#[test]
fn columns_have_the_names_that_the_recipe_says() {
    let line = r#"{"q": "1 + 1?", "a": "2", "text": "t", "prompt": "p"}"#;
    let reading = Reading { columns: columns(&[("prompt", "q"), ("completion", "a")]), ..Reading::default() };
    let pair = [json!({"prompt": "1 + 1?", "completion": "2"})];
    assert_eq!(read_text("a.jsonl", line, &reading).unwrap(), pair);
    assert_eq!(read_text("a.json", format!("[{line}]"), &reading).unwrap(), pair);
    let missing = Reading { columns: columns(&[("text", "body")]), ..Reading::default() };
    let message = read_text("a.jsonl", line, &missing).unwrap_err();
    assert!(message.contains("no column `body`, which data.columns.text names"), "{message}");
    assert!(message.contains("its columns are `q`, `a`, `text` and `prompt`"), "{message}");
    let message = read_text("a.csv", "x,y\n1,2\n", &Reading::default()).unwrap_err();
    assert!(message.contains("expected the column `text`, or `messages`, or"), "{message}");
    assert!(message.ends_with("its columns are `x` and `y`"), "{message}");
}

#[test]
fn two_formats_need_a_word() {
    let line = r#"{"text": "t", "instruction": "i", "output": "o", "messages": null}"#;
    let message = read_text("a.jsonl", line, &Reading::default()).unwrap_err();
    assert!(
        message.contains("more than one format: \"text\", \"instruction\"; say which in data.format"),
        "{message}"
    );
    let reading = |format| Reading { format: Some(format), ..Reading::default() };
    assert_eq!(read_text("a.jsonl", line, &reading(Format::Text)).unwrap(), [json!({"text": "t"})]);
    let alpaca = read_text("a.jsonl", line, &reading(Format::Instruction)).unwrap();
    assert!(alpaca[0]["prompt"].as_str().unwrap().ends_with("\n\n### Instruction:\ni\n\n### Response:\n"));
    let message = read_text("a.jsonl", line, &reading(Format::QuestionAnswer)).unwrap_err();
    assert!(
        message.contains("\"question_answer\" needs a column `question`, and there is none"),
        "{message}"
    );
    let message = read_text("a.jsonl", line, &reading(Format::Messages)).unwrap_err();
    assert!(message.contains("line 1: `messages` is null"), "{message}");
}

#[test]
fn what_is_no_record_says_why() {
    for (line, reason) in [
        (r#"{"text": 5}"#, "`text` is a number, and not a string"),
        (r#"{"text": null}"#, "`text` is null"),
        (r#"{"prompt": "a", "completion": null}"#, "`completion` is null"),
        (r#"{"prompt": "a", "completion": " \n"}"#, "`completion` is empty: there is nothing to learn"),
        (r#"{"prompt": [{"role": "user", "content": "a"}], "completion": "b"}"#, "`completion`: not JSON"),
        (r#"{"messages": []}"#, "the chat has no messages"),
        (r#"{"messages": "no list"}"#, "`messages`: not JSON"),
        (r#"{"messages": {"role": "user"}}"#, "`messages` is a map, and not a list"),
        (r#"{"messages": ["hi"]}"#, "message 1: it is a string, and not an object"),
        (r#"{"messages": [{"content": "a"}]}"#, "message 1: it has no `role`"),
        (r#"{"messages": [{"role": null, "content": "a"}]}"#, "`role` is null, and not a string"),
        (
            r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]}"#,
            "message 2: it has no `content`",
        ),
        (r#"{"messages": [{"role": "user", "content": null}]}"#, "message 1: `content` is null"),
        (r#"{"messages": [{"role": "user", "content": 3}]}"#, "`content` is a number, and not a string"),
        (
            r#"{"conversations": [{"from": "narrator", "value": "a"}]}"#,
            "`from` is \"narrator\"; it can be human",
        ),
        (r#"{"conversations": [{"from": "gpt", "value": null}]}"#, "`value` is null"),
        (
            r#"{"messages": [{"role": "user", "content": "a"}], "tools": 3}"#,
            "`tools` is a number, and not a list",
        ),
        (r#"{"input_ids": []}"#, "`input_ids` is empty"),
        (r#"{"input_ids": [1, -1]}"#, "-1 is no token"),
        (r#"{"input_ids": [1, "a"]}"#, "`input_ids` is a string, and not a whole number"),
        (r#"{"input_ids": [1, 2], "labels": [1]}"#, "1 labels for 2 tokens"),
        (r#"{"input_ids": [1, 2, 3], "labels": [-100, 3, -100]}"#, "label 2 is 3 and its token 2"),
        (r#"{"text": "a"#, "does not end on its line"),
    ] {
        let message = read_text("a.jsonl", line, &Reading::default()).unwrap_err();
        assert!(message.contains("a.jsonl, line 1: ") && message.contains(reason), "{line}: {message}");
    }
    // An assistant that calls a tool says nothing.
    let line = r#"{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]}]}"#;
    assert_eq!(read_text("a.jsonl", line, &Reading::default()).unwrap().len(), 1);
}

#[test]
fn broken_records_are_counted_and_left_out_if_the_recipe_says_so() {
    let lines: Vec<String> = (1..=50)
        .map(|i| if i % 10 == 3 { "{\"text\": ".into() } else { format!("{{\"text\": \"{i}\"}}\n") })
        .map(|line| line.trim_end().to_string() + "\n")
        .collect();
    let text = lines.concat() + "\n{\"text\": \" \"}\n";
    let message = read_text("a.jsonl", &text, &Reading::default()).unwrap_err();
    assert!(message.contains("a.jsonl, line 3: the object does not end on its line"), "{message}");
    assert!(message.ends_with("(5 of 50 are broken; data.skip_broken = true leaves them out)"), "{message}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    std::fs::write(&path, &text).unwrap();
    let lenient = Reading { skip_broken: true, ..Reading::default() };
    let mut records = open(vec![path.clone(), path], &lenient, SampleUnit::Documents);
    assert_eq!(records.by_ref().map(Result::unwrap).count(), 90);
    assert_eq!(records.left_out(), LeftOut { broken: 10, duplicates: 0 });
    // A file without one good record is no data.
    let message = read_text("a.jsonl", "{\"body\": 1}\n{\"body\": 2}\n", &lenient).unwrap_err();
    assert!(
        message.contains("line 1: expected the column") && message.ends_with("(all 2 are broken)"),
        "{message}"
    );
    assert_eq!(read_text("a.jsonl", "\n \n", &Reading::default()).unwrap().len(), 0);
}

#[test]
fn broken_files_are_refused_by_what_they_are() {
    let refused = |name: &str, text: &[u8]| read_text(name, text, &Reading::default()).unwrap_err();
    let utf16: Vec<u8> = "\u{feff}text\na\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, text, reason) in [
        (
            "a.json",
            &b"[{\"text\": \"a\"}, {\"text\": \"b\""[..],
            "record 2: the list does not end: the file is cut",
        ),
        ("a.json", b"{\n \"text\": \"a\"\n}", "line 1: the object does not end on its line"),
        ("a.json", b"[1]", "record 1: no JSON object"),
        ("a.csv", b"text,n\na,1\n\"b,2\n", "line 3: a quote has no end"),
        ("a.csv", b"text,n\na,1\nb\nc,3\n", "line 3: it has 1 fields, and the first line names 2"),
        ("a.csv", b"text,text\na,1\n", "line 1: two columns are called `text`"),
        ("a.csv", b"text\n\xff\n", "line 2: it is not UTF-8"),
        ("a.csv", &utf16, "line 1: it is not UTF-8"),
        ("a.txt", b"a\n\xff\n", "line 2: byte 3 is not UTF-8"),
        ("a.bin", b"odd", "its 3 bytes are no tokens of 2 bytes"),
        ("a.bin", b"PK\x03\x04 weights.", "as PyTorch writes weights"),
        ("a.parquet", b"PAR1", "as parquet"),
        ("a.parquet", b"", "as parquet"),
    ] {
        let message = refused(name, text);
        assert!(message.contains(reason), "{name}: {message}");
    }
    for name in ["llm_c_gpt2.bin", "llm_c_llama3.bin", "llmq_masked.bin", "llmq.bin"] {
        let bytes = std::fs::read(fixtures().join(name)).unwrap();
        for cut in [bytes.len() - 1, bytes.len() - 2, 1026, 1024, 512] {
            let message = refused(name, &bytes[..cut]);
            assert!(message.contains("it is cut, or was not finished"), "{name} {cut}: {message}");
        }
        let mut other = bytes;
        other[if name.starts_with("llm_c") { 4 } else { 8 }] = 9;
        assert!(refused(name, &other).contains("version"), "{name}");
    }
    // What ends between lines is not seen to be cut, and an empty file has no records.
    for name in ["a.jsonl", "a.json", "a.csv", "a.txt", "a.bin"] {
        assert_eq!(read_text(name, "", &Reading::default()).unwrap().len(), 0, "{name}");
    }
}

#[test]
fn tokens_beyond_the_vocabulary_are_refused() {
    for name in ["llm_c_gpt2.bin", "input_ids.jsonl", "input_ids.parquet"] {
        let open = || open(vec![fixtures().join(name)], &Reading::default(), SampleUnit::Documents);
        let largest = |record: Record| match record {
            Record::Tokens(tokens) => *tokens.ids.iter().max().unwrap() as usize,
            other => panic!("{other:?}"),
        };
        let most = open().map(|record| largest(record.unwrap())).max().unwrap();
        assert!(open().within(most + 1).all(|record| record.is_ok()));
        let message = open().within(most).find_map(Result::err).unwrap().to_string();
        let reason = format!("token {most} is beyond a vocabulary of {most}: another tokenizer made it");
        assert!(message.contains(&reason), "{message}");
    }
}

/// Polars reads a file's end first, and panics at some damaged bytes.
#[test]
fn no_damage_of_a_parquet_file_is_a_panic() {
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for name in ["text.parquet", "dictionary.parquet", "messages.parquet", "input_ids.parquet"] {
        let whole = std::fs::read(fixtures().join(name)).unwrap();
        for cut in (0..whole.len()).step_by(whole.len() / 40).chain([whole.len() - 1]) {
            let message = read_text("a.parquet", &whole[..cut], &Reading::default()).unwrap_err();
            assert!(message.contains("a.parquet"), "{name} {cut}: {message}");
        }
        for _ in 0..60 {
            let mut damaged = whole.clone();
            let at = random(damaged.len());
            damaged[at] ^= 1 << random(8);
            // Damage within a text is not seen; what is seen is an error.
            if let Err(message) = read_text("a.parquet", &damaged, &Reading::default()) {
                assert!(message.contains("a.parquet"), "{name} {at}: {message}");
            }
        }
    }
}

#[test]
fn csv_is_read_as_python_reads_it() {
    // csv.DictReader gives the same.
    let text = "\u{feff}text,n\r\n\"a \"\"b\"\"\r\n, c\",1\r\n\r\nd\"e,2\n\"f\"g\"h\",3\r,4\n\"i\",5";
    let texts: Vec<String> = read_text("a.csv", text, &Reading::default())
        .unwrap()
        .iter()
        .map(|record| record["text"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(texts, ["a \"b\"\r\n, c", "d\"e", "fg\"h\"", "i"]);
}

#[test]
fn a_share_is_held_out_by_content() {
    let records: Vec<Record> = (0..2000).map(|i| Record::Text(format!("record {i}"))).collect();
    let side = |seed, side| {
        let keep = Keep::default().side(0.1, seed, side);
        records.iter().filter(|record| keep.is_of(record)).collect::<Vec<_>>()
    };
    let (train, held_out) = (side(1, Side::Train), side(1, Side::HeldOut));
    assert_eq!(train.len() + held_out.len(), records.len());
    assert!(held_out.iter().all(|record| !train.contains(record)), "no record is on both sides");
    // 200, with a standard deviation of 13.4.
    assert!((146..=254).contains(&held_out.len()), "{}", held_out.len());
    let other = side(2, Side::HeldOut);
    let both = other.iter().filter(|record| held_out.contains(record)).count();
    assert!((1..=60).contains(&both), "another seed holds out others: {both} in both");
}

#[test]
fn slices_of_row_groups_are_all_rows_in_order() {
    let read = |path: &Path| read(path, &Reading::default()).unwrap();
    let rows = rows(&fixtures().join("text.parquet"), Wanted::all()).unwrap();
    assert_eq!(rows.names().unwrap(), ["n", "text"]);
    let numbers = rows.each(|fields| fields.get("n").unwrap().as_i64().ok_or_else(|| "no number".into()));
    assert_eq!(numbers.unwrap(), (0..7).collect::<Vec<_>>());
    let list = fixtures().join("text.jsonl");
    assert_eq!(read(&fixtures().join("text.parquet")), read(&list));
    let message = super::rows(&list, Wanted::all()).unwrap().each(|fields| {
        let n = fields.get("n").unwrap().as_i64();
        if n == Some(4) { Err("four".to_string()) } else { Ok(()) }
    });
    assert!(message.unwrap_err().to_string().ends_with("text.jsonl, line 5: four"));
}
