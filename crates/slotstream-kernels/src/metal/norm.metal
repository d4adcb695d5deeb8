// RMS norm of groups of `width`: one threadgroup each.
[[kernel]] void grouped_rms_norm(
    const device float* x [[buffer(0)]], const device float* weight [[buffer(1)]], device float* out [[buffer(2)]],
    constant NormArgs& a [[buffer(3)]], threadgroup float* parts [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const ulong at = (ulong(group.y) * a.groups + group.x) * a.width;
  float squares = 0.0f;
  for (uint i = t; i < a.width; i += threads) { squares += x[at + i] * x[at + i]; }
  squares = threadgroup_sum(squares, parts, sg, lane, simdgroups);
  const float scale = precise::rsqrt(squares / float(a.width) + a.eps);
  for (uint i = t; i < a.width; i += threads) {
    out[at + i] = x[at + i] * scale * weight[ulong(group.x) * a.width + i];
  }
}
