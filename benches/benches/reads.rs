//! Measurements of reads that need arguments; each prints one JSON object.
//!
//! - `cargo bench --bench reads -- rows FOLDER BYTES TOKENS ROUNDS`: rows of the n-gram table, 100
//!   bytes each, 16 a token, cold, 100 or 128 bytes apart in a file of so many bytes;
//! - `cargo bench --bench reads -- checked FOLDER ROUNDS`: what comparing records with their
//!   checksums costs;
//! - `cargo bench --bench reads -- flat FOLDER READS`: resident memory over so many reads of
//!   records.
//!
//! The files are written into the folder and removed. A folder in memory (`/dev/shm`) serves for
//! what is not about disks.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use slotstream_benches::processor_time;
use slotstream_core::{Extent, FileId, Job, ReadClass, ReadQueue, RecordReader, Rng};
use slotstream_io::{
    Checked, ChecksumTable, LaneQueue, MirrorReader, ReaderKind, ScratchPool, open_reader,
};

type Failed = Box<dyn Error>;

/// A record of the published model, and its place in a container.
const RECORD: u64 = 2_764_800;
const STRIDE: u64 = 2_768_896;
/// A row of its n-gram table, and the rows of a token.
const ROW: u64 = 100;
const ROWS: usize = 16;
const LANES: usize = 8;

fn main() -> Result<(), Failed> {
    // Cargo adds a flag of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let report = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rows", folder, bytes, tokens, rounds] => {
            rows(Path::new(folder), bytes.parse()?, tokens.parse()?, rounds.parse()?)?
        }
        ["checked", folder, rounds] => checked(Path::new(folder), rounds.parse()?)?,
        ["flat", folder, reads] => flat(Path::new(folder), reads.parse()?)?,
        // Without arguments it is one of all the benches that cargo runs.
        [] => return Ok(()),
        _ => return Err("expected: rows, checked or flat with their arguments".into()),
    };
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}

/// A file of random bytes that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn write(folder: &Path, bytes: u64) -> Result<Self, Failed> {
        let scratch = Self(folder.join(format!("slotstream-reads-{}.bin", std::process::id())));
        let (mut file, mut rng) = (File::create(&scratch.0)?, Rng::new(1));
        let mut left = bytes;
        while left > 0 {
            let words = (0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes());
            let block: Vec<u8> = words.take(usize::try_from(left)?).collect();
            file.write_all(&block)?;
            left -= block.len() as u64;
        }
        file.sync_all()?;
        Ok(scratch)
    }

    fn open(&self, kind: ReaderKind) -> Result<Arc<dyn RecordReader>, Failed> {
        Ok(open_reader(kind, std::slice::from_ref(&self.0))?)
    }

    /// Drops it from the page cache.
    fn forget(&self) -> Result<(), Failed> {
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&File::open(&self.0)?, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind says so by its name.
        let _ = fs::remove_file(&self.0);
    }
}

/// Lanes over a reader, with pages for their reads.
struct Lanes {
    queue: LaneQueue,
    pool: ScratchPool,
}

impl Lanes {
    fn new(reader: Arc<dyn RecordReader>, page: u64) -> Result<Self, Failed> {
        let queue = LaneQueue::new(reader, LANES)?;
        Ok(Self { queue, pool: ScratchPool::new(usize::try_from(page)?, 2 * LANES)? })
    }

    /// Reads all of these as one batch of at most as many as there are pages.
    fn read(&self, extents: &[Extent]) -> Result<(), Failed> {
        let (to, from) = channel();
        let mut jobs = Vec::with_capacity(extents.len());
        for extent in extents {
            let to = to.clone();
            let landing = self.pool.take()?.into_landing(
                usize::try_from(extent.len())?,
                move |page, result| {
                    drop(page);
                    // Whoever waits has gone after an error.
                    let _ = to.send(result);
                },
            );
            jobs.push(Job::new(*extent, landing));
        }
        drop(to);
        self.queue.submit(ReadClass::Demand, jobs);
        from.iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}

fn extent(offset: u64, len: u64) -> Result<Extent, Failed> {
    Ok(Extent::new(FileId::new(0), offset, len)?)
}

/// Median, least and most.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
    format!("[{:.4}, {:.4}, {:.4}]", at(values.len() / 2), at(0), at(values.len().max(1) - 1))
}

