// out[m, n] = x[m, k] . w[n, k]^T for affine-quantized w, and rows of w.

template <typename T, uint GROUP>
METAL_FUNC void affine_mv(const device uint* w, const device bfloat* scales, const device bfloat* biases,
                          const device T* x, device T* out, constant AffineArgs& a, uint group, uint sg, uint lane) {
  const uint row = (group * 2 + sg) * MV_ROWS;
  if (row >= a.n) { return; }
  const uint rows = min(MV_ROWS, a.n - row);
  const ulong groups = ulong(row) * (a.k / GROUP);
  float sums[MV_ROWS] = {0, 0, 0, 0};
  affine_dots<T, GROUP>(w + ulong(row) * (a.k / 8), scales + groups, biases + groups, x, a.k, rows, lane, sums);
  for (uint r = 0; r < rows; r++) {
    const float sum = simd_sum(sums[r]);
    if (lane == 0) { out[row + r] = T(sum); }
  }
}

template <typename T, uint GROUP>
METAL_FUNC void affine_mm(const device uint* w, const device bfloat* scales, const device bfloat* biases,
                          const device T* x, device T* out, constant AffineArgs& a, threadgroup float* xs,
                          uint3 group, uint t, uint sg) {
  threadgroup float* ws = xs + TILE * TILE;
  const uint column = group.x * TILE, row = group.y * TILE;
  const uint r = t / 4, c = t % 4 * 8;
  simdgroup_float8x8 acc[4];
  clear_tiles(acc);
  for (uint k = 0; k < a.k; k += TILE) {
    for (uint j = 0; j < 8; j++) {
      xs[r * TILE + c + j] = row + r < a.m ? float(x[ulong(row + r) * a.k + k + c + j]) : 0.0f;
    }
    load_affine_tile<GROUP>(ws, w, scales, biases, column, a.n, a.k, k, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_tiles(acc, xs, ws, sg);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store_tile(acc, xs, sg);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint j = 0; j < 8; j++) {
    if (row + r < a.m && column + c + j < a.n) {
      out[ulong(row + r) * a.n + column + c + j] = T(xs[r * TILE + c + j]);
    }
  }
}

// Dequantizes row ids[group.y]; a thread writes the eight values of one word.
template <uint GROUP>
METAL_FUNC void affine_row(const device uint* w, const device bfloat* scales, const device bfloat* biases,
                           const device uint* ids, device float* out, constant AffineArgs& a, uint3 group, uint t) {
  const uint i = group.x * 128 + t;
  if (i >= a.k / 8) { return; }
  const ulong row = ids[group.y];
  const ulong g = row * (a.k / GROUP) + 8 * i / GROUP;
  const float scale = float(scales[g]), bias = float(biases[g]);
  const uint q = w[row * (a.k / 8) + i];
  device float* to = out + ulong(group.y) * a.k + 8 * i;
  for (uint j = 0; j < 8; j++) { to[j] = scale * float((q >> (4 * j)) & 15) + bias; }
}

#define AFFINE(TYPE, NAME, GROUP) \
  [[kernel]] void affine_mv_##NAME##_g##GROUP( \
      const device uint* w [[buffer(0)]], const device bfloat* scales [[buffer(1)]], \
      const device bfloat* biases [[buffer(2)]], const device TYPE* x [[buffer(3)]], \
      device TYPE* out [[buffer(4)]], constant AffineArgs& a [[buffer(5)]], \
      uint group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]], \
      uint lane [[thread_index_in_simdgroup]]) { \
    affine_mv<TYPE, GROUP>(w, scales, biases, x, out, a, group, sg, lane); \
  } \
  [[kernel]] void affine_mm_##NAME##_g##GROUP( \
      const device uint* w [[buffer(0)]], const device bfloat* scales [[buffer(1)]], \
      const device bfloat* biases [[buffer(2)]], const device TYPE* x [[buffer(3)]], \
      device TYPE* out [[buffer(4)]], constant AffineArgs& a [[buffer(5)]], \
      threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]], \
      uint t [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
    affine_mm<TYPE, GROUP>(w, scales, biases, x, out, a, memory, group, t, sg); \
  }

#define AFFINE_ROWS(GROUP) \
  [[kernel]] void affine_rows_g##GROUP( \
      const device uint* w [[buffer(0)]], const device bfloat* scales [[buffer(1)]], \
      const device bfloat* biases [[buffer(2)]], const device uint* ids [[buffer(3)]], \
      device float* out [[buffer(4)]], constant AffineArgs& a [[buffer(5)]], \
      uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) { \
    affine_row<GROUP>(w, scales, biases, ids, out, a, group, t); \
  }

AFFINE(float, f32, 32)
AFFINE(float, f32, 64)
AFFINE(bfloat, bf16, 32)
AFFINE(bfloat, bf16, 64)
AFFINE_ROWS(32)
AFFINE_ROWS(64)
