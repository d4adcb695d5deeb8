//! The checkpoint's own chat template.

mod environment;
mod json;
mod load;
mod message;
mod python;
mod strftime;
#[cfg(test)]
mod tests;
mod tool_call;

pub use message::Message;
pub use tool_call::{ContentPart, ToolCall};

use std::error::Error as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::TextError;
use environment::Raised;

/// A compiled chat template, or several named ones, as transformers renders them.
///
/// The Jinja dialect is that of transformers: blocks are trimmed, Python's string and dict
/// methods exist, `tojson` writes as Python does, `raise_exception` refuses a conversation,
/// `break` and `continue` work. A template can neither include files nor run without end: its work
/// is bounded. Missing from the dialect: `"..." % value` (the `format` filter does it) and the tag
/// `generation`; both are errors that name the line.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: minijinja::Environment<'static>,
    /// Names in the order of the file; `default` alone where there is only one.
    names: Vec<String>,
    path: PathBuf,
    special_tokens: Map<String, Value>,
    digest: [u8; 32],
}

/// What a template is given beside the messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChatOptions {
    /// `tools`: function descriptions in the form of the `OpenAI` API, whole. Empty is none.
    pub tools: Vec<Value>,
    /// `add_generation_prompt`: end with the head of an assistant turn. Default true.
    pub add_generation_prompt: bool,
    /// Which of several named templates; by default `tool_use` if there are tools and it exists,
    /// else `default`.
    pub template: Option<String>,
    /// Further variables: `enable_thinking`, `reasoning_effort`, `documents`, ...
    pub extra: Map<String, Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { tools: Vec::new(), add_generation_prompt: true, template: None, extra: Map::new() }
    }
}

impl ChatOptions {
    /// Adds a tool: a function description in the form of the `OpenAI` API, whole.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<Value>) -> Self {
        self.tools.push(tool.into());
        self
    }

    /// Whether to end with the head of an assistant turn.
    #[must_use]
    pub const fn with_generation_prompt(mut self, add: bool) -> Self {
        self.add_generation_prompt = add;
        self
    }

    /// Chooses one of several named templates.
    #[must_use]
    pub fn with_template(mut self, name: impl Into<String>) -> Self {
        self.template = Some(name.into());
        self
    }

    /// Sets a further template variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

/// Longest source of a template; that of Qwen3.8 has 9 KB.
const SOURCE_LIMIT: usize = 64 << 10;

/// Stack for compiling a source of [`SOURCE_LIMIT`] bytes: 4 KiB for each level that a byte of it
/// can open (`not not not ...`). Only what is used becomes real.
const STACK: usize = 4096 * SOURCE_LIMIT;

/// Runs the compiler where its recursion cannot overflow the stack, which would end the process.
fn with_deep_stack<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> Result<T, TextError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|source| TextError::Thread { path: path.into(), source })?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

impl ChatTemplate {
    /// The template of a model folder.
    ///
    /// `file`, if given, wins: a Jinja file that stands in for a faulty template. Then comes
    /// `chat_template.jinja`, then `chat_template` of `tokenizer_config.json` (one template, or a
    /// list of named ones). The special tokens (`bos_token`, `eos_token`, ...) are those of
    /// `tokenizer_config.json`, which may be absent.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`] if there is none; [`TextError::TemplateSyntax`] with the line;
    /// [`TextError::Read`], [`TextError::TooLarge`], [`TextError::Json`] and [`TextError::Field`]
    /// for the files.
    pub fn load(folder: &Path, file: Option<&Path>) -> Result<Self, TextError> {
        let config = load::Config::read(&folder.join("tokenizer_config.json"))?;
        let (path, templates) = load::templates(folder, file, &config)?;
        Self::compile(path, templates, config.special_tokens())
    }

