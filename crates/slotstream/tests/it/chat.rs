//! Conversations through chat templates, byte for byte as Jinja2 renders them.

use std::path::PathBuf;

use serde_json::{Value, json};
use slotstream::core::ErrorKind;
use slotstream::text::{ChatOptions, ChatTemplate, ContentPart, Message, TextError, ToolCall};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) fn golden(name: &str) -> Value {
    let text = std::fs::read(data(name)).expect("a golden");
    serde_json::from_slice(&text).expect("JSON")
}

/// Our own template for the format of Qwen3.8.
pub(crate) fn qwen() -> ChatTemplate {
    let file = data("qwen/qwen3.8.jinja");
    ChatTemplate::load(&data("qwen"), Some(&file)).expect("compiles")
}

/// The messages and options of a golden; every other key of it is a variable of the template.
pub(crate) fn conversation(golden: &Value) -> (Vec<Message>, ChatOptions) {
    let (mut messages, mut options) = (Vec::new(), ChatOptions::default());
    for (name, value) in golden.as_object().expect("an object") {
        match (name.as_str(), value) {
            ("messages", turns) => {
                messages = serde_json::from_value(turns.clone()).expect("messages");
            }
            ("tools", Value::Array(tools)) => {
                options = tools.iter().cloned().fold(options, ChatOptions::with_tool);
            }
            ("add_generation_prompt", Value::Bool(add)) => {
                options = options.with_generation_prompt(*add);
            }
            ("name" | "rendered" | "ids" | "error" | "refused", _) => {}
            (variable, value) => options = options.with(variable, value.clone()),
        }
    }
    (messages, options)
}

fn list<'a>(golden: &'a Value, name: &str) -> &'a Vec<Value> {
    golden[name].as_array().expect("a list")
}

/// The template's own words where it refuses.
fn refusal(template: &ChatTemplate, golden: &Value) -> String {
    let (messages, options) = conversation(golden);
    match template.render(&messages, &options) {
        Err(error @ TextError::Refused { .. }) => {
            assert_eq!(error.kind(), ErrorKind::User);
            let TextError::Refused { message, .. } = error else { unreachable!() };
            message
        }
        other => panic!("not refused: {other:?}, {golden}"),
    }
}

#[test]
fn conversations_in_the_format_of_qwen() {
    let (template, golden) = (qwen(), golden("qwen/chat_golden.json"));
    let cases = list(&golden, "cases");
    assert_eq!(cases.len(), 15);
    for case in cases {
        let (messages, options) = conversation(case);
        let text = template.render(&messages, &options).expect("renders");
        assert_eq!(Some(text.as_str()), case["rendered"].as_str(), "{}", case["name"]);
    }
}

#[test]
fn conversations_that_the_format_of_qwen_refuses() {
    let (template, golden) = (qwen(), golden("qwen/chat_golden.json"));
    let errors = list(&golden, "errors");
    assert_eq!(errors.len(), 5);
    for case in errors {
        assert_eq!(Some(refusal(&template, case).as_str()), case["error"].as_str());
    }
}

#[test]
fn conversations_of_an_agent() {
    let template = ChatTemplate::load(&data("template"), Some(&data("template/agent.jinja")));
    let (template, golden) = (template.expect("compiles"), golden("template/goldens.json"));
    let chats = list(&golden, "chats");
    assert_eq!(chats.len(), 17);
    for chat in chats {
        if let Some(words) = chat.get("refused") {
            assert_eq!(Some(refusal(&template, chat).as_str()), words.as_str(), "{chat}");
            continue;
        }
        let (messages, options) = conversation(chat);
        let text = template.render(&messages, &options).expect("renders");
        assert_eq!(Some(text.as_str()), chat["rendered"].as_str(), "{chat}");
    }
}

