//! The programs themselves: peak memory, exit codes, signals.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Child;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use super::chat::parts;
#[cfg(target_os = "linux")]
use super::utf8;
use super::{last_object, output};

/// The program that cargo built beside this test.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let path = folder.join("examples").join(name);
    assert!(path.is_file(), "cargo builds {} for its package's tests", path.display());
    path
}

fn started(name: &str, arguments: &[&str]) -> Output {
    Command::new(program(name)).args(arguments).env_remove("SLOTSTREAM_MODEL").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_stays_below_its_plan() {
    for flags in [
        &["--slots", "18", "--max-tokens", "64"][..],
        &["--max-tokens", "64"],
        &["--slots", "672", "--max-tokens", "64"],
        &["--reader", "memory", "--max-tokens", "32"],
        &[
            "--arithmetic",
            "fast",
            "--chunk",
            "256",
            "--prompt-file",
            "src/perplexity.rs",
            "--max-tokens",
            "8",
        ],
        &[
            "--lanes",
            "32",
            "--chunk",
            "256",
            "--prompt-file",
            "src/perplexity.rs",
            "--max-tokens",
            "8",
        ],
    ] {
        let output = started("generate", &[&["--quiet", "--ignore-eos"], flags].concat());
        assert!(output.status.success(), "{flags:?}: {}", text(&output.stderr));
        let object = last_object(&text(&output.stdout));
        let bytes = |name: &str| object[name].as_u64().expect("measured on Linux");
        let (peak, plan) = (bytes("peak_rss_bytes"), bytes("plan_bytes"));
        assert!(peak <= plan, "{flags:?}: peak {peak}, planned {plan}");
    }
    let output = started("perplexity", &["--first", "1", "--quiet"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let object = last_object(&text(&output.stdout));
    assert!(object["peak_rss_bytes"].as_u64() <= object["plan_bytes"].as_u64(), "{object}");
}

#[test]
fn programs_do_what_their_functions_do() {
    let flags = ["--model", "models/tiny-moe", "--json"];
    let child = started("inspect", &flags);
    assert_eq!(child.status.code(), Some(0), "{}", text(&child.stderr));
    let (own, _) = output(slotstream_examples::inspect::run, &flags);
    let (child, own) = (last_object(&text(&child.stdout)), last_object(&own));
    assert_eq!((&child["ledger"], &child["checks"]), (&own["ledger"], &own["checks"]));
}

#[test]
fn errors_go_to_standard_error_with_their_code() {
    let child = started("generate", &["--policy", "clocks"]);
    assert_eq!((child.status.code(), text(&child.stdout).as_str()), (Some(2), ""));
    let shown = text(&child.stderr);
    assert!(shown.starts_with("error (user): no eviction policy"), "{shown}");
    let child = started("generate", &["--no-such-flag"]);
    assert_eq!(child.status.code(), Some(2));
    let child = started("perplexity", &["--windows", "models/tiny-moe/config.json"]);
    let shown = text(&child.stderr);
    assert_eq!(child.status.code(), Some(1), "{shown}");
    assert!(shown.starts_with("error (corrupt): ") && shown.contains("\n  caused by: "), "{shown}");
    for name in ["generate", "perplexity", "inspect"] {
        let child = started(name, &["--help"]);
        assert_eq!(child.status.code(), Some(0));
        assert!(text(&child.stdout).contains("--model <DIR>"), "{name}");
        let listed = started(name, &["--policies"]);
        let (code, list) = (listed.status.code(), text(&listed.stdout));
        // `inspect` has the flags of an engine, too.
        assert!(code == Some(0) && list.contains("\n  lfu: "), "{name}: {list}");
    }
}

/// Two processes that would both take the model's memory: the second one is told, and whoever dies
/// holds nothing any more.
#[cfg(target_os = "linux")]
#[test]
fn one_process_has_the_lock_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let command = |name: &str| {
        let mut command = Command::new(program(name));
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("SLOTSTREAM_MODEL");
        command
    };
    let mut chat = command("chat");
    let mut chat =
        chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    // Kept open: a chat that nobody reads ends.
    let mut shown = BufReader::new(chat.stdout.take().unwrap());
    shown.read_line(&mut line).unwrap();
    assert!(line.contains("/reset"), "its engine is there: {line}");
    let generate = |flags: &[&str]| {
        let flags = [&["--quiet", "--max-tokens", "2"], flags].concat();
        command("generate").args(flags).output().unwrap()
    };
    let refused = generate(&["--lock", "refuse"]);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains(&format!("process {} has this model loaded", chat.id())), "{told}");
    // With a size of its own it goes on, and says so.
    let warned = generate(&["--slots", "100"]);
    assert_eq!(warned.status.code(), Some(0), "{}", text(&warned.stderr));
    assert!(text(&warned.stderr).contains("another process has this model loaded"));
    assert_eq!(last_object(&text(&warned.stdout))["lock"], "elsewhere");
    // Not where its pool follows the memory of the machine, as the other's may.
    let elastic = generate(&["--slots", "100", "--elastic"]);
    assert_eq!(elastic.status.code(), Some(2), "{}", text(&elastic.stderr));
    assert!(text(&elastic.stderr).contains("has this model loaded"));
    let warned = generate(&["--slots", "100", "--elastic", "--lock", "warn"]);
    assert_eq!(warned.status.code(), Some(0), "{}", text(&warned.stderr));
    let silent = generate(&["--lock", "off"]);
    assert_eq!((silent.status.code(), text(&silent.stderr).as_str()), (Some(0), ""));
    chat.kill().unwrap();
    drop(shown);
    chat.wait().unwrap();
    let alone = generate(&["--lock", "refuse"]);
    assert_eq!(alone.status.code(), Some(0), "{}", text(&alone.stderr));
    assert_eq!(last_object(&text(&alone.stdout))["lock"], "held");
}

/// A process of its own, whose memory no other test changes.
#[test]
fn memory_that_forks_have_taken_is_given_back_by_commands() {
    const FORKS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let lines = format!("Hello\n{}/reset\nHello\n/fork\n", "/fork\n".repeat(FORKS));
    fs::write(&script, lines).unwrap();
    let talk = |memory: u64| {
        let mut command = Command::new(program("chat"));
        command.args(["--greedy", "--max-tokens", "8", "--context", "256", "--lock", "off"]);
        command.args(["--memory", &memory.to_string()]).env_remove("SLOTSTREAM_MODEL");
        command.stdin(fs::File::open(&script).unwrap()).output().unwrap()
    };
    let refused = text(&talk(1 << 20).stderr);
    let (_, least) = refused.split_once("give at least ").expect("the arithmetic");
    let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
    // The pool takes what all records need, conversations the rest.
    let output = talk(least + (64 << 20));
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = parts(&shown);
    let full = said.iter().position(|said| said.contains("no memory")).expect("too many");
    assert!(said[full - 1].contains("remembered"), "{}", said[full - 1]);
    for words in ["more are needed", "/back gives up the last of", "/reset all", "more --memory"] {
        assert!(said[full].contains(words), "{}", said[full]);
    }
    // Without the forks there is room again, and the conversation begins as it did.
    assert_eq!(said[FORKS + 2], said[0]);
    assert!(said[FORKS + 3].contains("remembered"), "{}", said[FORKS + 3]);
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in [&["--help"][..], &["--version"], &["--json"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let child = Command::new(program("inspect")).args(arguments).stdout(full).output().unwrap();
        let shown = text(&child.stderr);
        assert_eq!(child.status.code(), Some(1), "{arguments:?}: {shown}");
        assert!(shown.contains("the output cannot be written"), "{arguments:?}: {shown}");
    }
}

/// A file that the process may not read. Root may read all, so the program then runs as nobody
/// (user 65534), from a copy that anybody may run.
#[cfg(target_os = "linux")]
#[test]
fn a_shard_without_rights_is_named() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let rights = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let parent = tempfile::tempdir().unwrap();
    let (folder, copy) = (parent.path().join("model"), parent.path().join("inspect"));
    slotstream_testkit::checkpoint::damage::write_good(&folder).unwrap();
    fs::copy(program("inspect"), &copy).unwrap();
    rights(parent.path(), 0o755);
    rights(&folder, 0o755);
    rights(&copy, 0o755);
    let shard = folder.join("model-00002.safetensors");
    rights(&shard, 0o000);
    // Whoever may read it all the same is root.
    let root = fs::File::open(&shard).is_ok();
    rights(&shard, 0o644);
    let run = || {
        let mut command = Command::new(&copy);
        command.arg("--model").arg(&folder).current_dir("/");
        if root {
            command.uid(65534).gid(65534);
        }
        command.output().unwrap()
    };
    let good = run();
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    rights(&shard, 0o000);
    let refused = run();
    let shown = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{shown}");
    for words in ["error (user): cannot open", "model-00002.safetensors", "Permission denied"] {
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn the_environment_names_a_model() {
    let child = Command::new(program("inspect"))
        .arg("--json")
        .env("SLOTSTREAM_MODEL", "../crates/slotstream-qwen/tests/fixtures/random/checkpoint")
        .output()
        .unwrap();
    let object = last_object(&text(&child.stdout));
    assert_eq!(object["optional"][0]["found"], true);
}

#[test]
fn the_log_goes_where_rust_log_says() {
    let log = |level: &str| {
        let mut command = Command::new(program("inspect"));
        text(&command.arg("--json").env("RUST_LOG", level).output().unwrap().stderr)
    };
    assert_eq!(log("off"), "");
    assert!(log("debug").contains("slotstream_checkpoint"), "{}", log("debug"));
}

#[test]
fn spans_are_shown_with_their_times() {
    let mut command = Command::new(program("generate"));
    command.args(["--quiet", "--max-tokens", "2"]).env("RUST_LOG", "trace");
    let log = text(&command.output().unwrap().stderr);
    for span in ["load{", "pass{", "layer{", "read{"] {
        let line = log.lines().find(|line| line.contains(span) && line.contains("time.busy"));
        assert!(line.is_some(), "no {span}...}} closes in: {}", &log[..log.len().min(2000)]);
    }
}

/// Runs an example from the root of the checkout, where its default paths are seen from.
fn from_root(name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program(name));
    command.args(arguments).current_dir("..").env_remove("SLOTSTREAM_MODEL");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn parts_wired_by_hand_give_the_tokens_of_the_engine() {
    let flags = ["--quiet", "--max-tokens", "24"];
    let engine = last_object(&from_root("generate", &flags))["tokens"].to_string();
    for flags in [&[][..], &["--slots", "18"], &["--policy", "layer-local:lru"]] {
        let own = from_root("compose", &[&["--ids", "--max-tokens", "24"], flags].concat());
        assert_eq!(own.replace([' ', '\n'], ""), engine, "{flags:?}");
    }
    let shown = from_root("compose", &["--max-tokens", "4"]);
    assert!(shown.starts_with("CHAPTER II\n\nMr. Darcy irremedi"), "{shown}");
}

#[test]
fn a_graph_of_ones_own_does_not_see_the_size_of_its_pool() {
    let shown = from_root("own_graph", &[]);
    let results: Vec<_> = shown.lines().filter_map(|line| line.split_once("result ")).collect();
    assert_eq!(results.len(), 2, "{shown}");
    assert_eq!(results[0].1, results[1].1, "{shown}");
    assert_ne!(results[0].0, results[1].0, "the smaller pool hits less: {shown}");
}

#[test]
fn a_policy_of_ones_own_is_lawful_compared_and_run() {
    let shown = from_root("custom_policy", &[]);
    assert!(shown.starts_with("lawful\n"), "{shown}");
    let hits = |policy: &str| {
        let row = shown.lines().find(|line| line.starts_with(policy)).expect(policy);
        row.split_whitespace().nth(3).and_then(|hits| hits.parse::<u64>().ok()).expect("hits")
    };
    assert!(hits("clock ") < hits("fading ") && hits("fading ") < hits("opt "), "{shown}");
    assert!(shown.contains("the same 48 tokens"), "{shown}");
    let source = fs::read_to_string("examples/custom_policy/policy.rs").unwrap();
    let uses: Vec<&str> = source.lines().filter(|line| line.starts_with("use ")).collect();
    assert_eq!(uses, ["use slotstream_core::{"], "it needs one crate alone");
}

#[test]
fn the_program_of_the_readme() {
    let shown = from_root("embed", &[]);
    let object = last_object(&from_root("generate", &["--quiet", "--max-tokens", "32"]));
    assert!(shown.contains(object["text"].as_str().expect("text")), "{shown}");
    let readme = fs::read_to_string("../README.md").unwrap();
    let source = fs::read_to_string("examples/embed.rs").unwrap();
    let (_, source) = source.split_once("\n\n").expect("a line that says what it is");
    assert!(readme.contains(&format!("```rust,no_run\n{source}```\n")), "README.md has other code");
    // What the README says of the three.
    let lines = |name: &str| fs::read_to_string(name).unwrap().lines().count();
    assert!(source.lines().count() <= 20);
    assert!(lines("examples/compose.rs") < 150 && lines("examples/own_graph.rs") < 100);
}

#[test]
fn an_interrupt_ends_with_the_figures_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.trace");
    let mut child = Command::new(program("generate"))
        .args(["--json", "--ignore-eos", "--max-tokens", "4000", "--trace"])
        .arg(&trace)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    // The first line of the text is there: it is generating.
    let mut shown = String::new();
    out.read_line(&mut shown).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    out.read_to_string(&mut shown).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{shown}");
    let object = last_object(&shown);
    assert_eq!(object["finish_reason"], "cancelled");
    // The recording has its end mark.
    let recording = slotstream_replay::Recording::open(&trace).unwrap().requests().unwrap();
    assert!(recording.lookups() > 0);
    assert!(object["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty()));
}

/// Sends a signal to a program.
#[cfg(target_os = "linux")]
fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success(), "{signal}");
}

/// Its code, if it ends before so many seconds are over.
#[cfg(target_os = "linux")]
fn code_within(seconds: u64, child: &mut Child) -> Option<i32> {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// Whatever is read before there is anything to show may be a pipe that nobody writes to.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_for_a_pipe_is_ended_at_once() {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (pipe, out) = (folder.path().join("pipe"), folder.path().join("out"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (pipe, out) = (utf8(&pipe), utf8(&out));
    for (name, flags) in [
        ("generate", &["--prompt-file", pipe][..]),
        ("inspect", &["--prompt-file", pipe]),
        ("perplexity", &["--text", pipe]),
        ("perplexity", &["--tokens-of", pipe]),
        ("train_lookahead", &[pipe, pipe, pipe, "--out", out]),
        ("replay", &["--trace", pipe]),
        ("replay", &["--exact", "--trace", pipe]),
        ("pool_view", &["--trace", pipe]),
        ("synthesize", &["--out", out, "--like", pipe]),
        ("synthesize", &["--out", out, "--config", pipe]),
        ("doctor", &["--config", pipe]),
    ] {
        let mut command = Command::new(program(name));
        command.args(flags).env_remove("SLOTSTREAM_MODEL");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // This end opens once the other one has been: from then on the program waits for bytes.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut options = fs::OpenOptions::new();
        options.write(true).custom_flags(nonblock);
        let _open = loop {
            if let Ok(open) = options.open(pipe) {
                break open;
            }
            assert!(child.try_wait().unwrap().is_none(), "{name} {flags:?} ended by itself");
            std::thread::sleep(Duration::from_millis(5));
        };
        std::thread::sleep(Duration::from_millis(50));
        send("-INT", &child);
        assert_eq!(code_within(20, &mut child), Some(130), "{name} {flags:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name} {flags:?}");
    }
}

/// A read on the model of a disk sleeps for as long as ten seconds.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_wakes_a_slow_disk() {
    for (name, flags) in [
        ("generate", &["--throttle", "latency=10000ms,gbs=1"][..]),
        ("probe_ssd", &["--throttle", "latency=10000ms,gbs=1"]),
        ("doctor", &["--model", "models/tiny-moe", "--throttle", "latency=10000ms,gbs=1"]),
    ] {
        let mut command = Command::new(program(name));
        command.args(flags).env_remove("SLOTSTREAM_MODEL");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let caught = || {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> 1 & 1 == 1)
        };
        while !caught() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Time to come to the first read.
        std::thread::sleep(Duration::from_millis(1500));
        send("-INT", &child);
        assert_eq!(code_within(6, &mut child), Some(130), "{name} {flags:?}");
    }
}

