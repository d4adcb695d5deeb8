//! Finds clang and compiles a library: address spaces checked, sanitizers on.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use slotstream_kernels::metal::Library;

use crate::signature::{self, Kernel};
use crate::{EmulatorError, headers};

/// The least version: bf16 arithmetic, and sanitizers that know it.
const LEAST: u32 = 19;

/// MSL 3.1 is C++14. Anything that clang warns of is an error.
const LANGUAGE: [&str; 13] = [
    "-xc++",
    "-std=c++14",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-nostdlibinc",
    "-nostdinc++",
    "-Wall",
    "-Wextra",
    "-Wdouble-promotion",
    "-Werror",
    "-Wno-unknown-attributes",
    "-Wno-unused-const-variable",
];

/// Every address and everything undefined ends the run. Multiplications and additions stay apart.
const SANITIZED: [&str; 7] = [
    "-O1",
    "-gline-tables-only",
    "-ffp-contract=off",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    // The stacks of fibers are not those that address sanitizer would swap.
    "-fsanitize-address-use-after-return=never",
    "-pthread",
];

/// As fast as fibers are, on all processors, for long runs of kernels that are tested with
/// [`SANITIZED`].
const FAST: [&str; 4] = ["-O2", "-ffp-contract=off", "-pthread", "-DMSL_FAST"];

/// A compiler and the folder of what it made.
#[derive(Debug)]
pub(crate) struct Compiler {
    path: PathBuf,
    version: String,
    folder: PathBuf,
    flags: &'static [&'static str],
}

impl Compiler {
    /// `$CLANGXX`, else the newest `clang++` there is.
    pub(crate) fn find(folder: &Path, sanitized: bool) -> Result<Self, EmulatorError> {
        let compiler = Self::among(candidates(), folder)?;
        Ok(Self { flags: if sanitized { &SANITIZED } else { &FAST }, ..compiler })
    }

    fn among(candidates: Vec<PathBuf>, folder: &Path) -> Result<Self, EmulatorError> {
        let mut tried = Vec::new();
        for path in candidates {
            match version(&path) {
                Ok((major, version)) if major >= LEAST => {
                    headers::write(folder)?;
                    let folder = folder.to_owned();
                    return Ok(Self { path, version, folder, flags: &SANITIZED });
                }
                Ok((major, _)) => tried.push(format!("{} is version {major}", path.display())),
                Err(why) => tried.push(format!("{}: {why}", path.display())),
            }
        }
        Err(EmulatorError::NoCompiler { tried: tried.join(", ") })
    }

    /// The kernels of a library and its object file.
    pub(crate) fn compile(
        &self,
        library: &Library,
    ) -> Result<(Vec<Kernel>, PathBuf), EmulatorError> {
        let (name, source) = (library.name(), library.source());
        let text = self.preprocess(name, &source)?;
        let kernels = signature::kernels(&text)?;
        // The attribute's name is also a macro's.
        let source = source.replace("[[threadgroup(0)]]", "");
        let begin = format!("#include \"msl.h\"\nnamespace {name} {{\n#line 1 \"{name}.metal\"\n");
        let spaces = format!("{begin}{source}\n}}\n");
        let launchers = signature::launchers(name, &kernels);
        let unit = format!("{begin}{source}\n#line 1 \"launchers\"\n{launchers}");
        let object = self.made(&unit, &format!("{name}.o"));
        if !object.exists() {
            let spaces = self.save(name, "spaces.cpp", &spaces)?;
            // A C cast goes from one address space to another, a reinterpret_cast does not.
            let flags = ["-fsyntax-only", "-DMSL_ADDRESS_SPACES", "-Wold-style-cast"];
            self.run(name, "the pass of address spaces", &spaces, &LANGUAGE, &flags, None)?;
            let unit = self.save(name, "cpp", &unit)?;
            let flags = [self.flags, &["-c"]].concat();
            self.run(name, "compilation", &unit, &LANGUAGE, &flags, Some(&object))?;
        }
        Ok((kernels, object))
    }

