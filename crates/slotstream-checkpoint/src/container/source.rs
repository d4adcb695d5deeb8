//! Which checkpoint a container was made from.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use slotstream_core::{ExpertIdx, ExpertKey, Extent, LayerIdx, PIECE_ORDER, Part};

use super::{ContainerError, Difference};
use crate::Checkpoint;

/// Bytes of each sampled extent.
const SAMPLE: u64 = 256;

/// Which of the two files of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ContainerKind {
    /// `experts.slots`.
    Experts,
    /// `ngram.rows`.
    Ngram,
}

impl ContainerKind {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Experts, Self::Ngram];

    /// The name of the file.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Experts => "experts.slots",
            Self::Ngram => "ngram.rows",
        }
    }

    /// Its number in a header.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Experts => 1,
            Self::Ngram => 2,
        }
    }
}

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// A digest of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn of(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

/// Hexadecimal; a precision shows so many of the digits, rounded up to whole bytes.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(64);
        let mut bytes = self.0.iter().take(digits.div_ceil(2));
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A shard that bytes were copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceShard {
    /// Its file name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of its safetensors header: the eight bytes of its length and its JSON.
    pub header: Digest,
}

/// Which checkpoint a container was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceIdentity {
    /// SHA-256 of `config.json`.
    pub config: Digest,
    /// SHA-256 of a few of the scales: other weights in the same shapes are seen by them.
    pub sample: Digest,
    /// The shards that bytes were copied from, in the order of their names.
    pub shards: Vec<SourceShard>,
}

impl SourceIdentity {
    /// The identity of a checkpoint as it lies on the disk now, as far as a container's file of
    /// this kind goes. Reads the config, the headers, and 256 bytes of scales for each layer's
    /// matrices or each shard of the n-gram table.
    ///
    /// # Errors
    /// [`ContainerError::Io`], [`ContainerError::Source`].
    pub fn of(checkpoint: &Checkpoint, kind: ContainerKind) -> Result<Self, ContainerError> {
        let (sampled, used) = extents(checkpoint, kind);
        let mut shards = Vec::new();
        let mut files = Vec::new();
        for (path, used) in checkpoint.files().iter().zip(used) {
            let file = if used { Some(open(path)?) } else { None };
            if let Some(file) = &file {
                shards.push(shard(path, file)?);
            }
            files.push(file);
        }
        let mut sample = Sha256::new();
        for extent in sampled {
            let at = extent.file().index();
            let Some(Some(file)) = files.get(at) else { continue };
            let mut bytes = vec![0; usize::try_from(extent.len().min(SAMPLE)).unwrap_or(0)];
            file.read_exact_at(&mut bytes, extent.offset()).map_err(|e| {
                ContainerError::io(&checkpoint.files()[at], "read", extent.offset(), e)
            })?;
            sample.update(&bytes);
        }
        Ok(Self { config: config(checkpoint)?, sample: Digest::of(sample), shards })
    }

    /// Whether both are of the same weights, by the files that hold them: a config may be edited.
    pub(super) fn same_weights(&self, other: &Self) -> bool {
        self.sample == other.sample && self.shards == other.shards
    }

    /// The first thing in which a container's source differs from this one, the present one.
    pub(super) fn difference(&self, made_from: &Self) -> Option<Difference> {
        let differ = |what: String, expected: String, found: String| {
            Some(Difference { what, expected, found })
        };
        if self.config != made_from.config {
            let (expected, found) = (sha(self.config), sha(made_from.config));
            return differ("config.json is another one".into(), expected, found);
        }
        for shard in &self.shards {
            let name = &shard.name;
            let Some(found) = made_from.shards.iter().find(|found| found.name == *name) else {
                let found = format!("{} files, none of that name", made_from.shards.len());
                return differ("it knows other files".into(), name.clone(), found);
            };
            if shard.size != found.size {
                let (expected, found) = (bytes(shard.size), bytes(found.size));
                return differ(format!("{name} has another size"), expected, found);
            }
            if shard.header != found.header {
                let (expected, found) = (sha(shard.header), sha(found.header));
                return differ(format!("the header of {name} is another one"), expected, found);
            }
        }
        let gone = |shard: &&SourceShard| !self.shards.iter().any(|now| now.name == shard.name);
        if let Some(gone) = made_from.shards.iter().find(gone) {
            let expected = format!("{} files, none of that name", self.shards.len());
            return differ("it knows other files".into(), expected, gone.name.clone());
        }
        if self.sample != made_from.sample {
            let (expected, found) = (sha(self.sample), sha(made_from.sample));
            let what = "the weights are others in the same shapes, by a sample of the scales";
            return differ(what.into(), expected, found);
        }
        None
    }
}

/// One line that tells two checkpoints apart.
impl fmt::Display for SourceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |digest: Digest| format!("{digest:.12}");
        let size: u128 = self.shards.iter().map(|shard| u128::from(shard.size)).sum();
        let (files, first) = (self.shards.len(), self.shards.first());
        let first = first.map_or("", |shard| &shard.name);
        let (config, sample) = (short(self.config), short(self.sample));
        write!(f, "{files} files of {size} bytes from {first} on, config {config}, scales {sample}")
    }
}

fn sha(digest: Digest) -> String {
    format!("SHA-256 {digest}")
}

fn bytes(count: u64) -> String {
    format!("{count} bytes")
}

/// The extents that are sampled, and which files a container of this kind is copied from.
fn extents(checkpoint: &Checkpoint, kind: ContainerKind) -> (Vec<Extent>, Vec<bool>) {
    let mut used = vec![false; checkpoint.files().len()];
    let mut sampled = Vec::new();
    let mut note = |extent: &Extent, sample: bool| {
        if let Some(used) = used.get_mut(extent.file().index()) {
            *used = true;
        }
        if sample {
            sampled.push(*extent);
        }
    };
    match kind {
        ContainerKind::Experts => {
            for layer in (0..=u16::MAX).take(checkpoint.geometry().layers()) {
                let key = ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(0));
                let pieces = checkpoint.expert_pieces(key);
                for (extent, (_, part)) in pieces.iter().flatten().zip(PIECE_ORDER) {
                    note(extent, part == Part::Scales);
                }
            }
        }
        ContainerKind::Ngram => {
            for shard in checkpoint.ngram().map_or(&[][..], |plan| &plan.shards) {
                note(&shard.weight, false);
                note(&shard.scales, true);
                note(&shard.biases, false);
            }
        }
    }
    (sampled, used)
}

fn open(path: &Path) -> Result<File, ContainerError> {
    File::open(path).map_err(|e| ContainerError::io(path, "open", 0, e))
}

/// Name, size and header of a shard as it is now.
fn shard(path: &Path, mut file: &File) -> Result<SourceShard, ContainerError> {
    let fail = |e| ContainerError::io(path, "read the header of", 0, e);
    let size = file.metadata().map_err(fail)?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(fail)?;
    let mut hasher = Sha256::new();
    hasher.update(length);
    let mut json = file.take(u64::from_le_bytes(length).min(size));
    let mut buffer = vec![0; 64 << 10];
    loop {
        match json.read(&mut buffer).map_err(fail)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(SourceShard { name: name.unwrap_or_default(), size, header: Digest::of(hasher) })
}

fn config(checkpoint: &Checkpoint) -> Result<Digest, ContainerError> {
    checkpoint.config_digest().map_err(|source| {
        let (folder, source) = (checkpoint.folder().into(), Box::new(source));
        ContainerError::Source { folder, source }
    })
}
