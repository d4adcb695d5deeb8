//! What device memory holds before the first launch, for whoever carries out plans without tensors.

/// Names a buffer of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(usize);

impl BufferId {
    /// Its place among [`Memory::buffers`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// The byte that unwritten memory is full of: a NaN in every float format, and no index.
pub const POISON: u8 = 0xff;

/// A buffer: zeros, but for what was written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Buffer {
    /// Bytes.
    pub len: usize,
    /// What is written before the first launch, and where; what comes later lies above.
    pub pieces: Vec<(usize, Vec<u8>)>,
}

/// An entry of a table of addresses, 8 bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Address {
    /// The table.
    pub table: BufferId,
    /// The entry's first byte.
    pub at: usize,
    /// The buffer that it points into.
    pub target: BufferId,
    /// The byte of the buffer that it points to.
    pub offset: usize,
}

/// What device memory holds before the first launch.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
    addresses: Vec<Address>,
}

impl Memory {
    /// No buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, len: usize, pieces: Vec<(usize, Vec<u8>)>) -> BufferId {
        self.buffers.push(Buffer { len, pieces });
        BufferId(self.buffers.len() - 1)
    }

    /// A buffer with this content.
    pub fn bytes(&mut self, bytes: Vec<u8>) -> BufferId {
        self.add(bytes.len(), vec![(0, bytes)])
    }

    /// A buffer of these floats.
    pub fn floats(&mut self, values: &[f32]) -> BufferId {
        self.bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A buffer of these words.
    pub fn words(&mut self, values: &[u32]) -> BufferId {
        self.bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A buffer of `len` bytes of [`POISON`].
    pub fn poisoned(&mut self, len: usize) -> BufferId {
        self.bytes(vec![POISON; len])
    }

    /// A buffer of `len` zeros, of which only what is touched need take memory.
    pub fn sparse(&mut self, len: usize) -> BufferId {
        self.add(len, Vec::new())
    }

    /// Puts bytes into a buffer.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&mut self, buffer: BufferId, at: usize, bytes: Vec<u8>) {
        let buffer = &mut self.buffers[buffer.0];
        assert!(at + bytes.len() <= buffer.len, "{} bytes at {at} of {}", bytes.len(), buffer.len);
        buffer.pieces.push((at, bytes));
    }

    /// Puts the address of byte `offset` of `target` at byte `at` of `table`.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn address(&mut self, table: BufferId, at: usize, target: BufferId, offset: usize) {
        assert!(at + 8 <= self.buffers[table.0].len, "a table of {}", self.buffers[table.0].len);
        self.addresses.push(Address { table, at, target, offset });
    }

    /// Bytes of a buffer.
    #[must_use]
    pub fn len(&self, buffer: BufferId) -> usize {
        self.buffers[buffer.0].len
    }

    /// Whether there is no buffer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The buffers, in the order of their names.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The entries of tables of addresses.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}
