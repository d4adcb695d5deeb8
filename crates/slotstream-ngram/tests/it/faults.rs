//! Reads that fail, and queues that break their contract.

use std::error::Error;
use std::sync::Arc;

use slotstream_core::{AffineFormat, ErrorKind, Part, ReadError};
use slotstream_ngram::NgramError;

use crate::queues::{Closed, Held, Inline, Threads};
use crate::synthetic::Synthetic;

const CONTEXT: [u32; 3] = [3, 1, 4];
const TOKENS: [u32; 3] = [1, 5, 9];

fn q4() -> Synthetic {
    Synthetic::new(AffineFormat::Q4_G32, 64, 3)
}

#[test]
fn every_read_fails_once() {
    let made = q4();
    let missing = {
        let mut store = made.store(0, Arc::new(Inline(Arc::clone(&made.reader))));
        store.request(&CONTEXT, &TOKENS).unwrap().missing()
    };
    let want = made.want(&CONTEXT, &TOKENS);
    assert!(missing > 6);
    for threads in [false, true] {
        for fail in 0..3 * missing as u64 {
            let reader = Arc::clone(&made.reader);
            let mut store = if threads {
                made.store(100, Arc::new(Threads(reader)))
            } else {
                made.store(100, Arc::new(Inline(reader)))
            };
            made.reader.fail_after(fail);
            let ticket = store.request(&CONTEXT, &TOKENS).unwrap();
            let mut out = vec![-7.5; want.len()];
            let error = store.join(ticket, &mut out).unwrap_err();
            assert!(out.iter().all(|&v| v == -7.5), "no half-written output");
            check(&made, &error, (!threads).then_some(fail));
            assert_eq!(store.cached_rows(), missing - 1, "only rows that arrived whole");
            assert_eq!(store.metrics().failed, 1);

            let ticket = store.request(&CONTEXT, &TOKENS).unwrap();
            assert_eq!(ticket.missing(), 1);
            store.join(ticket, &mut out).unwrap();
            assert_eq!(out, want, "read {fail}");
        }
    }
}

/// The error names the piece that failed, which with `fail` is known: an inline queue reads the
/// pieces in order.
fn check(made: &Synthetic, error: &NgramError, fail: Option<u64>) {
    let NgramError::Read { row, shard, part, source, .. } = error else { panic!("{error:?}") };
    let pieces = made.table.pieces(*row).unwrap();
    let piece = match part {
        Part::Weight => pieces[0],
        Part::Scales => pieces[1],
        Part::Biases => pieces[2],
    };
    let ReadError::EndOfFile { path, offset, wanted, got: 1, .. } = source else {
        panic!("{source:?}")
    };
    assert_eq!((*offset, *wanted), (piece.offset(), piece.len()));
    assert_eq!(path.to_str(), Some(format!("shard-{shard}").as_str()));
    if let Some(fail) = fail {
        let parts = [Part::Weight, Part::Scales, Part::Biases];
        assert_eq!(*part, parts[fail as usize % 3]);
        let mut rows = Vec::new();
        made.hasher.rows_for(&CONTEXT, &TOKENS, &mut rows);
        let mut seen = Vec::new();
        rows.retain(|row| {
            !seen.contains(row) && {
                seen.push(*row);
                true
            }
        });
        assert_eq!(*row, rows[fail as usize / 3]);
    }
    assert_eq!((error.kind(), source.kind()), (ErrorKind::Corrupt, ErrorKind::Corrupt));
    let told = error.to_string();
    assert!(told.contains(&row.to_string()) && !told.contains(&source.to_string()));
    assert_eq!(error.source().unwrap().to_string(), source.to_string());
}

#[test]
fn a_closed_queue() {
    let made = q4();
    let mut store = made.store(100, Arc::new(Closed));
    let ticket = store.request(&[], &TOKENS).unwrap();
    let missing = ticket.missing() as u64;
    let mut rows = Vec::new();
    made.hasher.rows_for(&[], &TOKENS, &mut rows);
    let error = store.join(ticket, &mut vec![0.0; made.want(&[], &TOKENS).len()]).unwrap_err();
    // All fail: the first piece of the first row is reported.
    assert!(matches!(&error, NgramError::Read { row, part: Part::Weight, .. } if *row == rows[0]));
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!((store.cached_rows(), store.metrics().failed), (0, missing));
}

#[test]
fn a_queue_that_forgets_jobs_does_not_block_the_join() {
    let made = q4();
    let queue = Arc::new(Held::new(Arc::clone(&made.reader)));
    let mut store = made.store(100, queue.clone());
    let want = made.want(&CONTEXT, &TOKENS);
    let mut out = vec![0.0; want.len()];
    for keep in [0, 1, 4, 7] {
        let before = store.cached_rows();
        let ticket = store.request(&CONTEXT, &TOKENS).unwrap();
        queue.abandon(keep);
        let error = store.join(ticket, &mut out).unwrap_err();
        assert!(matches!(error, NgramError::Abandoned { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Bug);
        assert_eq!(store.cached_rows() - before, keep / 3);
    }
    let ticket = store.request(&CONTEXT, &TOKENS).unwrap();
    queue.release();
    store.join(ticket, &mut out).unwrap();
    assert_eq!(out, want);
}
