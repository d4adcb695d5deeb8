//! Reads the kernels of a preprocessed library, and writes the C++ that calls them.

use std::fmt::Write;

use crate::EmulatorError;

/// A kernel and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// `device` memory.
    Buffer { index: usize, of: String, writes: bool },
    /// A reference to `constant` memory.
    Constants { index: usize, of: String },
    /// `threadgroup` memory.
    Memory { of: String },
    /// Where the thread is, as C++.
    Position(&'static str),
}

impl Kernel {
    /// Buffers by index, each with whether it is written, and the size's type of the constants.
    pub(crate) fn buffers(&self) -> Vec<bool> {
        let mut buffers: Vec<(usize, bool)> = self
            .parameters
            .iter()
            .filter_map(|p| match p {
                Parameter::Buffer { index, writes, .. } => Some((*index, *writes)),
                _ => None,
            })
            .collect();
        buffers.sort_unstable();
        buffers.into_iter().map(|(_, writes)| writes).collect()
    }

    /// Whether buffers count from 0 without gaps and the constants come after them.
    fn is_in_order(&self) -> bool {
        let mut indexes: Vec<usize> = Vec::new();
        let mut constants = None;
        for parameter in &self.parameters {
            match parameter {
                Parameter::Buffer { index, .. } => indexes.push(*index),
                Parameter::Constants { index, .. } if constants.is_none() => {
                    constants = Some(*index);
                }
                Parameter::Constants { .. } => return false,
                Parameter::Memory { .. } | Parameter::Position(_) => {}
            }
        }
        indexes.sort_unstable();
        indexes.extend(constants);
        indexes.into_iter().eq(0..self.parameters.iter().filter(|p| p.has_index()).count())
    }

    pub(crate) fn uses_memory(&self) -> bool {
        self.parameters.iter().any(|p| matches!(p, Parameter::Memory { .. }))
    }
}

impl Parameter {
    fn has_index(&self) -> bool {
        matches!(self, Self::Buffer { .. } | Self::Constants { .. })
    }
}

/// All `[[kernel]] void name(...)` of preprocessed MSL.
pub(crate) fn kernels(source: &str) -> Result<Vec<Kernel>, EmulatorError> {
    let mut kernels = Vec::new();
    for text in source.split("[[kernel]]").skip(1) {
        let parts = text.trim_start().strip_prefix("void").and_then(|t| t.split_once('('));
        let (name, rest) = parts.ok_or_else(|| unknown("?", text.get(..60).unwrap_or(text)))?;
        let (name, list) = (name.trim(), rest.split_once('{').map_or(rest, |(list, _)| list));
        let list = list.trim_end().trim_end_matches(')');
        // Each parameter ends with its attribute.
        let parameters = list
            .split_inclusive("]]")
            .map(|text| text.trim_start_matches([',', ' ', '\n', '\t']))
            .filter(|text| !text.trim().is_empty())
            .map(|text| parameter(text).ok_or_else(|| unknown(name, text)));
        let parameters: Vec<Parameter> = parameters.collect::<Result<_, _>>()?;
        let kernel = Kernel { name: name.to_owned(), parameters };
        if !kernel.is_in_order() {
            return Err(unknown(name, "buffers from 0 without gaps, then constants"));
        }
        kernels.push(kernel);
    }
    Ok(kernels)
}

fn unknown(kernel: &str, parameter: &str) -> EmulatorError {
    EmulatorError::Signature { kernel: kernel.to_owned(), parameter: parameter.trim().to_owned() }
}

