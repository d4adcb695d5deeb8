// Products with affine-quantized matrices: u32 word i of a row holds values 8i .. 8i+7, the first in
// its lowest bits; a group shares a scale and a bias. A weight is scale * q + bias, as in reference/,
// not the cheaper split scale * (x . q) + bias * sum(x): infinities and NaN then come out the same.

// Output rows of a simdgroup, and of a threadgroup of two simdgroups.
constant constexpr uint MV_ROWS = 4;
// A tile of a product of matrices: 32 rows of x, 32 rows of w, 32 columns of both at a time, by four
// simdgroups of 2 x 2 simdgroup matrices each.
constant constexpr uint TILE = 32;

// Adds this lane's share of the products of x with up to MV_ROWS rows of w to `sums`.
template <typename T, uint GROUP>
METAL_FUNC void affine_dots(const device uint* w, const device bfloat* scales, const device bfloat* biases,
                            const device T* x, uint k, uint rows, uint lane, thread float* sums) {
  const uint words = k / 8, groups = k / GROUP;
  for (uint i = lane; i < words; i += SIMD) {
    float values[8];
    for (uint j = 0; j < 8; j++) { values[j] = float(x[8 * i + j]); }
    for (uint r = 0; r < rows; r++) {
      const uint g = r * groups + 8 * i / GROUP;
      const float scale = float(scales[g]), bias = float(biases[g]);
      const uint q = w[r * words + i];
      for (uint j = 0; j < 8; j++) { sums[r] += values[j] * (scale * float((q >> (4 * j)) & 15) + bias); }
    }
  }
}

// Loads this thread's eight values of a tile of weights: row thread / 4, word thread % 4.
template <uint GROUP>
METAL_FUNC void load_affine_tile(threadgroup float* tile, const device uint* w, const device bfloat* scales,
                                 const device bfloat* biases, uint row, uint n, uint k, uint column, uint thread_index) {
  const uint r = thread_index / 4, c = thread_index % 4 * 8;
  threadgroup float* to = tile + r * TILE + c;
  if (row + r >= n) {
    for (uint j = 0; j < 8; j++) { to[j] = 0.0f; }
    return;
  }
  const ulong at = ulong(row + r) * (k / GROUP) + (column + c) / GROUP;
  const float scale = float(scales[at]), bias = float(biases[at]);
  const uint q = w[ulong(row + r) * (k / 8) + (column + c) / 8];
  for (uint j = 0; j < 8; j++) { to[j] = scale * float((q >> (4 * j)) & 15) + bias; }
}

// acc[2 x 2] += the simdgroup's quarter of xs . ws^T.
METAL_FUNC void multiply_tiles(thread simdgroup_float8x8* acc, const threadgroup float* xs,
                               const threadgroup float* ws, uint sg) {
  const uint row = sg / 2 * 16, column = sg % 2 * 16;
  for (uint k = 0; k < TILE; k += 8) {
    simdgroup_float8x8 a[2], b[2];
    for (uint i = 0; i < 2; i++) {
      simdgroup_load(a[i], xs + (row + 8 * i) * TILE + k, TILE);
      simdgroup_load(b[i], ws + (column + 8 * i) * TILE + k, TILE, 0, true);
    }
    for (uint i = 0; i < 4; i++) { simdgroup_multiply_accumulate(acc[i], a[i / 2], b[i % 2], acc[i]); }
  }
}

// Writes the simdgroup's quarter of the tile.
METAL_FUNC void store_tile(thread simdgroup_float8x8* acc, threadgroup float* tile, uint sg) {
  const uint row = sg / 2 * 16, column = sg % 2 * 16;
  for (uint i = 0; i < 4; i++) {
    simdgroup_store(acc[i], tile + (row + i / 2 * 8) * TILE + column + i % 2 * 8, TILE);
  }
}

METAL_FUNC void clear_tiles(thread simdgroup_float8x8* acc) {
  for (uint i = 0; i < 4; i++) { acc[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
}
