//! JSON as Python's `json.dumps` writes it: `", "` and `": "`, non-ASCII kept, floats by `repr`.

use std::fmt::Write;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// The most levels of lists and mappings; deeper values are refused.
const DEPTH: usize = 128;

pub(super) struct Style {
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) indent: Option<String>,
    /// Item and key separator.
    pub(super) separators: Option<Vec<String>>,
}

impl Style {
    pub(super) fn write(&self, value: &Value) -> Result<String, Error> {
        if self.separators.as_ref().is_some_and(|list| list.len() != 2) {
            let detail = "separators of tojson: expected an item and a key separator";
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        let mut out = String::new();
        self.value(value, 0, &mut out)?;
        Ok(out)
    }

    fn item_separator(&self) -> &str {
        match &self.separators {
            Some(separators) => &separators[0],
            None if self.indent.is_some() => ",",
            None => ", ",
        }
    }

    fn key_separator(&self) -> &str {
        match &self.separators {
            Some(separators) => &separators[1],
            None => ": ",
        }
    }

    fn value(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > DEPTH {
            let detail = "tojson: value is nested too deeply";
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, out)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq => self.list(value, depth, out)?,
            ValueKind::Map => self.mapping(value, depth, out)?,
            other => {
                let detail = format!("tojson: {other} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, detail));
            }
        }
        Ok(())
    }

    fn list(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.before_item(empty, depth + 1, out);
            empty = false;
            self.value(&item, depth + 1, out)?;
        }
        self.after_items(empty, depth, out);
        out.push(']');
        Ok(())
    }

    fn mapping(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.before_item(index == 0, depth + 1, out);
            self.key(key, out)?;
            out.push_str(self.key_separator());
            self.value(&value.get_item(key)?, depth + 1, out)?;
        }
        self.after_items(keys.is_empty(), depth, out);
        out.push('}');
        Ok(())
    }

    /// Keys that are no strings are written as strings, as Python does.
    fn key(&self, key: &Value, out: &mut String) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default(), out),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                out.push('"');
                self.value(key, 0, out)?;
                out.push('"');
            }
            other => {
                let detail = format!("tojson: {other} cannot be a key");
                return Err(Error::new(ErrorKind::InvalidOperation, detail));
            }
        }
        Ok(())
    }

    fn before_item(&self, first: bool, depth: usize, out: &mut String) {
        if !first {
            out.push_str(self.item_separator());
        }
        self.line(depth, out);
    }

    fn after_items(&self, empty: bool, depth: usize, out: &mut String) {
        if !empty {
            self.line(depth, out);
        }
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                ' '..='~' => out.push(character),
                _ if self.ensure_ascii || character < ' ' => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

fn number(value: &Value, out: &mut String) -> Result<(), Error> {
    if value.is_integer() {
        let _ = write!(out, "{value}");
    } else {
        out.push_str(&float(f64::try_from(value.clone())?));
    }
    Ok(())
}

/// Python's `repr` of a float: the shortest digits that read back, with an exponent from 1e16 on
/// and below 1e-4. Not-a-numbers and infinities as `json.dumps` spells them.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        return format!("{value:?}");
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => scientific,
    }
}
