//! The quantization block of `config.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use slotstream_core::{AffineFormat, LayerIdx, Matrix};

use crate::CheckpointError;
use crate::json::{self, Fields};
use crate::names::{canonical, expert_module};

/// Which module is quantized how: a default and overrides by module.
///
/// Source: `quantization` (or `quantization_config`) of `config.json`. Keys may be written with
/// or without `language_model.`; here they are without.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantization {
    /// The format of every quantized module without an override.
    pub default: AffineFormat,
    /// Overrides by canonical module name; `None` says that the module is not quantized.
    pub overrides: BTreeMap<String, Option<AffineFormat>>,
}

impl Quantization {
    /// The format of a module, named without `language_model.`; `None` when an override says
    /// that it is not quantized.
    #[must_use]
    pub fn format(&self, module: &str) -> Option<AffineFormat> {
        self.overrides.get(module).copied().unwrap_or(Some(self.default))
    }

    /// The one format of all experts.
    pub(crate) fn expert_format(
        &self,
        path: &Path,
        layers: usize,
    ) -> Result<AffineFormat, CheckpointError> {
        let name =
            |format: Option<AffineFormat>| format.map_or("nothing".to_owned(), |f| show_format(&f));
        let mut first = None;
        for layer in 0..layers {
            let layer = LayerIdx::new(u16::try_from(layer).unwrap_or(u16::MAX));
            for matrix in [Matrix::Gate, Matrix::Up, Matrix::Down] {
                let module = expert_module(layer, matrix);
                let found = self.format(&module);
                let expected = *first.get_or_insert(found);
                if found != expected || found.is_none() {
                    return Err(CheckpointError::MixedExperts {
                        path: path.into(),
                        module,
                        found: name(found),
                        expected: name(expected),
                    });
                }
            }
        }
        Ok(first.flatten().unwrap_or(self.default))
    }

    pub(crate) fn parse(top: &Fields<'_>, text: &Fields<'_>) -> Result<Self, CheckpointError> {
        let names = ["quantization", "quantization_config"];
        let mut found: Option<(Self, &str)> = None;
        for (fields, name) in
            [top, text].into_iter().flat_map(|fields| names.iter().map(move |name| (fields, *name)))
        {
            let Some(block) = fields.object(name)? else { continue };
            let parsed = Self::parse_block(&block)?;
            match &found {
                Some((first, first_name)) if *first != parsed => {
                    let expected = format!("the same as `{first_name}`");
                    return Err(fields.bad(name, "another quantization".to_owned(), expected));
                }
                _ => found = Some((parsed, name)),
            }
        }
        found
            .map(|(parsed, _)| parsed)
            .ok_or_else(|| top.missing(names[0], "an object with bits and group_size"))
    }

    fn parse_block(block: &Fields<'_>) -> Result<Self, CheckpointError> {
        for (name, known) in [("mode", "affine"), ("quant_method", "affine")] {
            match block.opt_str(name)? {
                None => {}
                Some(mode) if mode == known => {}
                Some(other) => return Err(block.bad(name, other.to_owned(), "`affine`")),
            }
        }
        let default = parse_format(block, "", block.map())?;
        let mut overrides = BTreeMap::new();
        for (key, value) in block.map() {
            let format = match value {
                Value::Object(map) => Some(parse_format(block, key, map)?),
                Value::Bool(false) if key.contains('.') => None,
                Value::Bool(true) if key.contains('.') => Some(default),
                other if key.contains('.') => {
                    let expected = "an object with bits and group_size, true or false";
                    return Err(block.bad(key, json::show(other), expected));
                }
                _ => continue,
            };
            let module = canonical(key).to_owned();
            if overrides.insert(module, format).is_some() {
                let (path, key) = (block.path().into(), key.clone());
                return Err(CheckpointError::DuplicateKey {
                    path,
                    part: "the quantization block",
                    key,
                });
            }
        }
        Ok(Self { default, overrides })
    }
}

/// `4 bits in groups of 64`.
pub(crate) fn show_format(format: &AffineFormat) -> String {
    format!("{} bits in groups of {}", format.bits(), format.group_size())
}

fn parse_format(
    block: &Fields<'_>,
    key: &str,
    map: &serde_json::Map<String, Value>,
) -> Result<AffineFormat, CheckpointError> {
    let name =
        |field: &str| if key.is_empty() { field.to_owned() } else { format!("{key}.{field}") };
    let number = |field: &str| match map.get(field) {
        None => Err(block.missing(&name(field), "a whole number")),
        Some(value) => value
            .as_u64()
            .ok_or_else(|| block.bad(&name(field), json::show(value), "a whole number")),
    };
    if let Some(mode) = map.get("mode").filter(|mode| mode.as_str() != Some("affine")) {
        return Err(block.bad(&name("mode"), json::show(mode), "`affine`"));
    }
    let (bits, group_size) = (number("bits")?, number("group_size")?);
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    AffineFormat::new(narrow(bits), narrow(group_size)).map_err(|_| CheckpointError::Quantization {
        path: block.path().into(),
        key: block.full(key).trim_end_matches('.').to_owned(),
        bits,
        group_size,
    })
}
