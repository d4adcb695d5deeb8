//! Requests, tickets and the cache over made-up tables.

use std::sync::Arc;

use proptest::prelude::*;
use slotstream_core::{AffineFormat, ErrorKind};
use slotstream_ngram::{NgramError, NgramStore, NgramTicket};

use crate::queues::{Held, Inline, Threads};
use crate::synthetic::Synthetic;

fn q4() -> Synthetic {
    Synthetic::new(AffineFormat::Q4_G32, 64, 3)
}

fn joined(store: &mut NgramStore, ticket: NgramTicket) -> Vec<f32> {
    let mut out = vec![f32::NAN; ticket.values()];
    store.join(ticket, &mut out).unwrap();
    out
}

#[test]
fn other_shapes() {
    for (bits, group) in [(4, 32), (4, 64), (8, 32), (8, 128)] {
        for ngram_size in [2, 3, 5] {
            let format = AffineFormat::new(bits, group).unwrap();
            let made = Synthetic::new(format, 256, ngram_size);
            let mut store = made.store(4, Arc::new(Inline(Arc::clone(&made.reader))));
            let (context, tokens) = ([5, 0, 8, 1], [2, 0, 3, 3, 7]);
            let ticket = store.request(&context, &tokens).unwrap();
            assert_eq!(ticket.values(), 5 * 3 * (ngram_size - 1) * 256);
            assert_eq!(joined(&mut store, ticket), made.want(&context, &tokens));
        }
    }
}

#[test]
fn a_request_does_not_wait_and_is_one_batch() {
    let made = q4();
    let queue = Arc::new(Held::new(Arc::clone(&made.reader)));
    let mut store = made.store(100, queue.clone());
    let first = store.request(&[], &[1, 2, 3]).unwrap();
    assert_eq!(queue.waiting(), [3 * first.missing()]);
    let second = store.request(&[1, 2, 3], &[4]).unwrap();
    let third = store.request(&[1, 2, 3], &[4, 5]).unwrap();
    assert_eq!((queue.waiting().len(), made.reader.reads()), (3, 0));
    queue.release();
    // Joined in another order than requested.
    assert_eq!(joined(&mut store, third), made.want(&[1, 2, 3], &[4, 5]));
    assert_eq!(joined(&mut store, first), made.want(&[], &[1, 2, 3]));
    assert_eq!(joined(&mut store, second), made.want(&[1, 2, 3], &[4]));
}

#[test]
fn what_was_requested_ahead_is_not_read_again() {
    let made = q4();
    let queue = Arc::new(Held::new(Arc::clone(&made.reader)));
    let mut store = made.store(0, queue.clone());
    store.request_ahead(&[1, 2], &[3]).unwrap();
    assert_eq!((queue.waiting().len(), store.metrics().requested), (1, 0));
    queue.release();
    let reads = made.reader.reads();
    // Other tokens, and another past, are other rows.
    for (context, token) in [([1, 2], 4), ([1, 5], 3)] {
        let other = store.request(&context, &[token]).unwrap();
        assert_eq!(queue.waiting().len(), 1);
        queue.release();
        assert_eq!(joined(&mut store, other), made.want(&context, &[token]));
    }
    assert!(made.reader.reads() > reads);
    let reads = made.reader.reads();
    let ticket = store.request(&[1, 2], &[3]).unwrap();
    assert_eq!(joined(&mut store, ticket), made.want(&[1, 2], &[3]));
    assert_eq!((made.reader.reads(), store.metrics().waits), (reads, 0));
    assert_eq!(store.metrics().rows_read * 3, reads, "each row was counted once");
    // Once only, and the oldest of five is forgotten.
    (4..9).for_each(|token| store.request_ahead(&[1, 2], &[token]).unwrap());
    queue.release();
    for (token, more) in [(3, 1), (4, 1), (5, 0), (8, 0)] {
        let ticket = store.request(&[1, 2], &[token]).unwrap();
        assert_eq!(queue.waiting().len(), more, "token {token}");
        queue.release();
        assert_eq!(joined(&mut store, ticket), made.want(&[1, 2], &[token]));
    }
}

#[test]
fn a_hit_survives_the_eviction_of_its_row() {
    let made = q4();
    let mut store = made.store(6, Arc::new(Inline(Arc::clone(&made.reader))));
    let warm = store.request(&[], &[9]).unwrap();
    joined(&mut store, warm);
    let hit = store.request(&[], &[9]).unwrap();
    assert_eq!(hit.missing(), 0);
    for token in 20..40 {
        let ticket = store.request(&[1], &[token]).unwrap();
        joined(&mut store, ticket);
    }
    let gone = store.request(&[], &[9]).unwrap();
    assert!(gone.missing() > 0, "evicted meanwhile");
    assert_eq!(joined(&mut store, hit), made.want(&[], &[9]));
    assert_eq!(joined(&mut store, gone), made.want(&[], &[9]));
}

