// Attention over selected tokens: a threadgroup takes SPLIT tokens of one query head, its simdgroups in
// turn a token each, with a running maximum; the splits are merged by a second kernel.
constant constexpr uint SPLIT = 256;
constant constexpr uint SIMDGROUPS = 8;
// Values of a head that a lane holds.
constant constexpr uint LANE_DIMS = 8;
// What precedes the weighted sum of values in a partial result: maximum, sum of weights, tokens seen.
constant constexpr uint HEAD = 3;

// The factor by which weights relative to the maximum `from` become relative to `to`.
METAL_FUNC float rescale(float from, float to) { return from == to ? 1.0f : precise::exp(from - to); }

template <bool SELECTED>
METAL_FUNC void attend(const device float* queries, const device Floats* key_pages, const device Floats* value_pages,
                       const device uint* selection, device float* partials, constant AttentionArgs& a,
                       threadgroup float* memory, uint3 group, uint t, uint sg, uint lane) {
  const uint head = group.x, row = group.z, n = a.position + row + 1;
  const uint chosen = SELECTED ? a.budget * a.ratio : 0;
  const uint tail = SELECTED ? n % a.ratio : n;
  const uint total = chosen + tail;
  const uint column = head * a.kv_heads / a.heads * a.dim, width = a.kv_heads * a.dim;
  const float scale = precise::rsqrt(float(a.dim));
  const device float* q = queries + (ulong(row) * a.heads + head) * a.dim;
  float query[LANE_DIMS], sums[LANE_DIMS];
  for (uint j = 0; j < LANE_DIMS; j++) {
    const uint d = lane + SIMD * j;
    query[j] = d < a.dim ? q[d] : 0.0f;
    sums[j] = 0.0f;
  }
  float best = -INFINITY, weights = 0.0f, seen = 0.0f;
  const uint end = min(total, (group.y + 1) * SPLIT);
  for (uint i = group.y * SPLIT + sg; i < end; i += SIMDGROUPS) {
    uint token = n - tail + (i - chosen);
    if (SELECTED && i < chosen) {
      const uint block = selection[ulong(row) * a.budget + i / a.ratio];
      if (block == 0xffffffffu) { continue; }
      token = block * a.ratio + i % a.ratio;
    }
    const ulong at = ulong(token % a.page_rows) * width + column;
    const device float* key = key_pages[token / a.page_rows].at + at;
    const device float* value = value_pages[token / a.page_rows].at + at;
    float product = 0.0f;
    for (uint j = 0; j < LANE_DIMS; j++) {
      const uint d = lane + SIMD * j;
      if (d < a.dim) { product += query[j] * key[d]; }
    }
    const float score = simd_sum(product) * scale;
    // NaN is skipped here and still there when the exponential is taken.
    const float up = max(best, score);
    const float factor = rescale(best, up);
    const float weight = score == -INFINITY ? 0.0f : precise::exp(score - up);
    weights = weights * factor + weight;
    for (uint j = 0; j < LANE_DIMS; j++) {
      const uint d = lane + SIMD * j;
      if (d < a.dim) { sums[j] = sums[j] * factor + weight * value[d]; }
    }
    best = up;
    seen += 1.0f;
  }
  const uint size = a.dim + HEAD;
  threadgroup float* mine = memory + sg * size;
  if (lane == 0) {
    mine[0] = best;
    mine[1] = weights;
    mine[2] = seen;
  }
  for (uint j = 0; j < LANE_DIMS; j++) {
    const uint d = lane + SIMD * j;
    if (d < a.dim) { mine[HEAD + d] = sums[j]; }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device float* to = partials + ((ulong(row) * a.heads + head) * a.splits + group.y) * size;
  float up = -INFINITY;
  for (uint g = 0; g < SIMDGROUPS; g++) { up = max(up, memory[g * size]); }
  for (uint i = t + 1; i < size; i += SIMDGROUPS * SIMD) {
    float sum = 0.0f;
    for (uint g = 0; g < SIMDGROUPS; g++) {
      // Tokens are counted, weights and values scaled.
      const float factor = i == 2 ? 1.0f : rescale(memory[g * size], up);
      sum += memory[g * size + i] * factor;
    }
    to[i] = sum;
  }
  if (t == 0) { to[0] = up; }
}

[[kernel]] void attention_dense(
    const device float* queries [[buffer(0)]], const device Floats* keys [[buffer(1)]],
    const device Floats* values [[buffer(2)]], device float* partials [[buffer(3)]],
    constant AttentionArgs& a [[buffer(4)]], threadgroup float* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  attend<false>(queries, keys, values, nullptr, partials, a, memory, group, t, sg, lane);
}

[[kernel]] void attention_selected(
    const device float* queries [[buffer(0)]], const device Floats* keys [[buffer(1)]],
    const device Floats* values [[buffer(2)]], const device uint* selection [[buffer(3)]],
    device float* partials [[buffer(4)]], constant AttentionArgs& a [[buffer(5)]],
    threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  attend<true>(queries, keys, values, selection, partials, a, memory, group, t, sg, lane);
}

// Merges the splits and gates: out = sum of values / sum of weights * sigmoid(gate). Zeros where no token is
// seen.
[[kernel]] void attention_merge(
    const device float* partials [[buffer(0)]], const device float* gate [[buffer(1)]], device float* out [[buffer(2)]],
    constant AttentionArgs& a [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
  const uint size = a.dim + HEAD;
  const ulong head = ulong(group.y) * a.heads + group.x;
  const device float* from = partials + head * a.splits * size;
  float up = -INFINITY;
  for (uint s = 0; s < a.splits; s++) { up = max(up, from[ulong(s) * size]); }
  float weights = 0.0f, seen = 0.0f;
  for (uint s = 0; s < a.splits; s++) {
    const device float* part = from + ulong(s) * size;
    weights += part[1] * rescale(part[0], up);
    seen += part[2];
  }
  const device float* gates = gate + ulong(group.y) * a.gate_row_stride + a.gate_offset + group.x * a.gate_head_stride;
  for (uint d = t; d < a.dim; d += threads) {
    float sum = 0.0f;
    for (uint s = 0; s < a.splits; s++) {
      const device float* part = from + ulong(s) * size;
      sum += part[HEAD + d] * rescale(part[0], up);
    }
    out[head * a.dim + d] = (seen == 0.0f ? 0.0f : sum / weights) * sigmoid(gates[d]);
  }
}
