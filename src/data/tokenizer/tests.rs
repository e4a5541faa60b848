//! Tokenizers: what is trained, loaded, and put around a text.

use serde_json::Value;

use super::*;

fn texts() -> Vec<String> {
    let sentence = |i: usize| format!("The {i}th fox jumps over {} lazy dogs, doesn't it?\n", i * 7);
    (0..200).map(sentence).collect()
}

#[test]
fn trains_encodes_and_decodes() {
    let tokenizer = Tokenizer::train(&texts(), 300).unwrap();
    assert_eq!(tokenizer.vocab_size(), 300);
    for text in ["The fox jumps.", "  two  spaces\n\n", "naïve 東京 🦊", ""] {
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&tokens), text);
    }
    assert!(tokenizer.encode("jumps over").unwrap().len() < "jumps over".len());
    let end = tokenizer.end_of_text().unwrap();
    assert_eq!(tokenizer.encode("a<|endoftext|>").unwrap().last(), Some(&end));
    let fox = tokenizer.encode("fox").unwrap();
    let unknown = [&fox[..], &[300, 4000], &fox[..]].concat();
    assert_eq!(tokenizer.decode(&unknown), "fox��fox");
}

#[test]
fn training_is_deterministic_and_survives_saving() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::train(&texts(), 400).unwrap();
    let path = tokenizer.save(folder.path()).unwrap();
    let saved = std::fs::read_to_string(&path).unwrap();
    for _ in 0..5 {
        let again = Tokenizer::train(&texts(), 400).unwrap();
        assert_eq!(again.inner.to_string(false).unwrap(), saved);
    }
    for path in [path.as_path(), folder.path()] {
        let loaded = Tokenizer::load(path).unwrap();
        assert_eq!(loaded.encode(&texts()[9]).unwrap(), tokenizer.encode(&texts()[9]).unwrap());
        assert_eq!(loaded.eos(), tokenizer.eos());
    }
}

#[test]
fn special_tokens_come_from_the_files_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::train(&texts(), 300).unwrap();
    tokenizer.save(folder.path()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("generation_config.json", r#"{ "eos_token_id": [5, 6] }"#);
    let loaded = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(loaded.ends(), [5, 6]);
    assert_eq!([[9, 5], [9, 6]].map(|text| loaded.without_end(&text).to_vec()), [[9], [9]]);
    assert_eq!(loaded.without_end(&[9, 7]), [9, 7]);
    write("tokenizer_config.json", r#"{ "eos_token": { "content": "!" } }"#);
    let loaded = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(loaded.ends(), [tokenizer.id("!").unwrap(), 5, 6]);
    assert_eq!(loaded.end_of_text().unwrap(), tokenizer.eos().unwrap());
    write("tokenizer_config.json", r#"{ "eos_token": "<none>" }"#);
    let message = Tokenizer::load(folder.path()).unwrap_err().to_string();
    assert!(message.contains("eos_token \"<none>\" is not in tokenizer.json"), "{message}");
}

/// Qwen2's rule for words has a look-ahead, which not every engine of regular expressions knows.
#[test]
fn reads_the_word_rule_of_qwen2() {
    let folder = tempfile::tempdir().unwrap();
    let path = Tokenizer::train(&texts(), 300).unwrap().save(folder.path()).unwrap();
    let mut saved = read_json(&path).unwrap();
    let words = [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
    .concat();
    saved["pre_tokenizer"] = serde_json::json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": words }, "behavior": "Isolated", "invert": false },
        { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
    ] });
    std::fs::write(&path, saved.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&path).unwrap();
    let text = "It's 1234  foxes:\n\n  naïve!";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
}

#[test]
fn what_is_no_tokenizer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Tokenizer::load(folder.path()).unwrap_err().to_string().contains("there is no"));
    std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    assert!(Tokenizer::load(folder.path()).unwrap_err().to_string().contains("is not a tokenizer"));
    assert!(Tokenizer::train(&[], 100).unwrap_err().to_string().contains("at least 257"));
}

const FAMILIES: [&str; 3] = ["llama2", "llama3", "qwen2"];

