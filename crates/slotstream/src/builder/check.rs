//! What is refused before anything is opened, and what the model does not allow.

use slotstream_checkpoint::Checkpoint;
use slotstream_qwen::MAX_ROLLBACK;

use super::{EngineBuilder, Source};
use crate::{DeviceKind, Error, open_metal};

/// Most lanes and threads: beyond this a number is a mistake.
const MOST: usize = 1024;

impl EngineBuilder {
    pub(super) fn check(&self) -> Result<(), Error> {
        let range = |option, value: usize, low: usize, high: usize, expected| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::Option { option, value: value.to_string(), expected })
        };
        range("lanes", self.lanes, 1, MOST, "1 to 1024")?;
        if let (Source::Own(_), Some(folder)) = (&self.reader, self.mirrors.first()) {
            return Err(Error::Option {
                option: "mirror",
                value: folder.display().to_string(),
                expected: "no mirror beside mmap or another reader of one's own",
            });
        }
        range("threads", self.threads, 1, MOST, "1 to 1024")?;
        range("chunk", self.chunk.unwrap_or(1), 1, 1 << 16, "1 to 65536")?;
        range("prefill sweep", self.sweep.rows().unwrap_or(1), 1, 1 << 16, "1 to 65536")?;
        range("sessions", self.sessions, 1, 1 << 16, "1 to 65536")?;
        range("logit rows", self.logit_rows, 1, 1 << 16, "1 to 65536")?;
        range("rollback rows", self.rollback_rows, 0, MAX_ROLLBACK, "0 to 8")?;
        range("checkpoints", self.checkpoints.unwrap_or(0), 0, 1 << 16, "0 to 65536")?;
        range("checkpoint every", self.checkpoint_every, 1, 1 << 30, "1 to 2^30")?;
        range("n-gram cache rows", self.ngram_cache_rows, 0, 1 << 28, "0 to 2^28")?;
        if let Some((options, _)) = &self.elastic {
            options.check()?;
        }
        if self.device == DeviceKind::Metal && cfg!(not(target_os = "macos")) {
            open_metal()?;
        }
        Ok(())
    }

    /// Refuses a context that the model does not allow.
    pub(super) fn check_context(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let longest = checkpoint.config().max_position_embeddings;
        match self.context {
            Some(tokens) if !(1..=longest).contains(&tokens) => Err(Error::Option {
                option: "context",
                value: format!("{tokens} tokens (the model allows {longest})"),
                expected: "1 to the model's max_position_embeddings",
            }),
            _ => Ok(()),
        }
    }
}
