// Ranking: larger numbers first, NaN last, equal ones by index.

// An integer that orders as the number does: NaN is the least, both zeros are one.
METAL_FUNC uint order_key(float x) {
  uint bits = as_type<uint>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0; }
  if (bits == 0x80000000u) { bits = 0; }
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Words of threadgroup memory that select_best needs.
constant constexpr uint SELECT_WORDS = 256 + 2 + 32;

// Finds the k best of n values, 1 <= k <= n, and hands each to `take(place, index)`, places ascending with
// the index. Radix select of the k-th key, eight bits at a time, then a pass in order of the index.
template <typename Take>
METAL_FUNC void select_best(const device float* values, uint n, uint k, threadgroup uint* memory, uint t, uint threads,
                            uint sg, uint lane, Take take) {
  threadgroup atomic_uint* bins = reinterpret_cast<threadgroup atomic_uint*>(memory);
  threadgroup uint* chosen = memory + 256;
  threadgroup uint* parts = memory + 258;
  uint prefix = 0, mask = 0, left = k;
  for (uint pass = 0; pass < 4; pass++) {
    const uint shift = 24 - 8 * pass;
    for (uint i = t; i < 256; i += threads) { atomic_store_explicit(&bins[i], 0, memory_order_relaxed); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = t; i < n; i += threads) {
      const uint key = order_key(values[i]);
      if ((key & mask) == prefix) { atomic_fetch_add_explicit(&bins[(key >> shift) & 255], 1, memory_order_relaxed); }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) {
      uint bin = 255, above = 0;
      for (; bin > 0; bin--) {
        const uint here = atomic_load_explicit(&bins[bin], memory_order_relaxed);
        if (above + here >= left) { break; }
        above += here;
      }
      chosen[0] = bin;
      chosen[1] = left - above;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    prefix |= chosen[0] << shift;
    mask |= 255u << shift;
    left = chosen[1];
  }
  // All above the k-th key, and the first `left` equal to it. Counts of both are packed: a threadgroup
  // adds at most 1,024 to each.
  uint above = 0, equal = 0;
  for (uint base = 0; base < n; base += threads) {
    const uint i = base + t;
    const uint key = i < n ? order_key(values[i]) : 0;
    const bool is_above = i < n && key > prefix, is_equal = i < n && key == prefix;
    const uint packed = (is_above ? 1u : 0u) | (is_equal ? 1u << 16 : 0u);
    const uint before = simd_prefix_exclusive_sum(packed);
    if (lane == SIMD - 1) { parts[sg] = before + packed; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint rest = before, all = 0;
    for (uint g = 0; g < threads / SIMD; g++) {
      if (g < sg) { rest += parts[g]; }
      all += parts[g];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint aboves = above + (rest & 0xffff), equals = equal + (rest >> 16);
    if (is_above || (is_equal && equals < left)) { take(aboves + min(equals, left), i); }
    above += all & 0xffff;
    equal += all >> 16;
  }
}