/// A tokenizer built as this family's, and texts with what transformers makes of them.
fn family(name: &str) -> (Tokenizer, Vec<Value>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers").join(name);
    let expected = read_json(&folder.join("expected.json")).unwrap();
    (Tokenizer::load(&folder).unwrap(), expected.as_array().unwrap().clone())
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn a_sequence_and_its_text_are_those_of_transformers() {
    for name in FAMILIES {
        let (tokenizer, texts) = family(name);
        for expected in texts {
            let text = expected["text"].as_str().unwrap();
            let ids = ids(&expected["ids"]);
            assert_eq!(tokenizer.begin(text).unwrap(), ids, "{name}: {text:?}");
            let end = tokenizer.eos().unwrap();
            let whole = [&ids[..], &[end]].concat();
            assert_eq!(tokenizer.sequence("", text, end).unwrap(), (whole.clone(), 0), "{name}: {text:?}");
            for (length, decoded) in expected["decoded"].as_array().unwrap().iter().enumerate() {
                assert_eq!(tokenizer.plain(&ids[..length]), *decoded, "{name}: {length} of {text:?}");
            }
            assert_eq!(tokenizer.plain(&whole), tokenizer.plain(&ids));
        }
    }
    let begins = FAMILIES.map(|name| family(name).0.begin("").unwrap());
    assert_eq!(begins, [vec![1], vec![305], vec![]]);
}

/// Wherever a text is divided into a prompt and its completion, it has the tokens of the whole text.
#[test]
fn a_prompt_and_its_completion_are_tokenised_as_one_text() {
    for name in FAMILIES {
        let (tokenizer, texts) = family(name);
        for expected in texts.iter().filter(|expected| !expected["text"].as_str().unwrap().contains("</s>")) {
            let (text, ids) = (expected["text"].as_str().unwrap(), ids(&expected["ids"]));
            let end = tokenizer.eos().unwrap();
            for (place, _) in text.char_indices().skip(1) {
                let (prompt, completion) = text.split_at(place);
                let (tokens, given) = tokenizer.sequence(prompt, completion, end).unwrap();
                assert_eq!(tokens, [&ids[..], &[end]].concat(), "{name}: {prompt:?}");
                // What is given is the longest part that has nothing of the completion. Decoders leave out a first space.
                let in_prompt = |count: usize| {
                    let read = tokenizer.plain(&ids[..count]);
                    [Some(prompt), prompt.strip_prefix(' ')]
                        .into_iter()
                        .flatten()
                        .any(|text| text.starts_with(&read))
                };
                assert!(in_prompt(given), "{name}: {prompt:?} is given as {given} tokens");
                let longer = given < ids.len() && in_prompt(given + 1);
                assert!(!longer, "{name}: {prompt:?} has more than {given} tokens");
            }
        }
    }
    // Llama 3 has a token of both here, which is learned.
    let (tokenizer, _) = family("llama3");
    let (tokens, given) = tokenizer.sequence("How far?", "\nAnswer", 306).unwrap();
    assert_eq!(tokenizer.decode(&tokens[..given]), "<|begin_of_text|>How far");
    assert_eq!(tokenizer.decode(&tokens[given..]), "?\nAnswer<|end_of_text|>");
}

/// The space that a decoder leaves out is that of the beginning alone.
#[test]
fn a_continuation_keeps_its_first_space() {
    for name in FAMILIES {
        let (tokenizer, _) = family(name);
        for (prompt, rest) in [("The", " house"), ("Answer:", " 12"), ("a", "b"), ("How far?\n", "naïve 🦊")]
        {
            let whole = tokenizer.begin(&format!("{prompt}{rest}")).unwrap();
            let before = (0..whole.len()).find(|count| tokenizer.plain(&whole[..*count]) == prompt);
            if let Some(before) = before {
                assert_eq!(tokenizer.continuation(&whole[..before], &whole[before..]), rest, "{name}");
            }
        }
    }
    let (llama, _) = family("llama2");
    let house = llama.encode(" house").unwrap()[1..].to_vec();
    assert_eq!(llama.continuation(&llama.begin("The").unwrap(), &llama.encode("house").unwrap()), " house");
    assert!(!house.is_empty());
}

#[test]
fn a_post_processor_may_end_a_sequence_itself() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers/llama2");
    let mut json = read_json(&source.join("tokenizer.json")).unwrap();
    json["post_processor"]["single"].as_array_mut().unwrap().push(serde_json::json!(
        { "SpecialToken": { "id": "</s>", "type_id": 0 } }
    ));
    json["post_processor"]["special_tokens"]["</s>"] =
        serde_json::json!({ "id": "</s>", "ids": [2], "tokens": ["</s>"] });
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    std::fs::copy(source.join("tokenizer_config.json"), folder.path().join("tokenizer_config.json")).unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let (tokens, _) = tokenizer.sequence("", "a", 2).unwrap();
    assert_eq!((tokens[0], &tokens[tokens.len() - 2..]), (1, &[269, 2][..]));
    // A prompt goes on.
    assert_eq!(tokenizer.begin("a").unwrap().last(), Some(&269));
}
