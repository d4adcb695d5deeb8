use std::error::Error;
use std::path::Path;

use serde_json::{Map, Value, json};
use slotstream_core::ErrorKind;

use super::strftime::strftime;
use super::{ChatOptions, ChatTemplate, Message};
use crate::text::TextError;
use crate::text::tokenizer::tests::{bundled, bundled_folder, data};

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::from_source(Path::new("test.jinja"), source, Map::new()).unwrap()
}

fn render(source: &str, options: &ChatOptions) -> Result<String, TextError> {
    template(source).render(&[Message::user("hi")], options)
}

fn goldens() -> Value {
    serde_json::from_slice(&std::fs::read(data("template/goldens.json")).unwrap()).unwrap()
}

fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

#[test]
fn snippets_render_as_in_transformers() {
    let golden = goldens();
    let options = ChatOptions {
        extra: golden["values"].as_object().unwrap().clone(),
        ..ChatOptions::default()
    };
    let snippets = golden["snippets"].as_array().unwrap();
    assert_eq!(snippets.len(), 68);
    let mut wrong = Vec::new();
    for snippet in snippets {
        let (source, expected) = (&snippet["template"], snippet["rendered"].as_str());
        let source = source.as_str().unwrap();
        let compiled = ChatTemplate::from_source(Path::new("snippet"), source, Map::new());
        match compiled.and_then(|template| template.render(&[], &options)) {
            Ok(got) if Some(got.as_str()) == expected => {}
            Ok(got) => wrong.push(format!("{source}\n  got      {got:?}\n  expected {expected:?}")),
            Err(error) => wrong.push(format!("{source}\n  {}", causes(&error))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_bundled_template_encodes_as_the_reference() {
    let template = ChatTemplate::load(&bundled_folder(), None).unwrap();
    let text =
        template.render(&[Message::user("What is a vector?")], &ChatOptions::default()).unwrap();
    let golden: Value =
        serde_json::from_slice(&std::fs::read(data("tiny_moe_tokenizer.json")).unwrap()).unwrap();
    let ids: Vec<u32> = serde_json::from_value(golden[&text].clone()).unwrap();
    assert_eq!(bundled().encode(&text, false).unwrap(), ids);

    let options = ChatOptions { add_generation_prompt: false, ..ChatOptions::default() };
    let turns = [Message::system("Be kind."), Message::user("hi"), Message::assistant("hello")];
    assert_eq!(
        template.render(&turns, &options).unwrap(),
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\
         <|im_start|>assistant\nhello<|im_end|>\n"
    );
}

/// A model folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn the_template_is_found_where_transformers_finds_it() {
    let config = r#"{"chat_template": "from the config {{ bos_token }}{{ eos_token }}",
        "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null}"#;
    let load = |files: &[(&str, &str)], file: Option<&Path>| {
        ChatTemplate::load(folder(files).path(), file)
    };
    let text = |loaded: Result<ChatTemplate, TextError>| {
        loaded.unwrap().render(&[], &ChatOptions::default()).unwrap()
    };
    let in_config = ("tokenizer_config.json", config);
    assert_eq!(text(load(&[in_config], None)), "from the config <s></s>");
    let jinja = ("chat_template.jinja", "from the file {{ eos_token }}{{ pad_token is defined }}");
    assert_eq!(text(load(&[in_config, jinja], None)), "from the file </s>False");
    let other = folder(&[("mine.jinja", "mine {{ bos_token }}")]);
    let mine = other.path().join("mine.jinja");
    assert_eq!(text(load(&[in_config, jinja], Some(&mine))), "mine <s>");
    assert_eq!(text(load(&[], Some(&mine))), "mine ");

    for files in [&[][..], &[("tokenizer_config.json", "{}")]] {
        let error = load(files, None).unwrap_err();
        assert!(matches!(error, TextError::NoTemplate { .. }), "{error:?}");
    }
    let random = ChatTemplate::load(&data("random_fixture"), None).unwrap_err();
    assert!(matches!(random, TextError::NoTemplate { .. }), "{random:?}");
    let missing = load(&[jinja], Some(Path::new("no such file"))).unwrap_err();
    assert!(matches!(missing, TextError::Read { .. }), "{missing:?}");
    for (wrong, field) in [("{\"chat_template\": 5}", true), ("[]", false), ("{", false)] {
        let error = load(&[("tokenizer_config.json", wrong)], None).unwrap_err();
        assert_eq!(matches!(error, TextError::Field { .. }), field, "{error:?}");
        assert_eq!(matches!(error, TextError::Json { .. }), !field, "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let list = r#"{"chat_template": [{"name": "default"}]}"#;
    let error = load(&[("tokenizer_config.json", list)], None).unwrap_err();
    assert!(matches!(error, TextError::Field { .. }), "{error:?}");
}

#[test]
fn named_templates_are_chosen_by_name_or_by_tools() {
    let config = r#"{"chat_template": [{"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]}"#;
    let folder = folder(&[("tokenizer_config.json", config)]);
    let template = ChatTemplate::load(folder.path(), None).unwrap();
    assert_eq!(template.names(), ["default", "tool_use", "rag"]);
    let mut options = ChatOptions::default();
    assert_eq!(template.render(&[], &options).unwrap(), "D");
    options.tools = vec![json!({"name": "f"})];
    assert_eq!(template.render(&[], &options).unwrap(), "T");
    options.template = Some("rag".into());
    assert_eq!(template.render(&[], &options).unwrap(), "R");
    options.template = Some("none".into());
    let error = template.render(&[], &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert_eq!(
        error.to_string(),
        "no chat template is named \"none\"; there are: default, tool_use, rag"
    );
}

#[test]
fn syntax_errors_name_file_and_line() {
    for (source, at) in [
        ("a\nb\n{% generation %}x{% endgeneration %}", 3),
        ("{{ 1 + }}", 1),
        ("\n{% if x %}", 2),
        ("\n\n{% for a in b %}{% endif %}", 3),
    ] {
        let error =
            ChatTemplate::from_source(Path::new("t.jinja"), source, Map::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        match &error {
            TextError::TemplateSyntax { line, .. } => assert_eq!(*line, at, "{source}"),
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().contains("t.jinja"), "{error}");
        assert!(!error.source().unwrap().to_string().is_empty());
    }
    let tag = ChatTemplate::from_source(Path::new("t"), "{% generation %}", Map::new());
    assert!(causes(&tag.unwrap_err()).contains("generation"));
}

#[test]
fn failures_while_rendering_name_the_line() {
    for (source, at, part) in [
        ("\n{{ messages[0].content.no_such_method() }}", 2, "no_such_method"),
        ("a\n\n{{ nothing.at_all }}", 3, "undefined"),
        ("{{ none_such_function(1) }}", 1, "none_such_function"),
        ("{{ messages | none_such_filter }}", 1, "none_such_filter"),
        ("\n{% include 'secret' %}", 2, "secret"),
        ("{{ missing | tojson }}", 1, "tojson"),
        ("{{ [1] | tojson(separators=['a']) }}", 1, "separators"),
        ("{{ [1] | tojson(color=1) }}", 1, "color"),
        ("{{ strftime_now('%Q') }}", 1, "%Q"),
        ("{{ 'a' + 1 }}", 1, "+"),
    ] {
        let error = render(source, &ChatOptions::default()).unwrap_err();
        match &error {
            TextError::TemplateRender { line, .. } => assert_eq!(*line, at, "{source}"),
            other => panic!("{source}: {other:?}"),
        }
        assert!(causes(&error).contains(part), "{}", causes(&error));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn the_templates_own_words_come_through() {
    let source = "\n{% macro check(m) %}\n{{ raise_exception('Not ' ~ m.role) }}\n{% endmacro %}\n\
                  {{ check(messages[0]) }}";
    let error = render(source, &ChatOptions::default()).unwrap_err();
    match &error {
        TextError::Refused { line, message, .. } => {
            assert_eq!((*line, message.as_str()), (3, "Not user"));
        }
        other => panic!("{other:?}"),
    }
    assert!(error.to_string().contains("Not user"), "{error}");
}

#[test]
fn runaway_templates_end() {
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ] {
        let error = render(source, &ChatOptions::default()).unwrap_err();
        assert!(matches!(error, TextError::TemplateRender { .. }), "{error:?}");
    }
}

#[test]
fn variables_have_their_names() {
    let source = "{{ enable_thinking }} {{ tools is none }} {{ documents is none }} \
                  {{ add_generation_prompt }} {{ reasoning_effort }}";
    let options =
        ChatOptions::default().with("enable_thinking", false).with("reasoning_effort", "low");
    assert_eq!(render(source, &options).unwrap(), "False True True True low");
    let documents = ChatOptions::default().with("documents", json!([{"title": "a"}]));
    assert_eq!(render("{{ documents[0].title }}", &documents).unwrap(), "a");
    for name in ["messages", "tools", "add_generation_prompt"] {
        let error = render("", &ChatOptions::default().with(name, 1)).unwrap_err();
        assert!(matches!(error, TextError::ReservedVariable { .. }), "{error:?}");
    }
}

#[test]
fn messages_keep_their_fields_and_order() {
    let text = r#"{"z": 1, "role": "tool", "content": null, "name": "f", "a": {"y": 1, "b": 2}}"#;
    let message: Message = serde_json::from_str(text).unwrap();
    assert_eq!((message.role(), message.content()), ("tool", Some(&Value::Null)));
    assert_eq!(
        serde_json::to_string(&message).unwrap(),
        text.replace(": ", ":").replace(", ", ",")
    );
    let rendered =
        template("{{ messages[0] | tojson }}").render(&[message], &ChatOptions::default());
    assert_eq!(rendered.unwrap(), text);
    let absent: Message = serde_json::from_str(r#"{"role": "user"}"#).unwrap();
    assert_eq!(absent.content(), None);
    for (wrong, part) in [("[]", "an array"), ("{}", "without"), ("{\"role\": 1}", "no string")] {
        let error = serde_json::from_str::<Message>(wrong).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let built = Message::new("user", "x").with("role", 5).with("name", json!(["n"]));
    assert_eq!(built.role(), "5");
    assert_eq!(built.fields()["name"], json!(["n"]));
}

/// Expected values by Python's `datetime.strftime`.
#[test]
fn dates_follow_the_calendar() {
    let format = "%Y-%m-%d %H:%M:%S %j %A %B|%a %b %-d %-m %I %p %y %%";
    for (seconds, expected) in [
        (0, "1970-01-01 00:00:00 001 Thursday January|Thu Jan 1 1 12 AM 70 %"),
        (951_825_599, "2000-02-29 11:59:59 060 Tuesday February|Tue Feb 29 2 11 AM 00 %"),
        (1_735_689_599, "2024-12-31 23:59:59 366 Tuesday December|Tue Dec 31 12 11 PM 24 %"),
        (1_735_689_600, "2025-01-01 00:00:00 001 Wednesday January|Wed Jan 1 1 12 AM 25 %"),
        (4_107_542_400, "2100-03-01 00:00:00 060 Monday March|Mon Mar 1 3 12 AM 00 %"),
    ] {
        assert_eq!(strftime(seconds, format).unwrap(), expected);
    }
    let year = render("{{ strftime_now('%Y') }}", &ChatOptions::default()).unwrap();
    assert!(year.parse::<u32>().unwrap() >= 2025, "{year}");
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    let room = super::SOURCE_LIMIT - 16;
    for deep in ["-".repeat(room), "not ".repeat(room / 4), format!("1{}", "+1".repeat(room / 2))] {
        let source = if deep.starts_with('1') {
            format!("{{{{ {deep} }}}}")
        } else {
            format!("{{{{ {deep}1 }}}}")
        };
        // Compiled or refused: either is fine, ending the process is not.
        if let Err(error) = ChatTemplate::from_source(Path::new("deep.jinja"), &source, Map::new())
        {
            assert!(error.to_string().contains("deep.jinja"), "{error}");
        }
    }
    let long = "x".repeat(super::SOURCE_LIMIT + 1);
    let error = ChatTemplate::from_source(Path::new("long.jinja"), &long, Map::new()).unwrap_err();
    assert!(matches!(error, TextError::TooLarge { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
