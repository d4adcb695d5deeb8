//! Tables and hashes that cannot be.

use std::sync::Arc;

use slotstream_checkpoint::NgramShard;
use slotstream_core::{AffineFormat, ErrorKind, Extent, FileId, Part};
use slotstream_ngram::{NgramError, NgramHasher, NgramStore, NgramTable};

use crate::queues::Closed;

const FORMAT: AffineFormat = AffineFormat::Q4_G32;

fn extent(len: u64) -> Extent {
    Extent::new(FileId::new(0), 1, len).unwrap()
}

/// A shard of `rows` rows of 64 values.
fn shard(rows: u64) -> NgramShard {
    NgramShard { weight: extent(32 * rows), scales: extent(4 * rows), biases: extent(4 * rows) }
}

fn refused(error: Result<NgramTable, NgramError>) -> NgramError {
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    error
}

#[test]
fn widths_that_are_not_whole_groups() {
    for width in [0, 1, 31, 33, 80] {
        let error = refused(NgramTable::from_shards(FORMAT, width, 3, &[shard(3)]));
        assert!(
            matches!(error, NgramError::RowWidth { row_width, group_size: 32, .. } if row_width == width)
        );
    }
}

#[test]
fn empty_and_oversized_tables() {
    let cases = [(0, 1), (3, 0), (u64::MAX, 2), (1 << 63, 1)];
    for (rows, shards) in cases {
        let error = refused(NgramTable::from_shards(FORMAT, 64, rows, &vec![shard(3); shards]));
        assert!(
            matches!(error, NgramError::Rows { shards: s, rows_per_shard, .. } if (rows_per_shard, s) == (rows, shards))
        );
    }
}

#[test]
fn arrays_that_do_not_fit_their_rows() {
    let good = shard(3);
    let cases = [
        (Part::Weight, NgramShard { weight: extent(95), ..good }, 96, 95),
        (Part::Scales, NgramShard { scales: extent(13), ..good }, 12, 13),
        (Part::Biases, NgramShard { biases: extent(0), ..good }, 12, 0),
    ];
    for (bad, arrays, wanted, got) in cases {
        let error = refused(NgramTable::from_shards(FORMAT, 64, 3, &[good, arrays]));
        let NgramError::ShardLength { shard: 1, part, expected, found, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((part, expected, found), (bad, wanted, got));
    }
    // A length that no number can name is no extent's either.
    let error = refused(NgramTable::from_shards(FORMAT, 64, 1 << 60, &[good]));
    assert!(matches!(error, NgramError::ShardLength { expected: u64::MAX, .. }));
}

#[test]
fn rows_lie_in_their_shards() {
    let table = NgramTable::from_shards(FORMAT, 64, 3, &[shard(3), shard(3)]).unwrap();
    assert_eq!((table.rows(), table.row_len(), table.row_width()), (6, 40, 64));
    let [weight, scales, biases] = table.pieces(5).unwrap();
    assert_eq!((weight.offset(), weight.len()), (1 + 64, 32));
    assert_eq!((scales.offset(), scales.len(), biases.len()), (1 + 8, 4, 4));
    for row in [6, 7, u64::MAX] {
        let error = table.pieces(row).unwrap_err();
        assert!(matches!(error, NgramError::UnknownRow { row: r, rows: 6, .. } if r == row));
        assert_eq!(error.kind(), ErrorKind::User);
    }
}

#[test]
fn heads_outside_the_table() {
    let made = |size, offset| NgramHasher::from_constants(0, &[1, 3], &[1, size], &[0, offset]);
    for (size, offset) in [(0, 0), (-1, 0), (5, -1), (1, i64::MAX), (i64::MAX, 1)] {
        let error = made(size, offset).unwrap_err();
        let NgramError::HeadRange { head: 1, offset: o, size: s, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((s, o), (size, offset));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let table = || NgramTable::from_shards(FORMAT, 64, 3, &[shard(3), shard(3)]).unwrap();
    let store = |hasher| NgramStore::from_parts(hasher, table(), 4, Arc::new(Closed));
    assert!(store(made(5, 1).unwrap()).is_ok());
    let error = store(made(5, 2).unwrap()).unwrap_err();
    assert!(matches!(error, NgramError::HeadRange { head: 1, rows: 6, .. }));
}

#[test]
fn orders_without_heads() {
    let made = |multipliers: &[i64], heads: usize| {
        NgramHasher::from_constants(0, multipliers, &vec![1; heads], &vec![0; heads])
    };
    for (multipliers, heads) in [(&[][..], 2), (&[1], 1), (&[1, 2], 0), (&[1, 2, 3], 3)] {
        let error = made(multipliers, heads).unwrap_err();
        let NgramError::Orders { ngram_size, heads: h, .. } = error else { panic!("{error:?}") };
        assert_eq!((ngram_size, h), (multipliers.len(), heads));
    }
    let error = NgramHasher::from_constants(0, &[1, 2], &[1, 1], &[0]).unwrap_err();
    assert!(matches!(
        error,
        NgramError::Constants { array: "ngram_heads_offsets", expected: 2, found: 1, .. }
    ));
}
