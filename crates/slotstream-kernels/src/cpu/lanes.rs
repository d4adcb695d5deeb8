//! Lanes of f32 in one register: the only thing in which the instruction sets differ.

/// Lanes of every running sum, in every instruction set. Part of the order of additions.
pub(super) const LANES: usize = 16;

/// A register of `WIDTH` of the sixteen lanes; `PARTS` registers hold all of them, part `p` lanes
/// `p * WIDTH` and on. Each operation is exact or rounds once, lane by lane, so that all
/// implementations give the same bits.
///
/// # Safety
/// Every method may be called only where the instruction set is available, and must be inlined
/// into a function that has it enabled. Pointers need no alignment; each method says how many
/// bytes it reads or writes there.
pub(super) trait Lanes: Copy {
    /// All sixteen lanes: `PARTS` registers.
    type All: Copy + AsRef<[Self]> + AsMut<[Self]>;
    /// `WIDTH` packed u32 words.
    type Words: Copy;

    /// Lanes of a register.
    const WIDTH: usize;

    /// Registers of all sixteen lanes.
    const PARTS: usize = LANES / Self::WIDTH;

    /// Registers that there are, for how many sums fit. Without any, rows go one by one.
    const REGISTERS: usize;

    /// Whether several rows go together.
    const SEVERAL: bool = Self::REGISTERS > 0;

    /// All lanes zero.
    unsafe fn zero() -> Self;

    /// All sixteen lanes zero.
    unsafe fn zeros() -> Self::All;

    /// `WIDTH` f32 at `at`.
    unsafe fn load(at: *const f32) -> Self;

    /// Writes to `WIDTH` f32 at `at`.
    unsafe fn store(self, at: *mut f32);

    /// `self * b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;

    /// The sum of all sixteen lanes of each: lane `i` and `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    unsafe fn sums<const N: usize>(all: [Self::All; N]) -> [f32; N];

    /// `4 * WIDTH` bytes at `at`.
    unsafe fn words(at: *const u8) -> Self::Words;

    /// `words & mask` as numbers; `mask` is below 2^31.
    unsafe fn field(words: Self::Words, mask: u32) -> Self;

    /// `words >> 24` as numbers.
    unsafe fn top_byte(words: Self::Words) -> Self;

    /// The lower half of each word as a bf16.
    unsafe fn low_bf16(words: Self::Words) -> Self;

    /// The upper half of each word as a bf16.
    unsafe fn high_bf16(words: Self::Words) -> Self;

    /// `WIDTH` bf16 at `at`.
    unsafe fn bf16(at: *const u8) -> Self;

    /// The bits, and-ed with the `WIDTH` masks at `mask`.
    unsafe fn masked(self, mask: *const u32) -> Self;

    /// The scale of each word of part `part` of a block of sixteen words: lane `i` gets number
    /// `(part * WIDTH + i) / words` of those at `at`; `words`, of a group, is 4, 8 or, for that
    /// and more, 16. There are as many f32 at `at` as the block has groups.
    unsafe fn spread(at: *const f32, part: usize, words: usize) -> Self;

    /// The low and the high nibble of each byte, in bytes.
    unsafe fn nibbles(words: Self::Words) -> [Self::Words; 2];

    /// All words zero.
    unsafe fn nothing() -> Self::Words;

    /// Of each word the sum over its four bytes of byte times signed byte, for both of `w` with
    /// the `4 * WIDTH` bytes of `x` that belong to it, added to `sums`: exact, since all bytes of
    /// `w` are nibbles. With `DOT` by the machine's dot product of bytes, which the caller vouches
    /// for.
    unsafe fn dots<const DOT: bool>(
        sums: Self::Words,
        w: [Self::Words; 2],
        x: [*const f32; 2],
    ) -> Self::Words;

    /// Of signed words below 2^14 in magnitude the sums of each four in a row: the sum of the first
    /// four of each register, then of the second four of each, and so on.
    unsafe fn fours(sums: [Self::Words; 4]) -> Self::Words;

    /// Sums of sixteen groups of `words` words (4, 8 or 16), one after the other, as numbers; from
    /// [`fours`](Self::fours) of all their words. The sums are below 2^24 in magnitude.
    unsafe fn groups(fours: &[Self::Words], words: usize) -> Self::All;

    /// Signed words times 256.
    unsafe fn times_256(words: Self::Words) -> Self::Words;

    /// Signed words as numbers, rounded once.
    unsafe fn whole(words: Self::Words) -> Self;

    /// Asks for the cache line at `at`, which may be anywhere, for the second level cache.
    unsafe fn prefetch(at: *const u8);
}
