// The gate of the n-gram embedding: one threadgroup for each row and stream.

// sign(x) * sqrt(max(|x|, 1e-6)), 0 for 0; NaN stays NaN.
METAL_FUNC float signed_sqrt(float x) {
  if (isnan(x)) { return x; }
  return x == 0.0f ? 0.0f : copysign(precise::sqrt(max(fabs(x), 1e-6f)), x);
}

[[kernel]] void ple_gate(
    const device float* h [[buffer(0)]], const device float* key [[buffer(1)]], const device float* value [[buffer(2)]],
    const device float* norm_key [[buffer(3)]], const device float* norm_query [[buffer(4)]],
    const device float* norm_conv [[buffer(5)]], device float* value_out [[buffer(6)]],
    device float* conv_in [[buffer(7)]], constant PleArgs& a [[buffer(8)]], threadgroup float* parts [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint column = group.x * a.hidden;
  const ulong row = (ulong(group.y) * a.streams + group.x) * a.hidden, values = ulong(group.y) * a.hidden;
  float keys = 0.0f, queries = 0.0f;
  for (uint i = t; i < a.hidden; i += threads) {
    keys += key[row + i] * key[row + i];
    queries += h[row + i] * h[row + i];
  }
  keys = threadgroup_sum(keys, parts, sg, lane, simdgroups);
  queries = threadgroup_sum(queries, parts, sg, lane, simdgroups);
  const float width = float(a.hidden);
  const float key_scale = precise::rsqrt(keys / width + a.eps), query_scale = precise::rsqrt(queries / width + a.eps);
  float dot = 0.0f;
  for (uint i = t; i < a.hidden; i += threads) {
    dot += key[row + i] * key_scale * norm_key[column + i] * (h[row + i] * query_scale * norm_query[column + i]);
  }
  dot = threadgroup_sum(dot, parts, sg, lane, simdgroups);
  const float gate = sigmoid(signed_sqrt(dot / precise::sqrt(width)));
  float squares = 0.0f;
  for (uint i = t; i < a.hidden; i += threads) {
    const float gated = gate * value[values + i];
    squares += gated * gated;
    value_out[row + i] = gated;
  }
  squares = threadgroup_sum(squares, parts, sg, lane, simdgroups);
  const float scale = precise::rsqrt(squares / width + a.eps);
  for (uint i = t; i < a.hidden; i += threads) {
    conv_in[row + i] = gate * value[values + i] * scale * norm_conv[column + i];
  }
}
