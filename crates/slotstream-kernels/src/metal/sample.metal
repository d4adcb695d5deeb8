// Choices among the logits of a vocabulary: one threadgroup for each row.

// The largest logit; ties: the lower id; NaN counts as less than everything.
[[kernel]] void argmax(
    const device float* logits [[buffer(0)]], device uint* out [[buffer(1)]], constant SampleArgs& a [[buffer(2)]],
    threadgroup uint* memory [[threadgroup(0)]], uint row [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const device float* from = logits + ulong(row) * a.n;
  uint key = 0, id = 0xffffffffu;
  for (uint i = t; i < a.n; i += threads) {
    const uint theirs = order_key(from[i]);
    if (id == 0xffffffffu || theirs > key) {
      key = theirs;
      id = i;
    }
  }
  for (uint round = 0; round < 2; round++) {
    const uint best = simd_max(key);
    id = simd_min(key == best ? id : 0xffffffffu);
    key = best;
    if (round == 1) { break; }
    if (lane == 0) {
      memory[sg] = key;
      memory[32 + sg] = id;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool inside = lane < threads / SIMD;
    key = inside ? memory[lane] : 0;
    id = inside ? memory[32 + lane] : 0xffffffffu;
  }
  if (t == 0) { out[row] = id; }
}

// What select_best calls with a place and an id.
struct TakeLogit {
  threadgroup uint* keys;
  threadgroup uint* ids;
  const device float* logits;
  METAL_FUNC void operator()(uint place, uint id) const thread {
    keys[place] = order_key(logits[id]);
    ids[place] = id;
  }
};

// The k largest logits and their ids, descending; ties and NaN as above.
[[kernel]] void top_k(
    const device float* logits [[buffer(0)]], device uint* ids [[buffer(1)]], device float* values [[buffer(2)]],
    constant SampleArgs& a [[buffer(3)]], threadgroup uint* memory [[threadgroup(0)]],
    uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const device float* from = logits + ulong(row) * a.n;
  threadgroup uint* keys = memory + SELECT_WORDS;
  const TakeLogit take = {keys, keys + a.k, from};
  select_best(from, a.n, a.k, memory, t, threads, sg, lane, take);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = t; i < a.k; i += threads) {
    uint rank = 0;
    for (uint other = 0; other < a.k; other++) {
      // Places ascend with the id.
      rank += keys[other] > keys[i] || (keys[other] == keys[i] && other < i) ? 1 : 0;
    }
    const uint id = keys[a.k + i];
    ids[ulong(row) * a.k + rank] = id;
    values[ulong(row) * a.k + rank] = from[id];
  }
}
