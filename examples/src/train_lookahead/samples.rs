//! Samples in a file without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slotstream::core::{LayerIdx, SessionId};
use slotstream::lookahead::{BoxedSource, Sample, SampleSink, SampleSource};

use crate::{Failure, space};

/// Samples of every target layer, each layer in a part of the file of its own that has room for
/// `most` of them: numbers of the session, then mixed, tap and truth as f32, lowest byte
/// first. Only this process reads it, and it is gone with it.
pub(super) struct FileSamples {
    file: File,
    folder: PathBuf,
    hidden: usize,
    experts: usize,
    most: usize,
    /// By layer.
    rows: Vec<usize>,
    record: Vec<u8>,
    /// The first error of a write; nothing is kept after it.
    failed: Option<io::Error>,
}

impl FileSamples {
    /// A file in `folder`, or in the system's folder for such, with room for `most` samples of each
    /// of `layers`.
    pub(super) fn create(
        folder: Option<&Path>,
        (layers, hidden, experts): (usize, usize, usize),
        most: usize,
        limit: u64,
    ) -> Result<Self, Failure> {
        let folder = folder.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let record = 8 + 4 * (hidden + 2 * experts);
        let needed = (layers as u64).saturating_mul(most as u64).saturating_mul(record as u64);
        if needed > limit {
            let fit = limit / (layers as u64).saturating_mul(record as u64).max(1);
            return Err(Failure::Option {
                option: "--rows",
                value: most.to_string(),
                expected: format!("at most {fit}, what --scratch-limit has room for"),
            });
        }
        space::need(&folder, needed)?;
        let file = tempfile::tempfile_in(&folder)
            .map_err(|source| Failure::File { path: folder.clone(), source })?;
        let (rows, record) = (vec![0; layers], vec![0; record]);
        Ok(Self { file, folder, hidden, experts, most, rows, record, failed: None })
    }

    /// Whether everything was written.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        match self.failed.take() {
            Some(source) => Err(Failure::File { path: self.folder.clone(), source }),
            None => Ok(()),
        }
    }

    fn place(&self, target: usize, row: usize) -> u64 {
        (target as u64 * self.most as u64 + row as u64) * self.record.len() as u64
    }
}

impl SampleSink for FileSamples {
    fn push(&mut self, sample: &Sample<'_>) {
        let target = sample.target.index();
        let Some(row) = self.rows.get(target).copied().filter(|row| *row < self.most) else {
            return;
        };
        let lengths = (sample.mixed.len(), sample.tap.len(), sample.truth.len());
        if self.failed.is_some() || lengths != (self.hidden, self.experts, self.experts) {
            return;
        }
        let (session, numbers) = self.record.split_at_mut(8);
        session.copy_from_slice(&sample.session.get().to_le_bytes());
        let values = sample.mixed.iter().chain(sample.tap).chain(sample.truth);
        for (four, value) in numbers.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *four = value.to_le_bytes();
        }
        match self.file.write_all_at(&self.record, self.place(target, row)) {
            Ok(()) => self.rows[target] = row + 1,
            Err(error) => self.failed = Some(error),
        }
    }
}

impl SampleSource for FileSamples {
    fn samples(
        &self,
        target: LayerIdx,
        visit: &mut dyn FnMut(&Sample<'_>),
    ) -> Result<(), BoxedSource> {
        let mut record = vec![0; self.record.len()];
        let mut numbers = vec![0.0; self.hidden + 2 * self.experts];
        for row in 0..self.rows.get(target.index()).copied().unwrap_or_default() {
            self.file.read_exact_at(&mut record, self.place(target.index(), row))?;
            let (session, bytes) = record.split_at(8);
            let session = session.try_into().map(u64::from_le_bytes).map(SessionId::new)?;
            for (number, four) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *number = f32::from_le_bytes(*four);
            }
            let (mixed, logits) = numbers.split_at(self.hidden);
            let (tap, truth) = logits.split_at(self.experts);
            visit(&Sample::new(session, target, mixed, tap, truth));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_in_order() {
        let mut store = FileSamples::create(None, (3, 2, 3), 2, 1 << 20).expect("room");
        let target = LayerIdx::new(2);
        for session in 1..5 {
            let number = session as f32;
            let (mixed, tap, truth) = ([number; 2], [10.0 * number; 3], [100.0 * number; 3]);
            store.push(&Sample::new(SessionId::new(session), target, &mixed, &tap, &truth));
        }
        store.push(&Sample::new(
            SessionId::new(9),
            LayerIdx::new(3),
            &[0.0; 2],
            &[0.0; 3],
            &[0.0; 3],
        ));
        store.push(&Sample::new(
            SessionId::new(9),
            LayerIdx::new(0),
            &[0.0; 1],
            &[0.0; 3],
            &[0.0; 3],
        ));
        store.finish().expect("written");
        let mut seen = Vec::new();
        let visit = &mut |sample: &Sample<'_>| {
            seen.push((sample.session.get(), sample.mixed[1], sample.tap[2], sample.truth[0]));
        };
        store.samples(target, visit).expect("read");
        store.samples(LayerIdx::new(0), visit).expect("read");
        assert_eq!(seen, [(1, 1.0, 10.0, 100.0), (2, 2.0, 20.0, 200.0)]);
    }

    #[test]
    fn a_limit_is_told_before_anything_is_written() {
        let error = FileSamples::create(None, (48, 2560, 512), 1 << 20, 1 << 30).err();
        let told = error.expect("too much").to_string();
        assert!(told.contains("--rows") && told.contains("--scratch-limit"), "{told}");
    }
}