    /// The program that runs jobs with these objects.
    pub(crate) fn link(
        &self,
        libraries: &[String],
        objects: &[PathBuf],
    ) -> Result<PathBuf, EmulatorError> {
        let runner = self.made(&objects, "runner");
        if runner.exists() {
            return Ok(runner);
        }
        let tables = signature::tables(libraries);
        let tables = self.save(&format!("tables-{}", libraries.len()), "cpp", &tables)?;
        let runtime = self.folder.join("msl/runtime.cpp");
        let mut flags: Vec<String> = self.flags.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend([tables.display().to_string(), "-xnone".to_owned()]);
        flags.extend(objects.iter().map(|object| object.display().to_string()));
        flags.push("-lm".to_owned());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.run("runner", "linking", &runtime, &["-xc++", "-std=c++17"], &flags, Some(&runner))?;
        Ok(runner)
    }

    /// The text after the preprocessor, MSL's own words kept.
    fn preprocess(&self, name: &str, source: &str) -> Result<String, EmulatorError> {
        let source = self.save(name, "metal", source)?;
        let empty = format!("-I{}", self.folder.join("empty").display());
        let flags = ["-xc++", "-std=c++14", "-E", "-P", "-nostdinc", &empty];
        let output = Command::new(&self.path).args(flags).arg(&source).output();
        let output = output.map_err(EmulatorError::io("run", &self.path))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let library = name.to_owned();
        Err(EmulatorError::Compile { library, pass: "the preprocessor", messages })
    }

    /// Where something made from `from` lies: another place whenever anything differs.
    fn made(&self, from: &impl Hash, name: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (from, &self.version, LANGUAGE, self.flags, headers::ALL).hash(&mut hasher);
        self.folder.join(format!("{:016x}-{name}", hasher.finish()))
    }

    fn save(&self, name: &str, extension: &str, text: &str) -> Result<PathBuf, EmulatorError> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let path = self.folder.join(format!("{name}-{:016x}.{extension}", hasher.finish()));
        headers::replace(&path, text)?;
        Ok(path)
    }

    fn run(
        &self,
        library: &str,
        pass: &'static str,
        source: &Path,
        language: &[&str],
        flags: &[&str],
        out: Option<&Path>,
    ) -> Result<(), EmulatorError> {
        let mut command = Command::new(&self.path);
        command.args(language).arg(format!("-I{}", self.folder.join("msl").display()));
        command.arg(source).args(flags);
        // Other threads and processes may be making the same thing: it appears whole.
        let part = out.map(|out| out.with_extension(format!("{}.part", headers::unique())));
        if let Some(part) = &part {
            command.arg("-o").arg(part);
        }
        let output = command.output().map_err(EmulatorError::io("run", &self.path))?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(EmulatorError::Compile { library: library.to_owned(), pass, messages });
        }
        match (part, out) {
            (Some(part), Some(out)) => {
                fs::rename(&part, out).map_err(EmulatorError::io("write", out))
            }
            _ => Ok(()),
        }
    }
}

fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("CLANGXX") {
        return vec![path.into()];
    }
    let numbered = (LEAST..LEAST + 6).rev().map(|n| format!("clang++-{n}").into());
    numbered.chain(["clang++".into()]).collect()
}

/// The major version, and the whole line that says it.
fn version(path: &Path) -> Result<(u32, String), String> {
    let output = Command::new(path).arg("--version").output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split("clang version ").nth(1).and_then(|rest| rest.split('.').next());
    match number.and_then(|number| number.parse().ok()) {
        Some(major) => Ok((major, text)),
        None => Err("says no version of clang".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_compiler_it_says_what_was_tried() {
        let candidates = vec!["/nonexistent/clang++".into(), "/bin/true".into()];
        let Err(error) = Compiler::among(candidates, Path::new("unused")) else {
            panic!("neither is a compiler");
        };
        let text = error.to_string();
        for part in ["/nonexistent/clang++: ", "/bin/true: says no version", "set CLANGXX"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
