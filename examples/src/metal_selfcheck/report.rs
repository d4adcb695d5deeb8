//! What was found, as one table and as JSON.

use serde::Serialize;
use slotstream::ops::GpuFigures;

use super::kernels::{Checked, Timed};
use super::tensors::Operation;
use crate::failure::ErrorFigure;
use crate::{Failure, show_size, show_throughput};

/// A short generation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Generated {
    pub(super) tokens: Vec<u32>,
    pub(super) kernels: String,
    pub(super) slots: usize,
    pub(super) plan_bytes: u64,
    pub(super) tok_s: f64,
    pub(super) hit_rate: Option<f64>,
}

/// Everything; null and empty is what was not done.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    #[serde(serialize_with = "gpu")]
    pub(super) gpu: Option<GpuFigures>,
    /// Why no GPU was checked.
    pub(super) gpu_error: Option<ErrorFigure>,
    pub(super) copy_gb_s: Option<f64>,
    pub(super) kernels: Vec<Checked>,
    pub(super) timed: Vec<Timed>,
    pub(super) tensors: Vec<Operation>,
    pub(super) cpu: Option<Generated>,
    pub(super) metal: Option<Generated>,
    /// As `probe_ssd --json` prints it.
    pub(super) disk: Option<serde_json::Value>,
    pub(super) system: &'static str,
    pub(super) version: &'static str,
    /// What is not as it should be; empty where nothing was checked, too.
    pub(super) wrong: Vec<String>,
}

/// Figures of another crate, which knows no serde.
fn gpu<S: serde::Serializer>(gpu: &Option<GpuFigures>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Gpu<'a> {
        architecture: &'a str,
        recommended_bytes: u64,
        allocated_bytes: u64,
        largest_buffer_bytes: u64,
    }
    let figures = gpu.as_ref().map(|gpu| Gpu {
        architecture: &gpu.architecture,
        recommended_bytes: gpu.recommended_bytes,
        allocated_bytes: gpu.allocated_bytes,
        largest_buffer_bytes: gpu.largest_buffer_bytes,
    });
    figures.serialize(to)
}

impl Report {
    /// Gathers what is wrong.
    pub(super) fn conclude(&mut self) {
        (self.system, self.version) = (std::env::consts::OS, env!("CARGO_PKG_VERSION"));
        let kernels = self.kernels.iter().flat_map(|family| family.wrong.iter().cloned());
        let timed = self.timed.iter().filter(|timed| timed.max_error.is_none());
        let timed = timed.map(|timed| format!("{}: wrong at the width of the model", timed.case));
        let tensors = self.tensors.iter().filter(|operation| !operation.right);
        let tensors = tensors.map(|operation| match &operation.error {
            Some(error) => format!("candle, {}: {error}", operation.name),
            None => format!("candle, {}: other bits than on the CPU", operation.name),
        });
        let found: Vec<String> = kernels.chain(timed).chain(tensors).collect();
        self.wrong.extend(found);
        if let (Some(cpu), Some(metal)) = (&self.cpu, &self.metal)
            && cpu.tokens != metal.tokens
        {
            let (cpu, metal) = (&cpu.tokens, &metal.tokens);
            self.wrong.push(format!("generation: {metal:?}, on the CPU {cpu:?}"));
        }
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self)
            .map_err(|source| Failure::Output { source: std::io::Error::from(source) })
    }

    /// One table: what, and what was found.
    pub(super) fn text(&self) -> String {
        let mut rows = vec![("slotstream", format!("{} on {}", self.version, self.system))];
        self.device(&mut rows);
        for family in &self.kernels {
            let Checked { family, right, left_out, max_error, wrong } = family;
            let all = right + wrong.len();
            let left = if *left_out > 0 { format!(", {left_out} left out") } else { String::new() };
            rows.push((
                "kernels",
                format!("{family:<10} {right} of {all} right{left}, error {max_error:.1e}"),
            ));
        }
        for timed in &self.timed {
            let Timed { case, us, gb_s, share, .. } = timed;
            let error = timed.max_error.map_or("WRONG".into(), |error| format!("{error:.1e}"));
            rows.push((
                "time",
                format!("{us:9.1} us {gb_s:6.1} GB/s {share:5.2} error {error}  {case}"),
            ));
        }
        let right = self.tensors.iter().filter(|operation| operation.right).count();
        if !self.tensors.is_empty() {
            rows.push(("candle", format!("{right} of {} operations right", self.tensors.len())));
        }
        for (name, generated) in [("tokens, CPU", &self.cpu), ("tokens, Metal", &self.metal)] {
            rows.extend(generated.as_ref().map(|generated| (name, generated.text())));
        }
        let disk = self.disk.as_ref().and_then(|disk| disk["rows"].as_array());
        rows.extend(disk.into_iter().flatten().map(|row| ("disk", disk_row(row))));
        rows.extend(self.wrong.iter().map(|wrong| ("WRONG", wrong.clone())));
        let lines = rows.iter().map(|(name, what)| format!("{name:<14} {what}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn device(&self, rows: &mut Vec<(&str, String)>) {
        if let Some(error) = &self.gpu_error {
            rows.push(("GPU", format!("none was checked: {}", error.text())));
        }
        if let Some(gpu) = &self.gpu {
            rows.push((
                "GPU",
                format!(
                    "{}, working set {}, {} allocated, buffers up to {}",
                    gpu.architecture,
                    show_size(gpu.recommended_bytes),
                    show_size(gpu.allocated_bytes),
                    show_size(gpu.largest_buffer_bytes)
                ),
            ));
        }
        rows.extend(self.copy_gb_s.map(|gb_s| ("copy", format!("{gb_s:.1} GB/s"))));
    }
}

impl Generated {
    fn text(&self) -> String {
        let Self { tokens, kernels, slots, plan_bytes, tok_s, .. } = self;
        let plan = show_size(*plan_bytes);
        format!("{tokens:?}, {tok_s:.1} tok/s, {slots} slots, plan {plan}, {kernels}")
    }
}

/// A row of `probe_ssd`.
fn disk_row(row: &serde_json::Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
    let cached = if row["cached"] == true { ", cached" } else { "" };
    format!(
        "{:<6} {:<8} {:>2} at once: {}, p99 {:.2} ms{cached}",
        text("way"),
        text("reader"),
        row["depth"],
        row["gb_s"].as_f64().map_or("?".to_owned(), show_throughput),
        row["p99_ms"].as_f64().unwrap_or(f64::NAN)
    )
}