#[test]
fn a_dropped_ticket_leaves_no_trace() {
    let made = q4();
    let queue = Arc::new(Held::new(Arc::clone(&made.reader)));
    let mut store = made.store(100, queue.clone());
    drop(store.request(&[], &[1, 2]).unwrap());
    queue.release(); // ends into buffers whose ticket is gone
    assert!(made.reader.reads() > 0);
    assert_eq!(store.cached_rows(), 0);
    let ticket = store.request(&[], &[1, 2]).unwrap();
    drop(store.request(&[], &[7]).unwrap()); // in flight at the same time
    queue.release();
    assert_eq!(joined(&mut store, ticket), made.want(&[], &[1, 2]));
}

#[test]
fn an_empty_pass() {
    let made = q4();
    let queue = Arc::new(Held::new(Arc::clone(&made.reader)));
    let mut store = made.store(0, queue.clone());
    let ticket = store.request(&[4], &[]).unwrap();
    assert_eq!((ticket.tokens(), ticket.values(), queue.waiting().len()), (0, 0, 0));
    assert!(joined(&mut store, ticket).is_empty());
}

#[test]
fn wrong_lengths_and_foreign_tickets() {
    let (made, other) = (q4(), q4());
    let mut store = made.store(8, Arc::new(Inline(Arc::clone(&made.reader))));
    let mut foreign = other.store(8, Arc::new(Inline(Arc::clone(&other.reader))));
    let expected = store.request(&[], &[1]).unwrap().values();
    for found in [0, expected - 1, expected + 1] {
        let ticket = store.request(&[], &[1]).unwrap();
        let error = store.join(ticket, &mut vec![0.0; found]).unwrap_err();
        assert!(
            matches!(error, NgramError::OutputLength { expected: e, found: f, .. } if (e, f) == (expected, found))
        );
        assert_eq!(error.kind(), ErrorKind::User);
    }
    let ticket = foreign.request(&[], &[1]).unwrap();
    let error = store.join(ticket, &mut vec![0.0; expected]).unwrap_err();
    assert!(matches!(error, NgramError::ForeignTicket));
    let ticket = store.request(&[], &[1]).unwrap();
    assert_eq!(joined(&mut store, ticket), made.want(&[], &[1]));
}

#[test]
fn bytes_are_stated_beforehand_and_never_exceeded() {
    let made = q4();
    let row_len = made.table.row_len();
    assert_eq!(row_len, 32 + 4 + 4);
    let mut store = made.store(10, Arc::new(Inline(Arc::clone(&made.reader))));
    let stated = store.bytes();
    assert_eq!(Some(stated), NgramStore::cache_bytes(10, row_len));
    assert_eq!(stated, 10 * (row_len + 13) + 16 * 4);
    for token in 0..200 {
        let ticket = store.request(&[token / 2], &[token]).unwrap();
        joined(&mut store, ticket);
        assert!(store.cached_rows() <= 10);
    }
    assert_eq!((store.cached_rows(), store.bytes()), (10, stated));
    // Not more than the table has.
    let all = made.store(usize::MAX, Arc::new(Inline(Arc::clone(&made.reader))));
    assert_eq!(all.cache_capacity() as u64, made.table.rows());
    assert!(store.request_bytes(2) > store.request_bytes(1));
    assert_eq!(store.request_bytes(usize::MAX), usize::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any passes with any cache, joined at any time, write what the table holds.
    #[test]
    fn any_sequence_of_passes(
        cache_rows in 0_usize..40,
        passes in prop::collection::vec((prop::collection::vec(0_u32..6, 0..6), any::<bool>()), 1..12),
        threads in any::<bool>(),
    ) {
        let made = q4();
        let mut store = if threads {
            made.store(cache_rows, Arc::new(Threads(Arc::clone(&made.reader))))
        } else {
            made.store(cache_rows, Arc::new(Inline(Arc::clone(&made.reader))))
        };
        let (mut context, mut open) = (Vec::new(), Vec::new());
        for (tokens, join_now) in passes {
            let ticket = store.request(&context, &tokens).unwrap();
            let want = made.want(&context, &tokens);
            if join_now {
                prop_assert_eq!(joined(&mut store, ticket), want);
            } else {
                open.push((ticket, want));
            }
            context.extend(tokens);
        }
        for (ticket, want) in open.into_iter().rev() {
            prop_assert_eq!(joined(&mut store, ticket), want);
        }
        prop_assert!(store.cached_rows() <= cache_rows);
        let m = store.metrics();
        prop_assert_eq!(m.distinct, m.hits + m.rows_read);
        prop_assert_eq!(3 * m.rows_read, made.reader.reads());
        prop_assert_eq!(m.failed, 0);
    }
}
