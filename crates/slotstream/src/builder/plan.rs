//! The plan of an engine, and the reader that suits it.

use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::{Container, ContainerHeader};
use slotstream_core::Forecaster;
use slotstream_io::{ChecksumTable, DirectOptions, ReaderChoice, ReaderKind};
use slotstream_lookahead::parse_forecaster_with;

use super::{EngineBuilder, Source};
use crate::container::checksums;
use crate::machine::{Machine, MetalGpu, NoGpu};
use crate::plan::PlanRequest;
use crate::sidecar::BesideModel;
use crate::{DeviceKind, Error, MemoryPlan};

/// What a plan counts beside the checkpoint: container, checksums and forecaster.
type Given<'a> = (Option<&'a Container>, Option<&'a ChecksumTable>, &'a dyn Forecaster);

impl EngineBuilder {
    /// The plan of this engine, without loading anything. The plan of a built engine also counts
    /// its tokenizer.
    ///
    /// # Errors
    /// As [`build`](Self::build), as far as headers tell.
    pub fn plan(&self) -> Result<MemoryPlan, Error> {
        Ok(self.planned_from_headers()?.0)
    }

    /// Makes the forecaster that was named, if one was.
    pub(super) fn named_forecaster(
        &self,
        checkpoint: &Checkpoint,
    ) -> Result<Option<Box<dyn Forecaster>>, Error> {
        let geometry = checkpoint.geometry();
        let (folder, others) = (&*self.folder, &*self.forecast_files);
        let files = BesideModel { checkpoint, folder, others };
        let made = self.lookahead.as_ref();
        let made = made.map(|name| parse_forecaster_with(name, &geometry, &files));
        Ok(made.transpose()?)
    }

    /// The reader of this engine and why: what [`ReaderKind::Auto`] becomes beside the plan, or the
    /// one that was asked for. Opens the checkpoint's headers and no reader.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn planned_reader(&self) -> Result<ReaderChoice, Error> {
        Ok(self.planned_from_headers()?.1)
    }

    fn planned_from_headers(&self) -> Result<(MemoryPlan, ReaderChoice), Error> {
        self.check()?;
        let checkpoint = Checkpoint::open(&self.folder)?;
        let named = self.named_forecaster(&checkpoint)?;
        let forecaster = named.as_deref().unwrap_or(&*self.forecaster);
        let container = self.container.open(&checkpoint)?;
        let checksums = self.checksums(container.as_ref())?;
        let given = (container.as_ref(), checksums.as_ref(), forecaster);
        self.planned(&checkpoint, given)
    }

    /// What reads are compared with, if they are to be.
    pub(super) fn checksums(
        &self,
        container: Option<&Container>,
    ) -> Result<Option<ChecksumTable>, Error> {
        if !self.verify_reads {
            return Ok(None);
        }
        let Some(table) = container.and_then(checksums) else {
            let (option, value) = ("verify reads", "true, with records of the shards".to_owned());
            let expected = "a container with experts.slots: the shards have no checksums";
            return Err(Error::Option { option, value, expected });
        };
        Ok(Some(table))
    }

    /// The plan, and the reader that `Auto` means within it.
    pub(super) fn planned(
        &self,
        checkpoint: &Checkpoint,
        (container, checksums, forecaster): Given<'_>,
    ) -> Result<(MemoryPlan, ReaderChoice), Error> {
        self.check_context(checkpoint)?;
        let headers = container.map(|container| [container.experts(), container.ngram()]);
        let headers = headers.into_iter().flatten().flatten();
        let packed: u64 = headers.map(ContainerHeader::file_len).sum();
        let shards: u64 = checkpoint.file_sizes().iter().sum();
        let copies = 1 + self.mirrors.len() as u64;
        let plan = |kind| {
            let of_a_copy = match kind {
                ReaderKind::Memory => shards + packed,
                // A lane has one read in flight, and whoever loads the weights another.
                ReaderKind::Direct => DirectOptions::new().planned_bytes_of(self.lanes + 1),
                ReaderKind::Uring => DirectOptions::new().planned_bytes(),
                _ => 0,
            };
            let table = checksums.map_or(0, ChecksumTable::bytes);
            let reader_bytes = copies.saturating_mul(of_a_copy + table);
            let mut request = self.request(reader_bytes, checkpoint);
            request.forecaster_bytes = forecaster.planned_bytes(&checkpoint.geometry());
            MemoryPlan::new(checkpoint, &request)
        };
        let Source::Kind(kind) = self.reader else {
            return Ok((plan(ReaderKind::Auto)?, ReaderKind::Auto.into()));
        };
        let first = plan(kind)?;
        if kind != ReaderKind::Auto {
            return Ok((first, kind.into()));
        }
        let has_experts = container.is_some_and(|container| container.experts().is_some());
        let files = packed + if has_experts { 0 } else { shards };
        let cache = self.machine_facts().room_beside(first.total_bytes());
        let choice = ReaderKind::suited(files, cache, std::env::consts::OS);
        Ok((if choice.kind == ReaderKind::Direct { plan(choice.kind)? } else { first }, choice))
    }

    fn machine_facts(&self) -> Machine {
        self.machine.unwrap_or_else(|| match self.device {
            DeviceKind::Cpu => Machine::detect(&NoGpu),
            DeviceKind::Metal => Machine::detect(&MetalGpu),
        })
    }

    fn request(&self, reader_bytes: u64, checkpoint: &Checkpoint) -> PlanRequest {
        let geometry = checkpoint.geometry();
        let sinks = |tokens| {
            self.sinks.iter().map(|sink| sink.planned_bytes(&geometry, tokens)).sum::<u64>()
        };
        let sink_bytes = sinks(0);
        PlanRequest {
            sizing: self.sizing,
            context: self.context,
            chunk: self.chunk,
            sessions: self.sessions,
            sweep: self.sweep,
            lanes: self.lanes,
            threads: self.threads,
            rollback_rows: self.rollback_rows,
            checkpoints: self.checkpoints,
            logit_rows: self.logit_rows,
            ngram_cache_rows: self.ngram_cache_rows,
            device: self.device,
            reader_bytes,
            policy_bytes: self.policy.planned_bytes(&geometry),
            sink_bytes,
            sink_bytes_a_token: sinks(1).saturating_sub(sink_bytes),
            ..PlanRequest::new(self.machine_facts())
        }
    }
}
