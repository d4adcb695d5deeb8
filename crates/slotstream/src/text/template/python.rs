//! Python's methods of strings, dicts and lists, where templates rely on them.

use minijinja::value::{Tuple, from_args};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat;

/// Methods that differ from Rust's idea of them, or that pycompat lacks; it does the rest.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    let stripped = match (name, args) {
        ("strip", []) => text.trim_matches(is_space),
        ("lstrip", []) => text.trim_start_matches(is_space),
        ("rstrip", []) => text.trim_end_matches(is_space),
        ("removeprefix", _) => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text)
        }
        ("removesuffix", _) => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text)
        }
        ("partition", _) => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, found, tail) = match text.split_once(separator) {
                Some((head, tail)) => (head, separator, tail),
                None => (text, "", ""),
            };
            return Ok(tuple(head, found, tail));
        }
        ("rpartition", _) => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, found, tail) = match text.rsplit_once(separator) {
                Some((head, tail)) => (head, separator, tail),
                None => ("", "", text),
            };
            return Ok(tuple(head, found, tail));
        }
        _ => return pycompat::unknown_method_callback(state, value, name, args),
    };
    Ok(Value::from(stripped))
}

fn tuple(head: &str, separator: &str, tail: &str) -> Value {
    Value::from(Tuple::from([head, separator, tail].map(Value::from)))
}

/// Jinja's `trim` filter: `str(value).strip(chars)`.
pub(super) fn trim(value: &Value, chars: Option<String>) -> String {
    let text = value.to_string();
    match chars {
        None => text.trim_matches(is_space).to_owned(),
        Some(chars) => text.trim_matches(|character| chars.contains(character)).to_owned(),
    }
}

/// What Python's `str.isspace` accepts: Unicode's white space and four separators of ASCII.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}
