// out[m, n] = x[m, k] . w[n, k]^T for bf16 w.

template <typename T>
METAL_FUNC void bf16_mv(const device bfloat* w, const device T* x, device T* out, constant Bf16Args& a,
                        uint group, uint sg, uint lane) {
  const uint row = (group * 2 + sg) * MV_ROWS;
  if (row >= a.n) { return; }
  const uint rows = min(MV_ROWS, a.n - row);
  w += ulong(row) * a.k;
  float sums[MV_ROWS] = {0, 0, 0, 0};
  for (uint i = lane; i < a.k; i += SIMD) {
    const float value = float(x[i]);
    for (uint r = 0; r < rows; r++) { sums[r] += value * float(w[ulong(r) * a.k + i]); }
  }
  for (uint r = 0; r < rows; r++) {
    const float sum = simd_sum(sums[r]);
    if (lane == 0) { out[row + r] = T(sum); }
  }
}

template <typename T>
METAL_FUNC void bf16_mm(const device bfloat* w, const device T* x, device T* out, constant Bf16Args& a,
                        threadgroup float* xs, uint3 group, uint t, uint sg) {
  threadgroup float* ws = xs + TILE * TILE;
  const uint column = group.x * TILE, row = group.y * TILE;
  const uint r = t / 4, c = t % 4 * 8;
  simdgroup_float8x8 acc[4];
  clear_tiles(acc);
  for (uint k = 0; k < a.k; k += TILE) {
    for (uint j = c; j < c + 8; j++) {
      const bool inside = k + j < a.k;
      xs[r * TILE + j] = inside && row + r < a.m ? float(x[ulong(row + r) * a.k + k + j]) : 0.0f;
      ws[r * TILE + j] = inside && column + r < a.n ? float(w[ulong(column + r) * a.k + k + j]) : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_tiles(acc, xs, ws, sg);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store_tile(acc, xs, sg);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint j = c; j < c + 8; j++) {
    if (row + r < a.m && column + j < a.n) { out[ulong(row + r) * a.n + column + j] = T(xs[r * TILE + j]); }
  }
}

#define BF16(TYPE, NAME) \
  [[kernel]] void bf16_mv_##NAME( \
      const device bfloat* w [[buffer(0)]], const device TYPE* x [[buffer(1)]], device TYPE* out [[buffer(2)]], \
      constant Bf16Args& a [[buffer(3)]], uint group [[threadgroup_position_in_grid]], \
      uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) { \
    bf16_mv<TYPE>(w, x, out, a, group, sg, lane); \
  } \
  [[kernel]] void bf16_mm_##NAME( \
      const device bfloat* w [[buffer(0)]], const device TYPE* x [[buffer(1)]], device TYPE* out [[buffer(2)]], \
      constant Bf16Args& a [[buffer(3)]], threadgroup float* memory [[threadgroup(0)]], \
      uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]], \
      uint sg [[simdgroup_index_in_threadgroup]]) { \
    bf16_mm<TYPE>(w, x, out, a, memory, group, t, sg); \
  }

BF16(float, f32)
BF16(bfloat, bf16)
