//! Sessions in files: [`Session::save`] and [`Engine::load_session`].
//!
//! A file holds all that a session goes on from: tokens, state, logits, sampling and its place in the
//! stream of draws. It is bound to what its bits depend on ([`SessionIdentity`]); every section has a
//! checksum; it appears under its name when it is whole and on the disk, and not before. The format
//! is described in `docs/formats.md`.

mod error;
mod fields;
mod header;
pub(crate) mod sections;
mod write;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use slotstream_checkpoint::TextConfig;
use slotstream_qwen::State;

pub use error::SessionFileError;
pub use header::{SESSION_VERSION, SessionHeader, SessionIdentity};

use crate::retained::Held;
use crate::sampling::Sampler;
use crate::{Engine, Error, Session};
use sections::{Section, Sections};

/// Longest note of a session, in bytes.
pub(crate) const MOST_NOTE: usize = 16 << 20;

/// Bytes of a buffer of a file that is read or written.
const BUFFER: usize = 256 << 10;

/// Whether a regular file begins as every session's file does; nothing else of it is looked at.
///
/// # Errors
/// The system's.
pub fn is_session(path: &Path) -> io::Result<bool> {
    crate::atomic::begins_with(path, header::MAGIC)
}

/// Reads a file to its end and compares every checksum, without building a state: the header of a
/// file that a model of this config could go on from, whatever its weights are.
///
/// # Errors
/// [`SessionFileError`].
pub fn verify(
    path: &Path,
    config: &TextConfig,
    reader: impl Read,
    file_len: u64,
) -> Result<SessionHeader, SessionFileError> {
    let mut sections = Sections::new(path, reader);
    let header = SessionHeader::read(&mut sections, file_len)?;
    header.check_shape(path, config, config.max_position_embeddings)?;
    let tokens = read_tokens(&mut sections, &header, config)?;
    let mut logits = vec![0.0; header.logits];
    sections.whole(Section::Logits, &mut logits)?;
    read_note(&mut sections, &header)?;
    let mut values = Vec::new();
    for part in State::parts(config, header.position).iter().filter(|part| part.values() > 0) {
        let rows = (BUFFER / (4 * part.width)).max(1);
        let mut left = part.rows;
        while left > 0 {
            let count = left.min(rows);
            values.resize(count * part.width, 0.0);
            sections.block(part, &mut values)?;
            left -= count;
        }
    }
    debug_assert_eq!(tokens.len(), header.tokens);
    Ok(header)
}

fn read_tokens(
    sections: &mut Sections<'_, impl Read>,
    header: &SessionHeader,
    config: &TextConfig,
) -> Result<Vec<u32>, SessionFileError> {
    let mut tokens = vec![0; header.tokens];
    sections.whole(Section::Tokens, &mut tokens)?;
    match tokens.iter().position(|token| *token as usize >= config.vocab_size) {
        None => Ok(tokens),
        Some(at) => Err(SessionFileError::Field {
            path: sections.path().into(),
            field: "token",
            expected: format!("ids below {}", config.vocab_size),
            found: format!("{} at position {at}", tokens[at]),
        }),
    }
}

fn read_note(
    sections: &mut Sections<'_, impl Read>,
    header: &SessionHeader,
) -> Result<Vec<u8>, SessionFileError> {
    let mut words = vec![0_u32; header.note.div_ceil(4)];
    sections.whole(Section::Note, &mut words)?;
    let mut note: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    note.truncate(header.note);
    Ok(note)
}

impl Engine {
    /// What a session file of this engine is bound to.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the config or a shard cannot be read.
    pub fn session_identity(&self) -> Result<&SessionIdentity, Error> {
        let known = &self.0.identity;
        if let Some(identity) = known.get() {
            return Ok(identity);
        }
        let (checkpoint, model) = (&self.0.checkpoint, &self.0.model);
        #[cfg(feature = "text")]
        let [tokenizer, template] = self.0.text.digests();
        #[cfg(not(feature = "text"))]
        let [tokenizer, template] = [slotstream_checkpoint::container::Digest::new([0; 32]); 2];
        let identity = SessionIdentity {
            config: checkpoint.config_digest()?,
            weights: checkpoint.weights_digest()?,
            tokenizer,
            template,
            norms: model.norms(),
            arithmetic: model.ops().identity(),
        };
        Ok(known.get_or_init(|| identity))
    }

    /// A session that goes on from a file that [`Session::save`] wrote: the same tokens, bit for
    /// bit, as if it had never ended. Its sampling is the file's, too, in the middle of its stream of
    /// draws ([`Session::set_sampling`] begins another); it has a new cancel token and no checkpoint.
    ///
    /// Lengths are compared with the model and the file before anything is allocated, and every
    /// checksum before the session exists.
    ///
    /// # Errors
    /// [`Error::SessionFile`] for a file that is damaged, or of another version, model, tokenizer,
    /// chat template, norm form or arithmetic, by name; [`Error::State`] when no more state may be
    /// held; [`Error::Model`] when the device refuses.
    pub fn load_session(&self, path: impl AsRef<Path>) -> Result<Session, Error> {
        let path = path.as_ref();
        self.check_unchanged()?;
        let io = |action| move |source| SessionFileError::io(path, action, source);
        let meta = std::fs::metadata(path).map_err(io("open"))?;
        if !meta.is_file() {
            return Err(SessionFileError::NotAFile { path: path.into() }.into());
        }
        let file = File::open(path).map_err(io("open"))?;
        let file_len = file.metadata().map_err(io("open"))?.len();
        let mut sections = Sections::new(path, BufReader::with_capacity(BUFFER, file));
        let header = SessionHeader::read(&mut sections, file_len)?;
        header.identity.check(path, self.session_identity()?)?;
        let config = self.0.model.config();
        header.check_shape(path, config, self.0.context)?;
        let held = Held::of(&self.0, header.position)?;
        let tokens = read_tokens(&mut sections, &header, config)?;
        let mut logits = vec![0.0; header.logits];
        sections.whole(Section::Logits, &mut logits)?;
        let note = read_note(&mut sections, &header)?;
        let room = (self.0.context, self.0.rollback_rows);
        let state =
            self.0.model.import_state(room, &tokens[..header.position], |part, values| {
                Ok::<(), Error>(sections.block(part, values)?)
            })?;
        let sampler = Sampler::resumed(header.sampling, header.draws)?;
        let sampler = sampler.ok_or_else(|| header::no_stream(path))?;
        let tokens = (tokens, header.prompt_end, note);
        Ok(Session::kept(self.clone(), (state, held), tokens, logits, sampler))
    }
}

impl Session {
    /// Writes the session to a file and gives its length in bytes. A file of that name is replaced
    /// when the new one is whole and on the disk; whatever ends this call earlier, the process
    /// included, leaves the old one as it is, and beside it perhaps `NAME.part`, which the next save
    /// under that name writes over. A link is replaced, not what it leads to. Where several sessions or
    /// processes save under one name at once, the one that ends last stays, whole.
    ///
    /// # Errors
    /// [`Error::SessionFile`] when the file cannot be written; [`Error::Model`] when a pass that had to run, or the device, fails.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<u64, Error> {
        self.settle()?;
        let engine = self.engine().clone();
        engine.check_unchanged()?;
        let header = self.header(engine.session_identity()?.clone());
        let path = path.as_ref();
        header.check_writable(path)?;
        let written = write::atomically(path, |sections| {
            sections.header(&header)?;
            self.write(sections, engine.model().config())
        })?;
        debug_assert_eq!(written, header.file_len);
        Ok(written)
    }
}
