//! Texts, tokens and masks of chats against those of transformers (tests/fixtures/chats/make.py).

mod templates;

use std::path::PathBuf;

use minijinja::Value;
use serde::Deserialize;
use time::UtcDateTime;

use super::jinja::Jinja;
use super::*;

/// 2026-03-07 05:04:09, the date of the fixtures.
fn date() -> UtcDateTime {
    UtcDateTime::from_unix_timestamp(1_772_859_849).unwrap()
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chats")
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(fixtures().join(name)).unwrap()).unwrap()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::load(&fixtures().join("tokenizer")).unwrap()
}

/// A fixture's template; without marks, where its text is the same.
fn template(name: &str, marked: bool) -> Template {
    let mut source = std::fs::read_to_string(fixtures().join("templates").join(name)).unwrap();
    if !marked {
        source = source.replace("{% generation", "{% if true").replace("{%- generation", "{%- if true");
        source = source.replace("endgeneration", "endif");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.jinja");
    std::fs::write(&file, source).unwrap();
    Template::dated(Some(&fixtures().join("tokenizer")), file.to_str(), date()).unwrap()
}

fn chat(messages: &str) -> Chat {
    let messages: Value = serde_json::from_str(messages).unwrap();
    Chat { messages: messages.try_iter().unwrap().collect(), tools: None }
}

#[derive(Deserialize)]
struct Expressions {
    variables: Value,
    cases: Vec<Expression>,
}

#[derive(Deserialize)]
struct Expression {
    template: String,
    text: Option<String>,
    error: Option<String>,
}

#[test]
fn templates_are_rendered_as_jinja2_renders_them() {
    let Expressions { variables, cases } = read("jinja.json");
    assert!(cases.len() > 900);
    for Expression { template, text, error } in cases {
        let own = Jinja::new(&template, date()).and_then(|jinja| jinja.render(variables.clone()));
        assert_eq!(own.is_err(), error.is_some(), "{template}: {own:?}, not {text:?}{error:?}");
        assert_eq!(own.ok(), text, "{template}");
    }
}

#[derive(Deserialize)]
struct Chats {
    chats: Value,
    tool: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    chat: String,
    tools: bool,
    prompt: bool,
    text: Option<String>,
    #[serde(default)]
    ids: Vec<u32>,
    #[serde(default)]
    learned: String,
}

impl Chats {
    fn chat(&self, case: &Case) -> Chat {
        let messages = self.chats.get_attr(&case.chat).unwrap();
        let tools = case.tools.then(|| Value::from(vec![self.tool.clone()]));
        Chat { messages: messages.try_iter().unwrap().collect(), tools }
    }
}

/// Marks and prefixes find the same turns, but for one that is refused.
#[test]
fn texts_tokens_and_masks_are_those_of_transformers() {
    let chats: Chats = read("chats.json");
    let (tokenizer, mut found, mut refused) = (tokenizer(), 0, Vec::new());
    for case in &chats.cases {
        let chat = chats.chat(case);
        let name = format!("{} {} tools: {} prompt: {}", case.template, case.chat, case.tools, case.prompt);
        for marked in [true, false] {
            let template = template(&format!("{}.jinja", case.template), marked);
            let text = Messages::new(&chat).and_then(|messages| template.render(&messages, case.prompt));
            let Some(expected) = &case.text else {
                assert!(text.is_err(), "{name}: {text:?}");
                continue;
            };
            // A message without a role is refused where a template prints nothing for it.
            if case.chat == "no_role" {
                continue;
            }
            assert_eq!(text.as_ref(), Ok(expected), "{name}");
            if case.prompt {
                continue;
            }
            match encode(&chat, &template, &tokenizer, Learn::Assistant) {
                Ok(tokens) => {
                    assert_eq!(tokens.ids, case.ids, "{name}");
                    let learned: String =
                        tokens.learned.iter().map(|own| if *own { '1' } else { '0' }).collect();
                    let shown = |mask: &str| -> String {
                        let shown = tokens.ids.iter().zip(mask.chars()).filter(|(_, own)| *own == '1');
                        tokenizer.decode(&shown.map(|(id, _)| *id).collect::<Vec<_>>())
                    };
                    assert_eq!(shown(&learned), shown(&case.learned), "{name}, marked: {marked}");
                    assert_eq!(learned, case.learned, "{name}, marked: {marked}");
                    found += 1;
                }
                Err(_) if !marked => refused.push(name.clone()),
                Err(e) => panic!("{name}: {e}"),
            }
            let all = encode(&chat, &template, &tokenizer, Learn::All).unwrap();
            assert!(all.ids == case.ids && all.learned.iter().all(|own| *own), "{name}");
        }
    }
    assert!(found > 250, "{found}");
    // The template shows the assistant's text as the user's.
    assert_eq!(refused, ["dated assistant_first tools: true prompt: false"]);
}

#[test]
fn what_says_nothing_is_refused_in_words() {
    let tokenizer = tokenizer();
    let template = Template::load(None, Some("chatml")).unwrap();
    for (messages, expected) in [
        ("[]", "the chat \"…\": it has no messages"),
        (r#"[{"role": "user", "content": "Hi"}, null]"#, "the chat \"Hi…\": message 2: it is no object"),
        (r#"[{"role": "user", "content": null}]"#, "message 1: it has no content, or null"),
        (r#"[{"role": "user"}]"#, "message 1: it has no content"),
        (r#"[{"role": 3, "content": "a"}]"#, "message 1: its role is no name, but 3"),
        (r#"[{"content": "a"}]"#, "message 1: it has no role"),
        (
            r#"[{"role": "user", "content": ["a"]}]"#,
            "operator on unsupported types string and sequence (line 2 of",
        ),
    ] {
        let message =
            encode(&chat(messages), &template, &tokenizer, Learn::Assistant).unwrap_err().to_string();
        assert!(message.contains(expected), "{messages}: {message}");
    }
    // A role that the template passes over in silence.
    let lost = chat(r#"[{"role": "user", "content": "a"}, {"role": "narrator", "content": "Once"}]"#);
    let message = encode(&lost, &template_of("{{ messages[0].content }}"), &tokenizer, Learn::All)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("leaves out message 2, whose role is \"narrator\"; known roles are assistant"),
        "{message}"
    );
    assert!(encode(&lost, &template, &tokenizer, Learn::All).is_ok());
}

/// A template from a text.
fn template_of(source: &str) -> Template {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.jinja");
    std::fs::write(&file, source).unwrap();
    Template::dated(None, file.to_str(), date()).unwrap()
}

/// Turns that a template mixes, and marks that change its text, are no mask.
#[test]
fn a_mask_that_cannot_be_told_is_refused() {
    let tokenizer = tokenizer();
    let messages = chat(
        r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]"#,
    );
    for (source, expected) in [
        (
            "{{ messages|map(attribute='content')|sort(reverse=true)|join(' ') }}",
            "the turn of message 2 cannot be found",
        ),
        (
            "{% for m in messages|reverse %}{{ m.role }}{{ m.content }}{% endfor %}",
            "the turn of message 2 cannot be found",
        ),
        (
            "{% set x %}{% generation %}b{% endgeneration %}{% endset %}{{ x|length }}b",
            "depends on its own marks",
        ),
        ("{% set x %}{% generation %}b{% endgeneration %}{% endset %}{{ x[1:] }}b", "do not stand in pairs"),
        ("{% generation %}{{ messages[1].content }}\u{fdd0}{% endgeneration %}", "do not stand in pairs"),
    ] {
        let message =
            encode(&messages, &template_of(source), &tokenizer, Learn::Assistant).unwrap_err().to_string();
        assert!(message.contains(expected), "{source}: {message}");
        assert!(encode(&messages, &template_of(source), &tokenizer, Learn::All).is_ok(), "{source}");
    }
    // Nobody answers.
    let tokens =
        encode(&messages, &template_of("{% for m in messages %}{% endfor %}x"), &tokenizer, Learn::Assistant);
    assert!(tokens.is_err(), "{tokens:?}");
    let question = chat(r#"[{"role": "user", "content": "a"}]"#);
    let tokens =
        encode(&question, &template_of("x{{ messages[0].content }}"), &tokenizer, Learn::Assistant).unwrap();
    assert!(!tokens.ids.is_empty() && tokens.learned.iter().all(|learned| !learned));
}

/// A token of both sides of a border is learned, as in transformers' masks.
#[test]
fn tokens_are_learned_that_have_a_part_of_a_turn() {
    let tokens = [(0, 2), (2, 5), (5, 5), (5, 6), (6, 9), (9, 12)];
    let learned =
        |spans: &[Range<usize>]| overlapping(&tokens, spans).into_iter().map(u8::from).collect::<Vec<_>>();
    assert_eq!(learned(&[4..6, 11..12]), [0, 1, 1, 1, 0, 1]);
    assert_eq!(learned(&[0..0, 2..3, 5..5, 6..9]), [0, 1, 0, 0, 1, 0]);
    assert_eq!(learned(&[]), [0; 6]);
}
