//! Whoever waits for a record hears a cancellation and a deadline.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slotstream_candle::HostOps;
use slotstream_core::{
    CancelToken, ErrorKind, Job, ReadClass, ReadCounters, ReadError, ReadQueue, RecordReader,
};
use slotstream_experts::{PassHints, PrefillSweep, StreamingExperts};
use slotstream_io::MemReader;
use slotstream_kernels::Reference;

use crate::{File, expected, geometry, layout, pass};

/// A disk that hangs: what is queued meanwhile ends when it is called off, and not before.
#[derive(Debug)]
struct Hanging {
    reader: MemReader,
    /// Set when something is queued; the disk hangs while there is one.
    hangs: Mutex<Option<CancelToken>>,
    counters: Mutex<ReadCounters>,
}

impl ReadQueue for Hanging {
    fn submit(&self, _class: ReadClass, jobs: Vec<Job>) {
        let hangs = self.hangs.lock().expect("not poisoned").clone();
        let Some(token) = hangs else {
            for mut job in jobs {
                let extent = *job.extent();
                let read = self.reader.read_exact_at(&extent, job.buffer());
                job.complete(read);
            }
            return;
        };
        // Only a failure lasts that long.
        let hang = Instant::now() + Duration::from_secs(60);
        std::thread::spawn(move || {
            token.cancel();
            while !jobs.iter().all(Job::is_cancelled) && Instant::now() < hang {
                std::thread::sleep(Duration::from_millis(1));
            }
            for job in jobs {
                let extent = *job.extent();
                let heard = job.is_cancelled();
                job.complete(Err(if heard {
                    ReadError::cancelled(&extent)
                } else {
                    ReadError::other(&extent, "nobody called it off")
                }));
            }
        });
    }

    fn counters(&self) -> ReadCounters {
        *self.counters.lock().expect("not poisoned")
    }
}

fn hanging(file: &File, sweep: PrefillSweep) -> (StreamingExperts, Arc<Hanging>) {
    let queue = Arc::new(Hanging {
        reader: MemReader::from_bytes(vec![file.bytes.clone()]).expect("small"),
        hangs: Mutex::default(),
        counters: Mutex::default(),
    });
    let ops = Arc::new(HostOps::new(Arc::new(Reference)));
    let experts = StreamingExperts::builder(geometry(), layout(), 16).with_sweep(sweep);
    let own = Arc::clone(&queue) as Arc<dyn ReadQueue>;
    (experts.build(Arc::new(file.clone()), own, ops).expect("builds"), queue)
}

#[test]
fn a_disk_that_hangs_does_not_hold_a_cancelled_pass() {
    let file = File::new();
    let routes = [[5, 0, 2], [1, 7, 6], [3, 4, 0]];
    for sweep in [PrefillSweep::Off, PrefillSweep::Rows(2)] {
        for late in [false, true] {
            let (mut experts, queue) = hanging(&file, sweep);
            let asked = CancelToken::new();
            let token = if late { CancelToken::new() } else { asked.clone() };
            // Late: nobody asks, the time is up while the disk hangs.
            let own = if late {
                token.with_deadline(Instant::now() + Duration::from_millis(50))
            } else {
                token
            };
            *queue.hangs.lock().expect("not poisoned") = Some(asked);
            experts.hint(PassHints::new().with_cancel(own));
            let error = pass(&mut experts, &routes).expect_err("it was cancelled");
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{sweep:?} {late}: {error}");
            assert_eq!(experts.pool().open_claims(), 0);
            // The disk is back, and so is everything else.
            *queue.hangs.lock().expect("not poisoned") = None;
            let found = pass(&mut experts, &routes).expect("runs");
            for (layer, found) in found.iter().enumerate() {
                for (a, b) in found.iter().zip(&expected(&file, layer as u16, &routes)) {
                    assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{sweep:?} {a} {b}");
                }
            }
        }
    }
}
