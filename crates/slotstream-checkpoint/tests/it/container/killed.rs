//! A process that repacks and is killed.

use std::env;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use slotstream_checkpoint::container::{Container, ContainerError, Repack};

use super::{assert_same_files, go_on, open, repacked};
use crate::random_fixture;

/// Names the folder that the child writes to.
const FOLDER: &str = "SLOTSTREAM_TEST_CONTAINER";
/// Microseconds that the child waits after each step.
const PAUSE: &str = "SLOTSTREAM_TEST_PAUSE";

/// No test of its own: what a child of the tests below does.
#[test]
fn child() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let pause = env::var(PAUSE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let checkpoint = open(&random_fixture());
    let repack = Repack::new(&checkpoint, Path::new(&folder)).resume(true).step_bytes(1);
    let result = repack.run(&mut |_| {
        thread::sleep(Duration::from_micros(pause));
        ControlFlow::Continue(())
    });
    if let Err(error) = result {
        panic!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    }
}

fn start(folder: &Path, pause: u64, shell: Option<&str>) -> Child {
    let program = env::current_exe().unwrap();
    let mut command = match shell {
        None => Command::new(&program),
        Some(script) => {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{script}; exec \"$0\" \"$@\"")]).arg(&program);
            command
        }
    };
    command
        .args(["--exact", "container::killed::child", "--nocapture"])
        .env(FOLDER, folder)
        .env(PAUSE, pause.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn killed_twenty_times_and_resumed() {
    let checkpoint = open(&random_fixture());
    let (whole, _) = repacked(&checkpoint, false);
    let out = tempfile::tempdir().unwrap();
    let mut killed = 0;
    for delay in (0..20_u64).cycle() {
        let mut child = start(out.path(), 2000, None);
        // Any delay will do: an earlier or later byte is the last one.
        thread::sleep(Duration::from_millis(1 + 3 * delay));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        match Container::open(out.path(), &checkpoint) {
            // One file may be finished, and is then whole.
            Ok(container) => container.verify(&checkpoint, None, &mut go_on).expect("whole"),
            Err(ContainerError::Unfinished { .. } | ContainerError::NoContainer { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if status.signal() == Some(9) {
            killed += 1;
            if killed == 20 {
                break;
            }
        } else {
            // Too late: it was finished.
            assert!(status.success(), "{status}");
            fs::remove_dir_all(out.path()).unwrap();
            fs::create_dir(out.path()).unwrap();
        }
    }
    let status = start(out.path(), 0, None).wait().unwrap();
    assert!(status.success(), "{status}");
    assert_same_files(whole.path(), out.path());
}

/// A limit of the size of files, at 512 bytes a unit: with the signal ignored a write fails, else
/// it kills.
#[test]
fn a_limit_of_the_file_size_leaves_nothing_under_the_final_name() {
    let checkpoint = open(&random_fixture());
    let (whole, container) = repacked(&checkpoint, false);
    let bytes = container.experts().unwrap().file_len();
    for ignore in ["trap '' XFSZ; ", ""] {
        let out = tempfile::tempdir().unwrap();
        for share in [0, 1, 3, 6, 9] {
            let script = format!("{ignore}ulimit -c 0; ulimit -f {}", bytes * share / 10 / 512);
            let output = start(out.path(), 0, Some(&script)).wait_with_output().unwrap();
            assert!(!output.status.success(), "{share}: {}", output.status);
            assert!(!Container::is_in(out.path()), "{share}: a file that cannot be whole");
            if !ignore.is_empty() {
                let text = String::from_utf8(output.stderr).unwrap();
                assert!(text.contains("File too large"), "{share}: {text}");
            }
        }
        assert!(start(out.path(), 0, None).wait().unwrap().success());
        assert_same_files(whole.path(), out.path());
    }
}