    /// A template from its source text; `path` names it in errors.
    ///
    /// `special_tokens` become variables, such as `bos_token`.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`] with the line.
    pub fn from_source(
        path: &Path,
        source: &str,
        special_tokens: Map<String, Value>,
    ) -> Result<Self, TextError> {
        let only = vec![("default".to_owned(), source.to_owned())];
        Self::compile(path.into(), only, special_tokens)
    }

    fn compile(
        path: PathBuf,
        templates: Vec<(String, String)>,
        special_tokens: Map<String, Value>,
    ) -> Result<Self, TextError> {
        let mut environment = environment::transformers();
        let mut names = Vec::with_capacity(templates.len());
        let mut digest = Sha256::new();
        for (name, source) in templates {
            for text in [&name, &source] {
                digest.update((text.len() as u64).to_le_bytes());
                digest.update(text);
            }
            if source.len() > SOURCE_LIMIT {
                return Err(TextError::TooLarge { path, limit: SOURCE_LIMIT as u64 });
            }
            let added =
                with_deep_stack(&path, || environment.add_template_owned(name.clone(), source))?;
            added.map_err(|error| TextError::TemplateSyntax {
                path: path.clone(),
                line: error.line().unwrap_or(1),
                source: error.into(),
            })?;
            names.push(name);
        }
        digest.update(Value::from(special_tokens.clone()).to_string());
        let digest = digest.finalize().into();
        Ok(Self { environment, names, path, special_tokens, digest })
    }

    /// SHA-256 over names and sources of the templates and the special tokens.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Names of the templates, in the order of the file; `default` alone where there is only one.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The file that the template came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The prompt text of a conversation, to be encoded without added special tokens.
    ///
    /// # Errors
    /// [`TextError::Refused`] with the template's words if it raises an exception;
    /// [`TextError::TemplateRender`] with the line for any other failure;
    /// [`TextError::TemplateName`] and [`TextError::ReservedVariable`] for wrong options.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, TextError> {
        let name = self.select(options)?;
        let context = self.context(messages, options)?;
        let template = self.environment.get_template(name);
        template
            .and_then(|template| template.render(minijinja::value::Serde(context)))
            .map_err(|error| self.failure(error))
    }

    fn select(&self, options: &ChatOptions) -> Result<&str, TextError> {
        let find = |wanted: &str| self.names.iter().find(|name| *name == wanted);
        let found = match &options.template {
            Some(wanted) => find(wanted),
            None => {
                find("tool_use").filter(|_| !options.tools.is_empty()).or_else(|| find("default"))
            }
        };
        found.map(String::as_str).ok_or_else(|| TextError::TemplateName {
            name: options.template.as_deref().unwrap_or("default").into(),
            available: self.names.clone(),
        })
    }

    /// The template's variables: `tools` and `documents` are none, not undefined, where absent.
    fn context(
        &self,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Map<String, Value>, TextError> {
        let mut context = self.special_tokens.clone();
        context.insert("documents".into(), Value::Null);
        for (name, value) in &options.extra {
            if ["messages", "tools", "add_generation_prompt"].contains(&name.as_str()) {
                return Err(TextError::ReservedVariable { name: name.clone() });
            }
            context.insert(name.clone(), value.clone());
        }
        let messages = messages.iter().cloned().map(Value::from).collect();
        context.insert("messages".into(), Value::Array(messages));
        let tools = match options.tools.as_slice() {
            [] => Value::Null,
            tools => Value::Array(tools.to_vec()),
        };
        context.insert("tools".into(), tools);
        let prompt = options.add_generation_prompt;
        context.insert("add_generation_prompt".into(), prompt.into());
        Ok(context)
    }

    fn failure(&self, error: minijinja::Error) -> TextError {
        let path = self.path.clone();
        let line = error.line().unwrap_or(1);
        let mut cause = error.source();
        while let Some(source) = cause {
            if let Some(Raised(message)) = source.downcast_ref() {
                return TextError::Refused { path, line, message: message.clone() };
            }
            cause = source.source();
        }
        TextError::TemplateRender { path, line, source: error.into() }
    }
}
