//! What a repack writes through: so that tests can fail and stop every single write.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A file that is being written.
pub(super) trait PartFile: Debug {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads; the bytes must be there.
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of the bytes.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts off, or appends zeros.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
    /// Returns once all that was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// The disk that a container is written to.
pub(super) trait Disk: Debug {
    /// Opens or makes a file that no other process writes. [`io::ErrorKind::WouldBlock`]: one does.
    fn open(&self, part: &Path) -> io::Result<Box<dyn PartFile>>;
    /// Gives a finished file its name, for good.
    fn publish(&self, part: &Path, name: &Path) -> io::Result<()>;
    /// Bytes that may still be written to this folder.
    fn free(&self, folder: &Path) -> io::Result<u64>;
}

/// The real one.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, part: &Path) -> io::Result<Box<dyn PartFile>> {
        let mut options = OpenOptions::new();
        // A link could lead to a file of somebody else's, even to a shard.
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.read(true).write(true).create(true).truncate(false).open(part)?;
        let meta = file.metadata()?;
        if !meta.is_file() || meta.nlink() > 1 {
            let why = "it is no file of its own, but linked or of another kind: remove it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        file.try_lock()?;
        // Whoever had the lock before may have finished the file and given it its name.
        let (opened, there) = (file.metadata()?, fs::metadata(part)?);
        if (opened.dev(), opened.ino()) != (there.dev(), there.ino()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(file))
    }

    fn publish(&self, part: &Path, name: &Path) -> io::Result<()> {
        fs::rename(part, name)?;
        match name.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    fn free(&self, folder: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(folder)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

impl PartFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