/// Whether this process was started so; its children inherit it.
fn hang_ups_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1)
}

/// The scratch file is removed whatever the signal; under `nohup` a hang-up is none.
#[test]
fn signals_leave_no_scratch_file() {
    let folder = tempfile::tempdir().unwrap();
    let left = || fs::read_dir(folder.path()).unwrap().count();
    for (signal, prefix) in [("-TERM", ""), ("-HUP", ""), ("-INT", ""), ("-TERM", "trap '' HUP; ")]
    {
        let probe = program("probe_ssd");
        let script = format!(
            "{prefix}exec '{}' --scratch '{}' --size 2GB --rounds 60000 --depth 1 --way page \
             --reader buffered --bytes 1MB",
            probe.display(),
            folder.path().display()
        );
        let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn();
        let child = child.as_mut().unwrap();
        let id = child.id().to_string();
        let send = |signal: &str| {
            Command::new("kill").args([signal, id.as_str()]).status().unwrap().success()
        };
        while left() == 0 {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        if !prefix.is_empty() {
            assert!(send("-HUP"));
        }
        assert!(send(signal));
        // Under `nohup` this test is as deaf as its children.
        if signal == "-HUP" && hang_ups_are_ignored() {
            assert!(send("-TERM"));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal} {prefix}");
        assert_eq!(left(), 0, "{signal} {prefix}");
    }
}
