// The k best logits of each row in order, and the softmax over them: one threadgroup for each row. An expert's
// rank is the number of experts that are better, so that no expert waits for another.
[[kernel]] void route(
    const device float* logits [[buffer(0)]], device uint* ids [[buffer(1)]], device float* weights [[buffer(2)]],
    constant RouteArgs& a [[buffer(3)]], threadgroup uint* keys [[threadgroup(0)]],
    uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const device float* from = logits + ulong(row) * a.experts;
  threadgroup float* chosen = reinterpret_cast<threadgroup float*>(keys + a.experts);
  for (uint e = t; e < a.experts; e += threads) { keys[e] = order_key(from[e]); }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = t; e < a.experts; e += threads) {
    const uint key = keys[e];
    uint rank = 0;
    for (uint other = 0; other < a.experts; other++) {
      const uint theirs = keys[other];
      rank += theirs > key || (theirs == key && other < e) ? 1 : 0;
    }
    if (rank < a.top_k) {
      ids[ulong(row) * a.top_k + rank] = e;
      chosen[rank] = from[e];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (sg != 0) { return; }
  float sum = 0.0f;
  for (uint i = lane; i < a.top_k; i += SIMD) { sum += precise::exp(chosen[i] - chosen[0]); }
  sum = simd_sum(sum);
  for (uint i = lane; i < a.top_k; i += SIMD) {
    weights[ulong(row) * a.top_k + i] = precise::exp(chosen[i] - chosen[0]) / sum;
  }
}
