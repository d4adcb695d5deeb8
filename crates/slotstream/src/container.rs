//! Which repacked container records and rows are read from.

use std::path::{Path, PathBuf};

use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::{Container, Content};
use slotstream_core::Extent;
use slotstream_io::ChecksumTable;
use slotstream_ngram::{NgramError, NgramTable};

use crate::Error;

/// Where an engine reads records and n-gram rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContainerChoice {
    /// From a container beside the model: in its folder, or in the folder of its name with
    /// `.container` behind it. Without one, from the shards.
    #[default]
    Beside,
    /// From the shards.
    Shards,
    /// From the container in this folder.
    Folder(PathBuf),
}

impl ContainerChoice {
    /// The folder of the container that is meant by the model in this folder; `None` is the shards.
    #[must_use]
    pub fn folder(&self, model: &Path) -> Option<PathBuf> {
        match self {
            Self::Shards => None,
            Self::Folder(folder) => Some(folder.clone()),
            Self::Beside => beside(model),
        }
    }

    /// The container that is meant, its files numbered after the checkpoint's; `None` is the
    /// shards. A container that is there and does not fit is an error, not passed over.
    ///
    /// # Errors
    /// [`Error::Container`].
    pub fn open(&self, checkpoint: &Checkpoint) -> Result<Option<Container>, Error> {
        let Some(folder) = self.folder(checkpoint.folder()) else { return Ok(None) };
        let container = Container::open(&folder, checkpoint)?;
        // A checkpoint numbers its files in 16 bits.
        Ok(Some(container.numbered_from(checkpoint.files().len() as u16)))
    }
}

/// The folder with the container of a model.
fn beside(model: &Path) -> Option<PathBuf> {
    let mut named = model.canonicalize().ok()?.into_os_string();
    named.push(".container");
    [model.into(), PathBuf::from(named)].into_iter().find(|folder| Container::is_in(folder))
}

/// The n-gram table of a container; `None` without one.
pub(crate) fn packed_table(container: &Container) -> Result<Option<NgramTable>, NgramError> {
    let (Some(header), Some(first)) = (container.ngram(), container.ngram_row_extent(0)) else {
        return Ok(None);
    };
    let Content::Ngram { rows, layout, .. } = &header.content else { return Ok(None) };
    let stride = layout.stride() as u64;
    // Opening has compared these numbers with the file, so they name an extent.
    let data = Extent::new(first.file(), first.offset(), rows.saturating_mul(stride));
    let Ok(data) = data else { return Ok(None) };
    NgramTable::from_packed(layout.format(), layout.width(), *rows, stride, data).map(Some)
}

/// The checksums of a container's records; `None` without records. Rows have none of their own:
/// theirs are of blocks of a MiB.
pub(crate) fn checksums(container: &Container) -> Option<ChecksumTable> {
    let Content::Experts { geometry, layout, .. } = &container.experts()?.content else {
        return None;
    };
    let keys = || (0..geometry.records()).map(|index| geometry.key(index));
    let sums = keys().map(|key| container.record_checksum(key?)).collect::<Option<Vec<u32>>>()?;
    let first = container.extent(keys().next()??)?;
    let (stride, len) = (layout.stride() as u64, layout.record_len() as u64);
    ChecksumTable::new(first.file(), first.offset(), stride, len, sums)
}
