//! A Jinja environment that behaves like the one of transformers.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use super::{json, python, strftime};

/// Work that one rendering may do: instructions, and one unit per 64 bytes of text made. A
/// conversation of a million tokens needs less than a tenth; a runaway template ends in seconds,
/// before it has made 2 GB.
const FUEL: u64 = 30_000_000;

/// The words of a template's `raise_exception`, found again among the causes of a failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

pub(super) fn transformers() -> Environment<'static> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    let syntax = syntax.build();
    environment.set_syntax(syntax.expect("the default delimiters are valid"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(|out, state, value| match python_float(value) {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("string", string);
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", python::trim);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime::strftime_now);
    environment
}

fn raise_exception(message: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "the template raised an exception");
    Err(error.with_source(Raised(message)))
}

/// Jinja's test: anything that can be counted and indexed, strings and mappings included.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}

/// Jinja's test: what a `for` accepts, which `none` is not.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Jinja's filter: `str(value)`, where Python writes floats in its own way.
fn string(value: &Value) -> String {
    python_float(value).unwrap_or_else(|| value.to_string())
}

/// `str(value)` of a finite float.
fn python_float(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    let float = f64::try_from(value.clone()).ok();
    float.filter(|float| float.is_finite()).map(json::float)
}

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let style = json::Style {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent: options
            .get::<Option<Value>>("indent")?
            .filter(|indent| !indent.is_none())
            .map(indentation)
            .transpose()?,
        separators: options.get::<Option<Vec<String>>>("separators")?,
    };
    options.assert_all_used()?;
    style.write(value).map(Value::from)
}

fn indentation(indent: Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    let spaces = i64::try_from(indent)?.clamp(0, 64);
    Ok(" ".repeat(spaces as usize))
}
