//! What was written, or would be.

use std::path::PathBuf;
use std::time::Duration;

use indicatif::HumanDuration;
use serde::Serialize;
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::RepackedFile;

use super::Arguments;
use crate::{Failure, show_size, show_throughput};

#[derive(Debug, Serialize)]
struct FileFigure {
    path: PathBuf,
    bytes: u64,
    /// Of them kept from an earlier run.
    kept: u64,
}

/// The figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: PathBuf,
    folder: PathBuf,
    finished: bool,
    dry_run: bool,
    files: Vec<FileFigure>,
    bytes: u64,
    records: usize,
    record_bytes: usize,
    record_stride: usize,
    seconds: Option<f64>,
    /// Bytes that this run wrote by its seconds, those of looking at what was kept included.
    write_gb_s: Option<f64>,
    verified: bool,
    verify_seconds: Option<f64>,
    verify_gb_s: Option<f64>,
    /// How to go on, when the run was interrupted, or to verify when verifying was.
    resume: Option<String>,
}

impl Report {
    pub(super) fn new(
        arguments: &Arguments,
        checkpoint: &Checkpoint,
        plan: &[RepackedFile],
    ) -> Self {
        let layout = checkpoint.record_layout();
        let mut report = Self {
            model: checkpoint.folder().into(),
            folder: arguments.out.clone(),
            finished: false,
            dry_run: arguments.dry_run,
            files: Vec::new(),
            bytes: 0,
            records: checkpoint.geometry().records(),
            record_bytes: layout.record_len(),
            record_stride: layout.stride(),
            seconds: None,
            write_gb_s: None,
            verified: false,
            verify_seconds: None,
            verify_gb_s: None,
            resume: None,
        };
        report.list(plan);
        if !arguments.dry_run {
            report.resume = Some(go_on_command(arguments, checkpoint, false));
        }
        report
    }

    fn list(&mut self, files: &[RepackedFile]) {
        self.bytes = files.iter().map(|file| file.bytes).sum();
        self.files = files
            .iter()
            .map(|file| FileFigure { path: file.path.clone(), bytes: file.bytes, kept: file.kept })
            .collect();
    }

    fn kept(&self) -> u64 {
        self.files.iter().map(|file| file.kept).sum()
    }

    /// `verify`: how to verify what was written, when it is to be.
    pub(super) fn written(&mut self, files: &[RepackedFile], seconds: f64, verify: Option<String>) {
        self.list(files);
        (self.finished, self.resume) = (true, verify);
        let written = self.bytes - self.kept();
        self.seconds = Some(seconds);
        self.write_gb_s = (written > 0).then(|| written as f64 / seconds.max(1e-9) / 1e9);
    }

    pub(super) fn verified(&mut self, seconds: f64) {
        (self.verified, self.resume) = (true, None);
        self.verify_seconds = Some(seconds);
        self.verify_gb_s = Some(self.bytes as f64 / seconds.max(1e-9) / 1e9);
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            text += &format!("{}: {}", file.path.display(), show_size(file.bytes));
            text += &match file.kept {
                0 => "\n".to_owned(),
                kept if kept == file.bytes => ", was finished before\n".to_owned(),
                kept => format!(", of which {} were there before\n", show_size(kept)),
            };
        }
        text += &format!(
            "{} records of {} bytes, {} bytes apart\n",
            self.records, self.record_bytes, self.record_stride
        );
        let time = |seconds| HumanDuration(Duration::from_secs_f64(seconds));
        if let Some((seconds, rate)) = self.seconds.zip(self.write_gb_s) {
            let written = show_size(self.bytes - self.kept());
            text +=
                &format!("{written} written in {} ({})\n", time(seconds), show_throughput(rate));
        }
        if let Some((seconds, rate)) = self.verify_seconds.zip(self.verify_gb_s) {
            text += &format!(
                "every byte is that of the checkpoint, verified in {} ({})\n",
                time(seconds),
                show_throughput(rate)
            );
        }
        text += &match (&self.resume, self.dry_run) {
            (Some(verify), _) if self.finished => format!(
                "{} is complete; verifying was interrupted; to verify: {verify}",
                self.folder.display()
            ),
            (Some(resume), _) => format!("interrupted; to go on: {resume}"),
            (None, true) => "nothing was written".to_owned(),
            (None, false) => format!("{} is complete", self.folder.display()),
        };
        text
    }
}

/// The command line that goes on where this one ended: with writing, or, once all is `written`,
/// with verifying, which must not write anything anew.
pub(super) fn go_on_command(
    arguments: &Arguments,
    checkpoint: &Checkpoint,
    written: bool,
) -> String {
    let (model, out) = (checkpoint.folder().display(), arguments.out.display());
    let mut command = format!("repack --model {model} --out {out}");
    for (flag, given) in [
        (" --experts", arguments.experts),
        (" --ngram", arguments.ngram),
        (" --pad-rows", arguments.pad_rows),
        (" --verify", arguments.verify),
        (" --replace", arguments.replace && !written),
        (" --resume", !written),
    ] {
        if given {
            command += flag;
        }
    }
    command
}
