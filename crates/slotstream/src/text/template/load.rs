//! Where the template and the special tokens of a model folder come from.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use slotstream_checkpoint::check_json;

use crate::text::TextError;
use crate::text::files::{read_if_there, read_limited};

/// The most that is read of a template or of `tokenizer_config.json`.
const FILE_LIMIT: u64 = 16 << 20;

/// `tokenizer_config.json`, or nothing where there is no such file.
pub(super) struct Config {
    path: PathBuf,
    fields: Map<String, Value>,
}

/// Name and source of each template.
pub(super) type Named = Vec<(String, String)>;

impl Config {
    pub(super) fn read(path: &Path) -> Result<Self, TextError> {
        let fields = match read_if_there(path, FILE_LIMIT)? {
            None => Map::new(),
            Some(bytes) => {
                let expected = "a JSON object";
                check_json(path, "the tokenizer's settings", &bytes)
                    .map_err(|e| TextError::json(path, expected, e))?;
                serde_json::from_slice(&bytes).map_err(|source| TextError::Json {
                    path: path.into(),
                    expected,
                    source: source.into(),
                })?
            }
        };
        Ok(Self { path: path.into(), fields })
    }

    /// The fields `bos_token`, `eos_token`, ... that are not null, as texts.
    pub(super) fn special_tokens(&self) -> Map<String, Value> {
        let tokens = self.fields.iter().filter_map(|(name, value)| {
            let text = match value {
                Value::String(text) => text,
                // A token with its flags: {"content": "<s>", "lstrip": false, ...}.
                Value::Object(token) => token.get("content")?.as_str()?,
                _ => return None,
            };
            name.ends_with("_token").then(|| (name.clone(), Value::from(text)))
        });
        tokens.collect()
    }

    /// The field `chat_template`: one template or a list of named ones.
    fn templates(&self) -> Result<Option<Named>, TextError> {
        let wrong = || TextError::Field {
            path: self.path.clone(),
            field: "chat_template",
            expected: "a template, or a list of objects with the strings name and template",
        };
        match self.fields.get("chat_template") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(source)) => Ok(Some(only(source.clone()))),
            Some(Value::Array(list)) if !list.is_empty() => {
                let named = list.iter().map(|entry| {
                    let text = |field| entry.get(field).and_then(Value::as_str);
                    let (name, source) = text("name").zip(text("template")).ok_or_else(wrong)?;
                    Ok((name.to_owned(), source.to_owned()))
                });
                named.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(wrong()),
        }
    }
}

/// The templates to use, and the file they stand in.
pub(super) fn templates(
    folder: &Path,
    file: Option<&Path>,
    config: &Config,
) -> Result<(PathBuf, Named), TextError> {
    if let Some(file) = file {
        let source = text(file, read_limited(file, FILE_LIMIT)?)?;
        return Ok((file.into(), only(source)));
    }
    let jinja = folder.join("chat_template.jinja");
    if let Some(bytes) = read_if_there(&jinja, FILE_LIMIT)? {
        let source = text(&jinja, bytes)?;
        return Ok((jinja, only(source)));
    }
    match config.templates()? {
        Some(templates) => Ok((config.path.clone(), templates)),
        None => Err(TextError::NoTemplate { folder: folder.into() }),
    }
}

fn only(source: String) -> Named {
    vec![("default".to_owned(), source)]
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, TextError> {
    String::from_utf8(bytes).map_err(|source| TextError::Json {
        path: path.into(),
        expected: "UTF-8 text",
        source: source.into(),
    })
}
