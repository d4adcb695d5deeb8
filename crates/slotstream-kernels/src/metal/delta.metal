// The gated delta rule: one threadgroup for each value head. A thread owns KEYS rows of one column of
// the head's state; `parts` of them share a column. A step and a chunk are the same: rows one by one.
constant constexpr uint KEYS = 32;

METAL_FUNC float softplus(float x) {
  // ln(1 + y) for small y, where 1 + y would lose it: y * ln(u) / (u - 1) with u = 1 + y rounded.
  if (!(x <= 20.0f)) { return x; }
  const float y = precise::exp(x), u = 1.0f + y;
  return u == 1.0f ? y : y * precise::log(u) / (u - 1.0f);
}

template <bool RECORD>
METAL_FUNC void delta_rule(
    const device float* qkv, const device float* a_in, const device float* b_in, const device float* z,
    const device float* a_log, const device float* dt_bias, const device float* norm, device float* state,
    device float* out, const device uint* entries, device float* ring, constant DeltaArgs& a,
    threadgroup float* memory, uint head, uint t, uint threads, uint lane) {
  const uint padded = ceil_div(a.value_dim, SIMD) * SIMD;
  const uint part = t / padded, j = t % padded, parts = ceil_div(a.key_dim, KEYS);
  const bool inside = j < a.value_dim;
  threadgroup float* q = memory;
  threadgroup float* k = q + a.key_dim;
  threadgroup float* reads = k + a.key_dim;
  threadgroup float* outs = reads + threads;
  const uint keys = a.key_heads * a.key_dim, values = a.value_heads * a.value_dim;
  const uint key_head = head * a.key_heads / a.value_heads;
  const ulong cells = ulong(a.key_dim) * a.value_dim, first = head * cells + ulong(part) * KEYS * a.value_dim + j;
  const uint rows = inside && part * KEYS < a.key_dim ? min(KEYS, a.key_dim - part * KEYS) : 0;
  float s[KEYS];
  for (uint i = 0; i < KEYS; i++) { s[i] = i < rows ? state[first + ulong(i) * a.value_dim] : 0.0f; }

  for (uint row = 0; row < a.m; row++) {
    const device float* x = qkv + ulong(row) * (2 * keys + values);
    for (uint i = t; i < a.key_dim; i += threads) {
      q[i] = x[key_head * a.key_dim + i];
      k[i] = x[keys + key_head * a.key_dim + i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float qq = 0.0f, kk = 0.0f;
    for (uint i = lane; i < a.key_dim; i += SIMD) {
      qq += q[i] * q[i];
      kk += k[i] * k[i];
    }
    const float q_scale = precise::rsqrt(simd_sum(qq) + 1e-6f) * precise::rsqrt(float(a.key_dim));
    const float k_scale = precise::rsqrt(simd_sum(kk) + 1e-6f);

    const ulong scalar = ulong(row) * a.value_heads + head;
    const float decay = precise::exp(-precise::exp(a_log[head]) * softplus(a_in[scalar] + dt_bias[head]));
    const float beta = sigmoid(b_in[scalar]);
    float sum = 0.0f;
    for (uint i = 0; i < KEYS; i++) {
      if (i < rows) {
        s[i] *= decay;
        sum += s[i] * (k[part * KEYS + i] * k_scale);
      }
    }
    reads[t] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float read = 0.0f;
    for (uint p = 0; p < parts; p++) { read += reads[p * padded + j]; }
    const float delta = inside ? beta * (x[2 * keys + head * a.value_dim + j] - read) : 0.0f;
    sum = 0.0f;
    for (uint i = 0; i < KEYS; i++) {
      if (i < rows) {
        s[i] += k[part * KEYS + i] * k_scale * delta;
        sum += s[i] * (q[part * KEYS + i] * q_scale);
      }
    }
    outs[t] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Every simdgroup sums the squares of the whole head, so that no further barrier is needed.
    float squares = 0.0f;
    for (uint c = lane; c < a.value_dim; c += SIMD) {
      float o = 0.0f;
      for (uint p = 0; p < parts; p++) { o += outs[p * padded + c]; }
      squares += o * o;
    }
    const float scale = precise::rsqrt(simd_sum(squares) / float(a.value_dim) + a.eps);
    if (part == 0 && inside) {
      float o = 0.0f;
      for (uint p = 0; p < parts; p++) { o += outs[p * padded + j]; }
      const ulong at = ulong(row) * values + head * a.value_dim + j;
      out[at] = o * scale * norm[j] * (a.sigmoid_gate != 0 ? sigmoid(z[at]) : silu(z[at]));
    }
    if (RECORD && entries[row] != 0xffffffffu) {
      device float* to = ring + ulong(entries[row]) * a.value_heads * cells + first;
      for (uint i = 0; i < KEYS; i++) {
        if (i < rows) { to[ulong(i) * a.value_dim] = s[i]; }
      }
    }
  }
  for (uint i = 0; i < KEYS; i++) {
    if (i < rows) { state[first + ulong(i) * a.value_dim] = s[i]; }
  }
}

[[kernel]] void gated_delta(
    const device float* qkv [[buffer(0)]], const device float* a_in [[buffer(1)]], const device float* b_in [[buffer(2)]],
    const device float* z [[buffer(3)]], const device float* a_log [[buffer(4)]], const device float* dt_bias [[buffer(5)]],
    const device float* norm [[buffer(6)]], device float* state [[buffer(7)]], device float* out [[buffer(8)]],
    constant DeltaArgs& a [[buffer(9)]], threadgroup float* memory [[threadgroup(0)]],
    uint head [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  delta_rule<false>(qkv, a_in, b_in, z, a_log, dt_bias, norm, state, out, nullptr, nullptr, a, memory, head, t, threads,
                    lane);
}

// Also copies the state after row r to entry entries[r] of the ring, unless that is 2^32 - 1.
[[kernel]] void gated_delta_record(
    const device float* qkv [[buffer(0)]], const device float* a_in [[buffer(1)]], const device float* b_in [[buffer(2)]],
    const device float* z [[buffer(3)]], const device float* a_log [[buffer(4)]], const device float* dt_bias [[buffer(5)]],
    const device float* norm [[buffer(6)]], device float* state [[buffer(7)]], device float* out [[buffer(8)]],
    const device uint* entries [[buffer(9)]], device float* ring [[buffer(10)]], constant DeltaArgs& a [[buffer(11)]],
    threadgroup float* memory [[threadgroup(0)]], uint head [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  delta_rule<true>(qkv, a_in, b_in, z, a_log, dt_bias, norm, state, out, entries, ring, a, memory, head, t, threads, lane);
}