/// `type name [[attribute]]`.
fn parameter(text: &str) -> Option<Parameter> {
    let (declared, attribute) = text.split_once("[[")?;
    let attribute = attribute.trim_end_matches(']');
    let end = declared.trim_end().rfind(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let of = declared[..=end].trim().to_owned();
    let words: Vec<&str> = of.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |word: &str| words.contains(&word);
    if let Some(index) = attribute.strip_prefix("buffer(") {
        let index = index.trim_end_matches(')').parse().ok()?;
        return match (of.strip_suffix('*'), of.strip_suffix('&')) {
            (Some(_), None) if has("device") => {
                let writes = !has("const");
                Some(Parameter::Buffer { index, of, writes })
            }
            (None, Some(of)) if has("constant") => {
                Some(Parameter::Constants { index, of: of.trim().to_owned() })
            }
            _ => None,
        };
    }
    if attribute == "threadgroup(0)" && has("threadgroup") && of.ends_with('*') {
        return Some(Parameter::Memory { of });
    }
    let position = match (attribute, of.as_str()) {
        ("threadgroup_position_in_grid", "uint3") => {
            "uint3{msl::here.group[0], msl::here.group[1], msl::here.group[2]}"
        }
        ("threadgroup_position_in_grid", "uint") => "msl::here.group[0]",
        ("thread_index_in_threadgroup", "uint") => "msl::here.index",
        ("simdgroup_index_in_threadgroup", "uint") => "msl::here.simdgroup",
        ("thread_index_in_simdgroup", "uint") => "msl::here.lane",
        ("simdgroups_per_threadgroup", "uint") => "msl::here.simdgroups",
        ("threads_per_threadgroup", "uint") => "(msl::here.simdgroups * 32)",
        _ => return None,
    };
    Some(Parameter::Position(position))
}

/// The functions that call the kernels of a library with a launch's buffers, and their table.
pub(crate) fn launchers(library: &str, kernels: &[Kernel]) -> String {
    let mut out = String::new();
    let mut table = String::new();
    for Kernel { name, parameters } in kernels {
        let mut size = "0".to_owned();
        let arguments: Vec<String> = parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::Buffer { index, of, .. } => format!("({of})call.binds[{index}]"),
                Parameter::Constants { of, .. } => {
                    size = format!("sizeof({of})");
                    format!("*({of}*)call.constants")
                }
                Parameter::Memory { of } => format!("({of})call.memory"),
                Parameter::Position(at) => (*at).to_owned(),
            })
            .collect();
        let arguments = arguments.join(", ");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "inline void launch_{name}(const msl::Call& call) {{ (void)call; {name}({arguments}); }}"
        );
        let _ = writeln!(table, "  {{\"{name}\", {library}::launch_{name}, sizeof_{name}}},");
        let _ = writeln!(out, "constexpr unsigned long sizeof_{name} = {size};");
    }
    let table = table.replace("sizeof_", &format!("{library}::sizeof_"));
    format!(
        "{out}}}\nnamespace msl {{\nextern const Kernel table_{library}[];\nconst Kernel table_{library}[] = {{\n{table}  {{nullptr, nullptr, 0}}}};\n}}\n"
    )
}

/// The table of tables.
pub(crate) fn tables(libraries: &[String]) -> String {
    let mut out = "#include \"fibers.h\"\nnamespace msl {\n".to_owned();
    for library in libraries {
        let _ = writeln!(out, "extern const Kernel table_{library}[];");
    }
    let names: Vec<String> = libraries.iter().map(|name| format!("table_{name}")).collect();
    let names = names.join(", ");
    let _ = writeln!(out, "const Kernel* const libraries[] = {{{names}, nullptr}};\n}}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read() {
        let source = "[[kernel]] void add(const device float* x [[buffer(0)]],\n device uint* y \
            [[buffer(1)]], constant Args& a [[buffer(2)]], threadgroup float* m \
            [[threadgroup(0)]], uint3 g [[threadgroup_position_in_grid]]) { body(); }";
        let kernels = kernels(source).expect("understood");
        let [kernel] = &kernels[..] else { panic!("one kernel") };
        assert_eq!((kernel.name.as_str(), kernel.buffers()), ("add", vec![false, true]));
        assert!(kernel.uses_memory());
        let launchers = launchers("lib", &kernels);
        assert!(launchers.contains("*(constant Args*)call.constants"), "{launchers}");
        assert!(launchers.contains("sizeof(constant Args)"), "{launchers}");
    }

    #[test]
    fn what_no_plan_could_fill_is_refused() {
        for parameters in [
            "device float* x [[buffer(1)]]",
            "float* x [[buffer(0)]]",
            "device float* x [[buffer(0)]], constant A& a [[buffer(2)]]",
            "constant A& a [[buffer(0)]], device float* x [[buffer(1)]]",
            "uint x [[thread_position_in_quad]]",
            "threadgroup float* m [[threadgroup(1)]]",
        ] {
            let source = format!("[[kernel]] void f({parameters}) {{}}");
            assert!(kernels(&source).is_err(), "{parameters}");
        }
    }
}
