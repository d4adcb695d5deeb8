//! One turn of a conversation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ToolCall;
use super::tool_call::parse_arguments;
use crate::text::TextError;

/// One message: a `role`, usually `content`, and whatever else the template knows
/// (`reasoning_content`, `tool_calls`, `name`, ...).
///
/// A JSON object in the form of the `OpenAI` API, its keys in their order. `content` may be a
/// text, a list of parts, null or absent; templates tell these apart.
///
/// ```
/// use slotstream::text::Message;
///
/// let turn = Message::new("assistant", "2").with("reasoning_content", "1 + 1");
/// assert_eq!(turn.role(), "assistant");
/// let same: Message = serde_json::from_str(
///     r#"{"role": "assistant", "content": "2", "reasoning_content": "1 + 1"}"#,
/// )?;
/// assert_eq!(turn, same);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Message {
    fields: Map<String, Value>,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<Value>) -> Self {
        let fields = [
            ("role".to_owned(), Value::String(role.into())),
            ("content".to_owned(), content.into()),
        ];
        Self { fields: fields.into_iter().collect() }
    }

    /// A `system` message.
    pub fn system(content: impl Into<Value>) -> Self {
        Self::new("system", content)
    }

    /// A `user` message.
    pub fn user(content: impl Into<Value>) -> Self {
        Self::new("user", content)
    }

    /// An `assistant` message.
    pub fn assistant(content: impl Into<Value>) -> Self {
        Self::new("assistant", content)
    }

    /// A `tool` message: what a called function answered.
    pub fn tool(content: impl Into<Value>) -> Self {
        Self::new("tool", content)
    }

    /// Sets `reasoning_content`: what a thinking model thought before this answer.
    #[must_use]
    pub fn with_reasoning(self, reasoning: impl Into<String>) -> Self {
        self.with("reasoning_content", reasoning.into())
    }

    /// Appends a call to `tool_calls`.
    #[must_use]
    pub fn with_tool_call(mut self, call: ToolCall) -> Self {
        let call = Value::from(call);
        match self.fields.get_mut("tool_calls") {
            Some(Value::Array(calls)) => calls.push(call),
            _ => self = self.with("tool_calls", vec![call]),
        }
        self
    }

    /// Makes objects of the `arguments` of `tool_calls` that are JSON texts.
    ///
    /// The `OpenAI` API sends them as texts; templates want objects, and take a text for no
    /// arguments or refuse it. An empty text becomes an object without keys.
    ///
    /// # Errors
    /// [`TextError::Arguments`] if such a text is no JSON object.
    pub fn with_parsed_arguments(mut self) -> Result<Self, TextError> {
        let calls = self.fields.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            // The wrapper `{"type": "function", "function": {...}}` may be absent.
            let wrapped = call.get("function").is_some();
            let function = if wrapped { call.get_mut("function") } else { Some(call) };
            let Some(function) = function.and_then(Value::as_object_mut) else { continue };
            if let Some(Value::String(text)) = function.get("arguments") {
                let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
                let arguments = parse_arguments(name, text)?;
                function.insert("arguments".into(), Value::Object(arguments));
            }
        }
        Ok(self)
    }

    /// Sets a further field. The role stays a text: setting `role` sets its text form.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        let (field, value) = (field.into(), value.into());
        let value = match value {
            Value::String(_) => value,
            other if field == "role" => Value::String(other.to_string()),
            other => other,
        };
        self.fields.insert(field, value);
        self
    }

    /// The `role`.
    #[must_use]
    pub fn role(&self) -> &str {
        self.fields.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// The `content`, or `None` where the message has none.
    #[must_use]
    pub fn content(&self) -> Option<&Value> {
        self.fields.get("content")
    }

    /// All fields in their order.
    #[must_use]
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }
}

impl TryFrom<Value> for Message {
    type Error = TextError;

    fn try_from(value: Value) -> Result<Self, TextError> {
        let found = match value {
            Value::Object(fields) => match fields.get("role") {
                Some(Value::String(_)) => return Ok(Self { fields }),
                Some(_) => "an object whose \"role\" is no string",
                None => "an object without \"role\"",
            },
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
        };
        Err(TextError::Message { found })
    }
}

impl From<Message> for Value {
    fn from(message: Message) -> Self {
        Self::Object(message.fields)
    }
}
