//! What can be wrong with a table, a request or a read.

use slotstream_core::{ErrorKind, Part, ReadError};

/// An impossible table, a wrong request or a failed read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NgramError {
    /// The n-gram orders of a table make no heads.
    #[error(
        "n-grams of up to {ngram_size} tokens and {heads} heads: expected at least 2 tokens and \
         the same number of heads, at least 1, for each order from 2 on"
    )]
    #[non_exhaustive]
    Orders {
        /// Longest n-gram (`ngram_size`).
        ngram_size: usize,
        /// Heads of all orders together.
        heads: usize,
    },
    /// An array of hash constants has the wrong length.
    #[error("{array} has {found} entries, expected {expected}")]
    #[non_exhaustive]
    Constants {
        /// The tensor's name below `ple_embedding.`.
        array: &'static str,
        /// Entries that the config calls for.
        expected: usize,
        /// Entries in the tensor.
        found: usize,
    },
    /// A head's rows do not lie in the table.
    #[error(
        "head {head} has {size} rows from row {offset} on, expected at least one row, all within \
         the table's {rows} rows"
    )]
    #[non_exhaustive]
    HeadRange {
        /// The head.
        head: usize,
        /// Its entry of `ngram_heads_offsets`.
        offset: i64,
        /// Its entry of `ngram_heads_vocab_sizes`.
        size: i64,
        /// Rows of all shards together.
        rows: u64,
    },
    /// A row does not consist of whole groups.
    #[error("rows of {row_width} values do not consist of whole groups of {group_size}")]
    #[non_exhaustive]
    RowWidth {
        /// Values of a row.
        row_width: usize,
        /// Group size of the table's quantization.
        group_size: usize,
    },
    /// The table has no rows, or more than a number can name.
    #[error("{shards} shards of {rows_per_shard} rows: expected at least one row, below 2^63")]
    #[non_exhaustive]
    Rows {
        /// Shards of the table (`split_ngram_parts`).
        shards: usize,
        /// Rows of each.
        rows_per_shard: u64,
    },
    /// An array of a shard is not as long as its rows.
    #[error("{part:?} of shard {shard} has {found} bytes, expected {expected}")]
    #[non_exhaustive]
    ShardLength {
        /// The shard.
        shard: usize,
        /// The array.
        part: Part,
        /// Bytes of all rows.
        expected: u64,
        /// Bytes of the extent.
        found: u64,
    },
    /// Packed rows do not fill their place.
    #[error("{rows} rows of {row_len} bytes every {stride} do not make {found} bytes")]
    #[non_exhaustive]
    PackedLength {
        /// Rows of the table.
        rows: u64,
        /// Bytes of a packed row.
        row_len: usize,
        /// Bytes from one row to the next.
        stride: u64,
        /// Bytes of the place.
        found: u64,
    },
    /// A packed row did not arrive.
    #[error("reading n-gram row {row} failed")]
    #[non_exhaustive]
    ReadRow {
        /// The row.
        row: u64,
        /// Why.
        source: ReadError,
    },
    /// The cache does not fit in memory.
    #[error("no memory for a cache of {rows} rows ({bytes} bytes); ask for fewer rows")]
    #[non_exhaustive]
    CacheMemory {
        /// Rows asked for.
        rows: usize,
        /// Bytes they take; `u64::MAX` when a number cannot name them.
        bytes: u64,
    },
    /// A window without a token, or with more tokens than an n-gram has.
    #[error("a window of {found} tokens, expected 1 to {ngram_size}")]
    #[non_exhaustive]
    Window {
        /// Longest n-gram.
        ngram_size: usize,
        /// Tokens of the window.
        found: usize,
    },
    /// The buffer for row ids does not hold one id a head.
    #[error("room for {found} row ids, expected {heads}")]
    #[non_exhaustive]
    RowIds {
        /// Heads of the table.
        heads: usize,
        /// Length of the buffer.
        found: usize,
    },
    /// A row id beyond the table.
    #[error("row {row} was asked for, the table has {rows} rows")]
    #[non_exhaustive]
    UnknownRow {
        /// The row.
        row: u64,
        /// Rows of the table.
        rows: u64,
    },
    /// More rows in one pass than an index can name.
    #[error("a pass of {tokens} tokens with {heads} rows each is too long; split it")]
    #[non_exhaustive]
    PassLength {
        /// Tokens of the pass.
        tokens: usize,
        /// Rows a token.
        heads: usize,
    },
    /// The output buffer of a join has the wrong length.
    #[error("room for {found} values, expected {expected}: tokens x heads x row width")]
    #[non_exhaustive]
    OutputLength {
        /// Values of the ticket.
        expected: usize,
        /// Length of the buffer.
        found: usize,
    },
    /// The ticket was given out by another store.
    #[error("this ticket was given out by another store; join it there")]
    ForeignTicket,
    /// A piece of a row did not arrive.
    #[error("reading {part:?} of n-gram row {row} (shard {shard}) failed")]
    #[non_exhaustive]
    Read {
        /// The row.
        row: u64,
        /// The shard that holds it.
        shard: u64,
        /// The piece.
        part: Part,
        /// Why.
        source: ReadError,
    },
    /// The pass was cancelled while its rows were read.
    #[error("cancelled while n-gram rows were read")]
    Cancelled,
    /// The queue dropped a read without ending it.
    #[error(
        "the read queue gave up a piece of n-gram row {row} (shard {shard}) without ending its read"
    )]
    #[non_exhaustive]
    Abandoned {
        /// The row.
        row: u64,
        /// The shard that holds it.
        shard: u64,
    },
}

impl NgramError {
    /// What the caller can do about it. A failed read passes on the kind of its cause.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Orders { .. }
            | Self::Constants { .. }
            | Self::HeadRange { .. }
            | Self::RowWidth { .. }
            | Self::Rows { .. }
            | Self::ShardLength { .. }
            | Self::PackedLength { .. } => ErrorKind::Corrupt,
            Self::CacheMemory { .. }
            | Self::Window { .. }
            | Self::RowIds { .. }
            | Self::UnknownRow { .. }
            | Self::PassLength { .. }
            | Self::OutputLength { .. }
            | Self::ForeignTicket => ErrorKind::User,
            Self::Read { source, .. } | Self::ReadRow { source, .. } => source.kind(),
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Abandoned { .. } => ErrorKind::Bug,
        }
    }
}
