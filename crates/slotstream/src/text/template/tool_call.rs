//! What a message can hold beside plain text.

use serde_json::{Map, Value, json};

use crate::text::TextError;

/// A function that the model called, for [`Message::with_tool_call`](super::Message::with_tool_call).
///
/// ```
/// use serde_json::json;
/// use slotstream::text::{Message, ToolCall};
///
/// let call = ToolCall::parse("weather", r#"{"city": "Paris", "days": 2}"#)?.with_id("c1");
/// let turn = Message::assistant("").with_tool_call(call);
/// assert_eq!(
///     turn.fields()["tool_calls"][0],
///     json!({
///         "type": "function",
///         "id": "c1",
///         "function": {"name": "weather", "arguments": {"city": "Paris", "days": 2}},
///     })
/// );
/// # Ok::<(), slotstream::text::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    id: Option<String>,
    name: String,
    arguments: Map<String, Value>,
}

impl ToolCall {
    /// A call with these arguments, in their order.
    pub fn new(name: impl Into<String>, arguments: Map<String, Value>) -> Self {
        Self { id: None, name: name.into(), arguments }
    }

    /// A call whose arguments are a JSON text, as the `OpenAI` API sends them; an empty text is no
    /// arguments.
    ///
    /// # Errors
    /// [`TextError::Arguments`] if the text is no JSON object.
    pub fn parse(name: impl Into<String>, arguments: &str) -> Result<Self, TextError> {
        let name = name.into();
        let arguments = parse_arguments(&name, arguments)?;
        Ok(Self::new(name, arguments))
    }

    /// Sets the id by which an answer refers to the call.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Name of the function.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The arguments in their order.
    #[must_use]
    pub const fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }
}

impl From<ToolCall> for Value {
    fn from(call: ToolCall) -> Self {
        let mut fields = Map::new();
        fields.insert("type".into(), "function".into());
        if let Some(id) = call.id {
            fields.insert("id".into(), id.into());
        }
        let function = json!({ "name": call.name, "arguments": call.arguments });
        fields.insert("function".into(), function);
        Self::Object(fields)
    }
}

/// The arguments of a call of `function` in a JSON text.
pub(super) fn parse_arguments(function: &str, text: &str) -> Result<Map<String, Value>, TextError> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text)
        .map_err(|source| TextError::Arguments { function: function.into(), source: source.into() })
}

/// A part of a message's content. A list of parts is a content:
/// `Message::user(vec![ContentPart::image(), ContentPart::text("What is this?")])`.
///
/// Templates write placeholders for images and videos; this library computes nothing from them.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentPart {
    fields: Map<String, Value>,
}

impl ContentPart {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        let mut part = Self::of_type("text");
        part.fields.insert("text".into(), Value::String(text.into()));
        part
    }

    /// An image's place.
    #[must_use]
    pub fn image() -> Self {
        Self::of_type("image")
    }

    /// A video's place.
    #[must_use]
    pub fn video() -> Self {
        Self::of_type("video")
    }

    fn of_type(name: &str) -> Self {
        Self { fields: [("type".to_owned(), name.into())].into_iter().collect() }
    }
}

impl From<ContentPart> for Value {
    fn from(part: ContentPart) -> Self {
        Self::Object(part.fields)
    }
}