fn rows(folder: &Path, bytes: u64, tokens: usize, rounds: usize) -> Result<String, Failed> {
    let (scratch, mut rng) = (Scratch::write(folder, bytes)?, Rng::new(2));
    let mut cells = Vec::new();
    for kind in [ReaderKind::Buffered, ReaderKind::Direct] {
        for stride in [100, 128] {
            let lanes = Lanes::new(scratch.open(kind)?, 4096)?;
            cells.push((kind, stride, lanes, [const { Vec::new() }; 3]));
        }
    }
    for _ in 0..rounds {
        for (_, stride, lanes, [micros, processor, fetched]) in &mut cells {
            scratch.forget()?;
            let mut places = Vec::with_capacity(tokens);
            for _ in 0..tokens {
                let mut place = || extent(rng.below(bytes / *stride) * *stride, ROW);
                places.push((0..ROWS).map(|_| place()).collect::<Result<Vec<_>, _>>()?);
            }
            let (begun, used, before) = (Instant::now(), processor_time(), issued()?);
            places.iter().try_for_each(|token| lanes.read(token))?;
            let a_token = |time: Duration| time.as_secs_f64() * 1e6 / tokens as f64;
            micros.push(a_token(begun.elapsed()));
            processor.push(a_token(processor_time() - used));
            fetched.push((issued()? - before) as f64 / (tokens * ROWS) as f64);
        }
    }
    let cells = cells.into_iter().map(|(kind, stride, _, [micros, processor, fetched])| {
        format!(
            "\"{kind}/{stride}\": {{\"us_a_token\": {}, \"processor_us_a_token\": {}, \
             \"fetched_bytes_a_row\": {}}}",
            spread(micros),
            spread(processor),
            spread(fetched)
        )
    });
    Ok(format!("{{{}}}", cells.collect::<Vec<_>>().join(", ")))
}

/// Bytes that this process caused to be fetched from disks.
fn issued() -> Result<u64, Failed> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("the system does not count")?.trim().parse()?)
}

fn checked(folder: &Path, rounds: usize) -> Result<String, Failed> {
    const RECORDS: u64 = 64;
    let scratch = Scratch::write(folder, RECORDS * STRIDE)?;
    let plain = scratch.open(ReaderKind::Buffered)?;
    let mut buffer = vec![0; usize::try_from(RECORD)?];
    let mut sums = Vec::new();
    for record in 0..RECORDS {
        plain.read_exact_at(&extent(record * STRIDE, RECORD)?, &mut buffer)?;
        sums.push(crc32fast::hash(&buffer));
    }
    let table = ChecksumTable::new(FileId::new(0), 0, STRIDE, RECORD, sums);
    let both = Checked::new(Arc::clone(&plain), table.ok_or("no such table")?);
    let readers: [(&str, &dyn RecordReader); 2] = [("plain", &plain), ("checked", &both)];
    let (mut processor, mut ratios) = ([const { Vec::new() }; 2], Vec::new());
    for _ in 0..rounds {
        for ((_, reader), processor) in readers.iter().zip(&mut processor) {
            let used = processor_time();
            for record in 0..RECORDS {
                reader.read_exact_at(&extent(record * STRIDE, RECORD)?, &mut buffer)?;
            }
            let gigabytes = (RECORDS * RECORD) as f64 / 1e9;
            processor.push((processor_time() - used).as_secs_f64() / gigabytes);
        }
        let last = |i: usize| processor[i].last().copied().unwrap_or(f64::NAN);
        ratios.push(last(1) - last(0));
    }
    let [plain, checked] = processor.map(spread);
    let more = spread(ratios);
    Ok(format!("{{\"plain\": {plain}, \"checked\": {checked}, \"processor_s_more_a_gb\": {more}}}"))
}

fn flat(folder: &Path, reads: u64) -> Result<String, Failed> {
    const RECORDS: u64 = 8;
    let scratch = Scratch::write(folder, RECORDS * STRIDE)?;
    let copies = || [ReaderKind::Direct, ReaderKind::Buffered].map(|kind| scratch.open(kind));
    let mirror = MirrorReader::new(copies().into_iter().collect::<Result<_, _>>()?)?;
    let readers: [(&str, Arc<dyn RecordReader>); 4] = [
        ("buffered", scratch.open(ReaderKind::Buffered)?),
        ("direct", scratch.open(ReaderKind::Direct)?),
        ("uring", scratch.open(ReaderKind::Uring)?),
        ("mirror", Arc::new(mirror)),
    ];
    let mut cells = Vec::new();
    for (name, reader) in readers {
        let lanes = Lanes::new(Arc::clone(&reader), STRIDE)?;
        let mut begun = Instant::now();
        let mut early = 0;
        for batch in 0..reads.div_ceil(LANES as u64) {
            if batch == reads.div_ceil(LANES as u64) / 10 {
                (early, begun) = (resident_kib()?, Instant::now());
            }
            let batch: Result<Vec<_>, _> = (0..LANES as u64)
                .map(|lane| extent((batch + lane) % RECORDS * STRIDE, RECORD))
                .collect();
            lanes.read(&batch?)?;
        }
        let late = resident_kib()?;
        let gb_s = (reads * 9 / 10 * RECORD) as f64 / 1e9 / begun.elapsed().as_secs_f64();
        cells.push(format!(
            "\"{name}\": {{\"kib_after_a_tenth\": {early}, \"kib_at_the_end\": {late}, \
             \"gb_s\": {gb_s:.2}, \"mode\": \"{}\"}}",
            reader.effective().name
        ));
    }
    Ok(format!("{{{}}}", cells.join(", ")))
}

fn resident_kib() -> Result<u64, Failed> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("the system does not say")?.parse()?)
}
