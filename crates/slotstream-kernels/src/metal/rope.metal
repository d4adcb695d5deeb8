// Norm of heads, then partial rotary embedding; one simdgroup for each head. The angles come as
// [row, pair, cos | sin], computed once for all layers and exactly: they are large for late positions.

// out = rotate(x * scale * weight); x is a function of the dimension.
METAL_FUNC void rotate_into(device float* out, const device float* weight, const device float* angles, uint dim,
                            uint half_dims, uint lane, float scale, const threadgroup float* x) {
  for (uint i = lane; i < half_dims; i += SIMD) {
    const float low = x[i] * scale * weight[i], high = x[i + half_dims] * scale * weight[i + half_dims];
    const float cosine = angles[2 * i], sine = angles[2 * i + 1];
    out[i] = low * cosine - high * sine;
    out[i + half_dims] = high * cosine + low * sine;
  }
  for (uint i = 2 * half_dims + lane; i < dim; i += SIMD) { out[i] = x[i] * scale * weight[i]; }
}

METAL_FUNC float inverse_rms(const threadgroup float* x, uint dim, float eps, uint lane) {
  float squares = 0.0f;
  for (uint i = lane; i < dim; i += SIMD) { squares += x[i] * x[i]; }
  return precise::rsqrt(simd_sum(squares) / float(dim) + eps);
}

[[kernel]] void norm_rope(
    const device float* x [[buffer(0)]], const device float* weight [[buffer(1)]],
    const device float* angles [[buffer(2)]], device float* out [[buffer(3)]], constant RopeArgs& a [[buffer(4)]],
    threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  const device float* from = x + ulong(group.y) * a.row_stride + a.offset + group.x * a.head_stride;
  for (uint i = lane; i < a.dim; i += SIMD) { memory[i] = from[i]; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = inverse_rms(memory, a.dim, a.eps, lane);
  rotate_into(out + (ulong(group.y) * a.heads + group.x) * a.dim, weight, angles + ulong(group.y) * 2 * a.half_dims,
              a.dim, a.half_dims, lane, scale, memory);
}

// The key of a block: the mean of its raw keys [ratio, dim], normed and rotated.
[[kernel]] void block_key(
    const device float* raw [[buffer(0)]], const device float* weight [[buffer(1)]],
    const device float* angles [[buffer(2)]], device float* out [[buffer(3)]], constant RopeArgs& a [[buffer(4)]],
    threadgroup float* memory [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  // heads is the number of raw keys here, row_stride the distance between blocks.
  const device float* from = raw + ulong(group) * a.row_stride;
  for (uint i = lane; i < a.dim; i += SIMD) {
    float sum = 0.0f;
    for (uint key = 0; key < a.heads; key++) { sum += from[key * a.dim + i]; }
    memory[i] = sum / float(a.heads);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = inverse_rms(memory, a.dim, a.eps, lane);
  rotate_into(out + ulong(group) * a.dim, weight, angles + ulong(group) * 2 * a.half_dims, a.dim, a.half_dims, lane,
              scale, memory);
}
