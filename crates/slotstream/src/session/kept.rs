//! A session as it is kept in a file.

use std::io::Write;

use slotstream_checkpoint::TextConfig;
use slotstream_qwen::State;

use super::Session;
use crate::retained::Held;
use crate::sampling::Sampler;
use crate::session_file::sections::Sections;
use crate::session_file::{SessionHeader, SessionIdentity};
use crate::{Engine, Error};

impl Session {
    /// The header of a file of this session; its state may not be dirty.
    pub(crate) fn header(&self, identity: SessionIdentity) -> SessionHeader {
        let mut header = SessionHeader {
            identity,
            file_len: 0,
            tokens: self.tokens.len(),
            position: self.state.position() as usize,
            prompt_end: self.prompt_end,
            logits: self.kept_logits().len(),
            sampling: *self.sampler.params(),
            draws: self.sampler.draws(),
            note: self.note.len(),
        };
        header.file_len = header.planned_len(self.engine.0.model.config());
        header
    }

    /// Logits after the last token that the state has seen, where they are known.
    fn kept_logits(&self) -> &[f32] {
        let known = self.logits_at > 0 && self.logits_at == self.state.position() as usize;
        if known { &self.logits } else { &[] }
    }

    /// Writes the sections behind the header.
    pub(crate) fn write(
        &self,
        sections: &mut Sections<'_, impl Write>,
        config: &TextConfig,
    ) -> Result<(), Error> {
        sections.write_whole(&self.tokens)?;
        sections.write_whole(self.kept_logits())?;
        sections.write_whole(&words(&self.note))?;
        self.state
            .export(config, |part, values| Ok::<(), Error>(sections.write_block(part, values)?))
    }

    /// A session that was kept.
    pub(crate) fn kept(
        engine: Engine,
        (state, held): (State, Held),
        (tokens, prompt_end, note): (Vec<u32>, usize, Vec<u8>),
        logits: Vec<f32>,
        sampler: Sampler,
    ) -> Self {
        let logits_at = if logits.is_empty() { 0 } else { state.position() as usize };
        let mut session = Self::of_parts(engine, (state, held), sampler);
        session.logits_at = logits_at;
        session.logits = logits;
        session.tokens = tokens;
        session.prompt_end = prompt_end;
        session.note = note;
        session
    }
}

/// Bytes as words, zeros behind them.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |part: &[u8]| {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        u32::from_le_bytes(word)
    };
    bytes.chunks(4).map(word).collect()
}
