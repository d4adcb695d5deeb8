// The indexer: scores of blocks, and the best of them.

// scores[row, b] = sum over heads of max(0, q . k_b) / sqrt(dim): one simdgroup each. Blocks that are not
// complete at the row's position keep what was there.
[[kernel]] void block_scores(
    const device float* queries [[buffer(0)]], const device Floats* pages [[buffer(1)]],
    device float* scores [[buffer(2)]], constant SelectArgs& a [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const uint block = group.x * 8 + sg, row = group.y;
  if (block >= (a.position + row + 1) / a.ratio) { return; }
  const device float* key = pages[block / a.page_rows].at + ulong(block % a.page_rows) * a.dim;
  const device float* query = queries + ulong(row) * a.heads * a.dim;
  float sum = 0.0f;
  for (uint head = 0; head < a.heads; head++) {
    float product = 0.0f;
    for (uint i = lane; i < a.dim; i += SIMD) { product += query[head * a.dim + i] * key[i]; }
    product = simd_sum(product);
    // Not max, which would turn NaN into 0.
    sum += product < 0.0f ? 0.0f : product;
  }
  if (lane == 0) { scores[ulong(row) * a.blocks + block] = sum * precise::rsqrt(float(a.dim)); }
}

// What select_best calls with a place and a block.
struct TakeBlock {
  device uint* out;
  METAL_FUNC void operator()(uint place, uint block) const thread { out[place] = block; }
};

// out[row, budget]: the best blocks that are complete at the row's position, ascending, then 2^32 - 1.
[[kernel]] void block_select(
    const device float* scores [[buffer(0)]], device uint* out [[buffer(1)]], constant SelectArgs& a [[buffer(2)]],
    threadgroup uint* memory [[threadgroup(0)]], uint row [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint blocks = (a.position + row + 1) / a.ratio;
  device uint* to = out + ulong(row) * a.budget;
  if (blocks <= a.budget) {
    for (uint i = t; i < a.budget; i += threads) { to[i] = i < blocks ? i : 0xffffffffu; }
    return;
  }
  const TakeBlock take = {to};
  select_best(scores + ulong(row) * a.blocks, blocks, a.budget, memory, t, threads, sg, lane, take);
}