/// A round of tools as a program writes it, without JSON.
#[test]
fn typed_messages_equal_those_of_json() {
    let golden = golden("qwen/chat_golden.json");
    let case = list(&golden, "cases").iter().find(|case| case["name"] == "tool_round");
    let case = case.expect("the round of tools");
    let paris = ToolCall::parse("get_weather", r#"{"city": "Paris", "days": 2}"#).expect("JSON");
    let rome = json!({"city": "Rome", "opts": {"a": [1, "x"], "é": null}, "flag": true});
    let rome = ToolCall::new("get_weather", rome.as_object().expect("an object").clone());
    assert_eq!((paris.name(), &paris.arguments()["days"]), ("get_weather", &json!(2)));
    let messages = [
        Message::user("Weather in Paris and Rome?"),
        Message::assistant("Let me look.")
            .with_reasoning("need tool")
            .with_tool_call(paris.with_id("c1"))
            .with_tool_call(rome.with_id("c1")),
        Message::tool("12 C"),
        Message::tool("20 C"),
    ];
    let (from_json, options) = conversation(case);
    assert_eq!(messages.as_slice(), from_json);
    let text = qwen().render(&messages, &options).expect("renders");
    assert_eq!(Some(text.as_str()), case["rendered"].as_str());
}

/// A template's work is bounded; a conversation that fills the longest context is far below.
#[test]
fn long_conversations_are_no_runaway_template() {
    let words = "It is a truth universally acknowledged. ".repeat(5);
    let turns = |i: usize| {
        let call = ToolCall::parse("f", r#"{"a": [1, 2, {"b": null}]}"#).expect("JSON");
        let said = format!("{i} {words}");
        let answer = Message::assistant(said.clone()).with_reasoning("So.").with_tool_call(call);
        [Message::user(said), answer, Message::tool("done")]
    };
    let messages: Vec<Message> = (0..4_000).flat_map(turns).collect();
    let text = qwen().render(&messages, &ChatOptions::default()).expect("renders");
    assert_eq!(text.matches("<|im_start|>").count(), 1 + messages.len() + 1);
    assert_eq!(text.matches("{\"b\": null}").count(), 4_000);
    assert!(text.len() > 2_000_000);
}

#[test]
fn parts_are_texts_and_places_of_images() {
    let parts = vec![ContentPart::image(), ContentPart::text(" What? "), ContentPart::video()];
    let options =
        ChatOptions::default().with("enable_thinking", false).with_generation_prompt(false);
    let text = qwen().render(&[Message::user(parts)], &options).expect("renders");
    assert_eq!(
        text,
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|> What? \
         <|vision_start|><|video_pad|><|vision_end|><|im_end|>\n"
    );
}

/// The `OpenAI` API sends arguments as text, the template wants an object.
#[test]
fn arguments_as_text_are_refused_until_parsed() {
    let call = |arguments: &str| {
        let call = json!({"type": "function", "function": {"name": "f", "arguments": arguments}});
        Message::assistant("").with("tool_calls", vec![call])
    };
    let user = Message::user("hi");
    let options = ChatOptions::default();
    let error = qwen().render(&[user.clone(), call(r#"{"a": 1}"#)], &options).expect_err("a text");
    assert!(error.to_string().contains("must be an object"), "{error}");

    let parsed = call(r#"{"b": 1.50, "a": "x"}"#).with_parsed_arguments().expect("an object");
    let text = qwen().render(&[user.clone(), parsed.clone()], &options).expect("renders");
    let written =
        "<function=f>\n<parameter=b>\n1.5\n</parameter>\n<parameter=a>\nx\n</parameter>\n";
    assert!(text.contains(written), "{text}");
    assert_eq!(parsed.clone().with_parsed_arguments().expect("already parsed"), parsed);
    let empty = call("").with_parsed_arguments().expect("no arguments");
    assert!(qwen().render(&[user, empty], &options).is_ok());

    let bare = Message::assistant("")
        .with("tool_calls", vec![json!({"name": "g", "arguments": r#"{"k": []}"#})])
        .with_parsed_arguments()
        .expect("an object");
    assert_eq!(bare.fields()["tool_calls"][0]["arguments"], json!({"k": []}));
    for wrong in ["[1]", "{", "7", "{} {}"] {
        let error = call(wrong).with_parsed_arguments().expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::User);
        assert!(error.to_string().contains("\"f\""), "{error}");
        assert!(ToolCall::parse("f", wrong).is_err());
    }
}
