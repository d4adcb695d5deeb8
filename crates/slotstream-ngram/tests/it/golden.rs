//! The fixture's recorded row ids, and its values by brute force.

use std::sync::Arc;

use crate::fixture::Fixture;
use crate::queues::{Inline, Threads};

const PROMPTS: [(&str, usize); 3] = [("p1", 1), ("p17", 17), ("p200", 200)];

#[test]
fn rows_token_by_token() {
    let fixture = Fixture::open();
    let (heads, context) = (fixture.hasher.heads(), fixture.hasher.context_len());
    for (prompt, tokens) in PROMPTS {
        let (ids, want) = fixture.prompt(prompt);
        assert_eq!(ids.len(), tokens);
        for (t, want) in want.chunks_exact(heads).enumerate() {
            let mut got = vec![u64::MAX; heads];
            fixture.hasher.rows(&ids[t.saturating_sub(context)..=t], &mut got).unwrap();
            assert_eq!(got, want, "{prompt} token {t}");
        }
    }
}

#[test]
fn rows_in_chunks() {
    let fixture = Fixture::open();
    for (prompt, _) in PROMPTS {
        let (ids, want) = fixture.prompt(prompt);
        for chunk in [1, 2, 3, 7, 64, 1000] {
            let (mut all, mut out) = (Vec::new(), vec![9; 5]);
            for start in (0..ids.len()).step_by(chunk) {
                let end = ids.len().min(start + chunk);
                fixture.hasher.rows_for(&ids[..start], &ids[start..end], &mut out);
                all.extend_from_slice(&out);
            }
            assert_eq!(all, want, "{prompt} in chunks of {chunk}");
        }
    }
}

#[test]
fn values_of_every_prompt() {
    let fixture = Fixture::open();
    let queue = Arc::new(Inline(Arc::clone(&fixture.reader)));
    for (prompt, _) in PROMPTS {
        let (ids, rows) = fixture.prompt(prompt);
        let mut store = fixture.store(1000, queue.clone());
        let ticket = store.request(&[], &ids).unwrap();
        let mut out = vec![f32::NAN; ticket.values()];
        store.join(ticket, &mut out).unwrap();
        assert_eq!(out, fixture.values(&rows), "{prompt}");
    }
}

#[test]
fn cache_size_chunks_and_threads_change_nothing() {
    let fixture = Fixture::open();
    let (ids, rows) = fixture.prompt("p200");
    let want = fixture.values(&rows);
    for cache_rows in [0, 1, 5, 100, usize::MAX] {
        for chunk in [1, 13, 200] {
            let queue = Arc::new(Threads(Arc::clone(&fixture.reader)));
            let mut store = fixture.store(cache_rows, queue);
            let mut got = Vec::new();
            for start in (0..ids.len()).step_by(chunk) {
                let end = ids.len().min(start + chunk);
                let ticket = store.request(&ids[..start], &ids[start..end]).unwrap();
                let mut out = vec![f32::NAN; ticket.values()];
                store.join(ticket, &mut out).unwrap();
                got.extend(out);
                assert!(store.cached_rows() <= store.cache_capacity());
            }
            assert!(store.cache_capacity() <= cache_rows);
            assert_eq!(got, want, "{cache_rows} rows cached, chunks of {chunk}");
        }
    }
}

#[test]
fn counts_and_reads_each_row_once() {
    let fixture = Fixture::open();
    let (ids, rows) = fixture.prompt("p200");
    let queue = Arc::new(Inline(Arc::clone(&fixture.reader)));
    let mut store = fixture.store(usize::MAX, queue);
    let mut distinct = rows.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() < rows.len(), "the prompt repeats itself");
    assert_eq!(store.cache_capacity() as u64, fixture.table.rows());

    let ticket = store.request(&[], &ids).unwrap();
    let mut out = vec![0.0; ticket.values()];
    store.join(ticket, &mut out).unwrap();
    let first = *store.metrics();
    assert_eq!(first.requested, rows.len() as u64);
    assert_eq!((first.distinct, first.hits), (distinct.len() as u64, 0));
    assert_eq!(first.rows_read, distinct.len() as u64);
    assert_eq!(first.bytes_read, 100 * distinct.len() as u64);
    assert_eq!(fixture.reader.reads(), 3 * distinct.len() as u64);
    assert!(fixture.reader.seen().values().all(|&times| times == 1));
    let bytes: u64 = fixture.reader.seen().keys().map(slotstream_core::Extent::len).sum();
    assert_eq!(bytes, first.bytes_read);
    assert_eq!(store.cached_rows(), distinct.len());

    let ticket = store.request(&[], &ids).unwrap();
    assert_eq!(ticket.missing(), 0);
    let mut again = vec![f32::NAN; ticket.values()];
    store.join(ticket, &mut again).unwrap();
    assert_eq!(out, again);
    let second = store.metrics().since(&first);
    assert_eq!((second.hits, second.rows_read), (distinct.len() as u64, 0));
    assert_eq!(second.wait, std::time::Duration::ZERO, "nothing to wait for");
    assert_eq!(fixture.reader.reads(), 3 * distinct.len() as u64);
}
