//! Templates: where they are found, and what they read beside the chat.

use super::*;

#[test]
fn the_folder_of_a_tokenizer_has_its_template() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let messages = chat(r#"[{"role": "user", "content": "Hi"}]"#);
    let text = |named: Option<&str>, tools: bool| {
        let template = Template::load(Some(folder.path()), named)?;
        let chat = Chat { tools: tools.then(|| Value::from(vec!["t"])), ..messages.clone() };
        let messages = Messages::new(&chat).unwrap();
        Ok::<String, DataError>(template.render(&messages, false).unwrap())
    };
    let message = text(None, false).unwrap_err().to_string();
    assert!(
        message.contains("has no chat template; name one in data.template: a file, or one of chatml, llama3"),
        "{message}"
    );
    assert_eq!(text(Some("chatml"), false).unwrap(), "<|im_start|>user\nHi<|im_end|>\n");
    write("chat_template.json", r#"{"chat_template": "processor {{ bos_token }}"}"#);
    write("special_tokens_map.json", r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#);
    assert_eq!(text(None, false).unwrap(), "processor <s>");
    write(
        "tokenizer_config.json",
        r#"{"bos_token": "<b>", "chat_template": "config {{ bos_token }}{{ eos_token }}"}"#,
    );
    assert_eq!(text(None, false).unwrap(), "config <b></s>");
    write("tokenizer_config.json", r#"{"chat_template": [{"name": "rag", "template": "rag"}]}"#);
    let message = text(None, false).unwrap_err().to_string();
    assert!(message.contains("are rag, and none is the default"), "{message}");
    write(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#,
    );
    assert_eq!(
        [text(None, false).unwrap(), text(None, true).unwrap(), text(Some("tool_use"), false).unwrap()],
        ["d", "t", "t"]
    );
    write("chat_template.jinja", "file {{ messages[0].content }}");
    write("additional_chat_templates/rag.jinja", "rag of a file");
    assert_eq!(
        [text(None, false).unwrap(), text(None, true).unwrap(), text(Some("rag"), false).unwrap()],
        ["file Hi", "file Hi", "rag of a file"]
    );
    let message = text(Some("vicuna"), false).unwrap_err().to_string();
    assert!(
        message.contains(
            "\"vicuna\" is no file, and no template has this name; name a file, or one of chatml, llama3"
        ),
        "{message}"
    );
    assert!(message.contains("of the tokenizer's folder (default, rag)"), "{message}");
    write("chat_template.jinja", "a\n{% if %}");
    let message = text(None, false).unwrap_err().to_string();
    assert!(message.contains("the chat template cannot be read:") && message.contains("line 2"), "{message}");
}

/// What a template reads beside the chats decides whether their tokens can be used again.
#[test]
fn the_identity_of_a_template_has_what_its_texts_depend_on() {
    let identity = |source: &str| template_of(source).identity().to_string();
    assert_eq!(identity("a"), identity("a"));
    assert_ne!(identity("a"), identity("b"));
    assert!(identity("{{ strftime_now('%d') }}").contains("2026-03-07") && !identity("a").contains("2026"));
    let own = |tokenizer| Template::load(tokenizer, Some("chatml")).unwrap().identity().to_string();
    assert_ne!(own(Some(fixtures().join("tokenizer").as_path())), own(None));
}

/// Qwen 3's variable, in a template as small as may be.
#[test]
fn a_template_has_the_variables_of_the_recipe() {
    let source = "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %}!{% endif %}{{ date }}";
    let text = |variables: &str| {
        let template = template_of(source).with_variables(variables)?;
        let messages = Messages::new(&chat(r#"[{"role": "user", "content": "Hi"}]"#)).unwrap();
        Ok::<_, DataError>((template.render(&messages, false).unwrap(), template.identity().to_string()))
    };
    let (own, identity) = text("enable_thinking = false, date = '1 May'").unwrap();
    assert_eq!(own, "Hi!1 May");
    assert_eq!(text("enable_thinking = true").unwrap().0, "Hi");
    assert_ne!(text("enable_thinking = true").unwrap().1, identity);
    for (variables, reason) in [
        (
            "enable_thinkin = false",
            "sets `enable_thinkin`, and the chat template never reads it; it reads `date`, `enable_thinking`",
        ),
        ("messages = []", "sets `messages`, which the chat or the tokenizer gives the template"),
        ("bos_token = 'x'", "sets `bos_token`, which the chat or the tokenizer gives the template"),
        ("enable_thinking: false", "is no list of names and values as \"enable_thinking = false"),
        ("date = 2026-05-01", "a date is written as text"),
        ("date = 1 }\nx = { y = 2", "a bracket is closed that is not open"),
        ("", "it is empty"),
    ] {
        let message = text(variables).unwrap_err().to_string();
        assert!(message.contains(reason), "{variables}: {message}");
    }
    let message = template_of("{{ strftime_now('%d') }}").with_variables("a = 1").unwrap_err().to_string();
    assert!(message.ends_with("it reads no variables"), "{message}");
}
