// Expert MLPs over records that are found by address, and the sums around them.

// One row of one expert.
struct Job { uint slot, row, place; };

// act[job] = silu(gate . x[row]) * (up . x[row]): MV_ROWS / 2 rows of both matrices in a simdgroup.
template <uint GROUP>
METAL_FUNC void gate_up_mv(const device Bytes* slots, const device Job* jobs, const device float* x, device float* act,
                           constant ExpertArgs& a, uint3 group, uint sg, uint lane) {
  const uint row = (group.x * 2 + sg) * MV_ROWS;
  if (row >= a.intermediate) { return; }
  const uint rows = min(MV_ROWS, a.intermediate - row), k = a.hidden;
  const device uchar* record = slots[jobs[group.y].slot].at;
  const device float* in = x + ulong(jobs[group.y].row) * k;
  const uint words = row * (k / 8), groups = row * (k / GROUP);
  float gates[MV_ROWS] = {0, 0, 0, 0}, ups[MV_ROWS] = {0, 0, 0, 0};
  affine_dots<float, GROUP>(reinterpret_cast<const device uint*>(record + a.gate_weight) + words,
                            reinterpret_cast<const device bfloat*>(record + a.gate_scales) + groups,
                            reinterpret_cast<const device bfloat*>(record + a.gate_biases) + groups, in, k, rows, lane, gates);
  affine_dots<float, GROUP>(reinterpret_cast<const device uint*>(record + a.up_weight) + words,
                            reinterpret_cast<const device bfloat*>(record + a.up_scales) + groups,
                            reinterpret_cast<const device bfloat*>(record + a.up_biases) + groups, in, k, rows, lane, ups);
  for (uint r = 0; r < rows; r++) {
    const float gate = simd_sum(gates[r]), up = simd_sum(ups[r]);
    if (lane == 0) { act[ulong(group.y) * a.intermediate + row + r] = silu(gate) * up; }
  }
}

// out[place] = down . act[job].
template <uint GROUP>
METAL_FUNC void down_mv(const device Bytes* slots, const device Job* jobs, const device float* act, device float* out,
                        constant ExpertArgs& a, uint3 group, uint sg, uint lane) {
  const uint row = (group.x * 2 + sg) * MV_ROWS;
  if (row >= a.hidden) { return; }
  const uint rows = min(MV_ROWS, a.hidden - row), k = a.intermediate;
  const device uchar* record = slots[jobs[group.y].slot].at;
  const uint words = row * (k / 8), groups = row * (k / GROUP);
  float sums[MV_ROWS] = {0, 0, 0, 0};
  affine_dots<float, GROUP>(reinterpret_cast<const device uint*>(record + a.down_weight) + words,
                            reinterpret_cast<const device bfloat*>(record + a.down_scales) + groups,
                            reinterpret_cast<const device bfloat*>(record + a.down_biases) + groups,
                            act + ulong(group.y) * k, k, rows, lane, sums);
  for (uint r = 0; r < rows; r++) {
    const float sum = simd_sum(sums[r]);
    if (lane == 0) { out[ulong(jobs[group.y].place) * a.hidden + row + r] = sum; }
  }
}

// Up to TILE jobs of one expert.
struct Batch { uint first, count; };

template <uint GROUP>
METAL_FUNC void gate_up_mm(const device Bytes* slots, const device Job* jobs, const device Batch* batches,
                           const device float* x, device float* act, constant ExpertArgs& a, threadgroup float* xs,
                           uint3 group, uint t, uint sg) {
  threadgroup float* gate_tile = xs + TILE * TILE;
  threadgroup float* up_tile = gate_tile + TILE * TILE;
  const uint first = batches[group.y].first, count = batches[group.y].count;
  const device uchar* record = slots[jobs[first].slot].at;
  const uint column = group.x * TILE, r = t / 4, c = t % 4 * 8;
  const device float* in = x + ulong(jobs[first + min(r, count - 1)].row) * a.hidden;
  simdgroup_float8x8 gates[4], ups[4];
  clear_tiles(gates);
  clear_tiles(ups);
  for (uint k = 0; k < a.hidden; k += TILE) {
    for (uint j = c; j < c + 8; j++) { xs[r * TILE + j] = r < count ? in[k + j] : 0.0f; }
    load_affine_tile<GROUP>(gate_tile, reinterpret_cast<const device uint*>(record + a.gate_weight),
                            reinterpret_cast<const device bfloat*>(record + a.gate_scales),
                            reinterpret_cast<const device bfloat*>(record + a.gate_biases), column, a.intermediate, a.hidden, k, t);
    load_affine_tile<GROUP>(up_tile, reinterpret_cast<const device uint*>(record + a.up_weight),
                            reinterpret_cast<const device bfloat*>(record + a.up_scales),
                            reinterpret_cast<const device bfloat*>(record + a.up_biases), column, a.intermediate, a.hidden, k, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_tiles(gates, xs, gate_tile, sg);
    multiply_tiles(ups, xs, up_tile, sg);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store_tile(gates, gate_tile, sg);
  store_tile(ups, up_tile, sg);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint j = c; j < c + 8; j++) {
    if (r < count && column + j < a.intermediate) {
      const uint at = r * TILE + j;
      act[ulong(first + r) * a.intermediate + column + j] = silu(gate_tile[at]) * up_tile[at];
    }
  }
}

template <uint GROUP>
METAL_FUNC void down_mm(const device Bytes* slots, const device Job* jobs, const device Batch* batches,
                        const device float* act, device float* out, constant ExpertArgs& a, threadgroup float* xs,
                        uint3 group, uint t, uint sg) {
  threadgroup float* tile = xs + TILE * TILE;
  const uint first = batches[group.y].first, count = batches[group.y].count;
  const device uchar* record = slots[jobs[first].slot].at;
  const uint column = group.x * TILE, r = t / 4, c = t % 4 * 8;
  simdgroup_float8x8 acc[4];
  clear_tiles(acc);
  for (uint k = 0; k < a.intermediate; k += TILE) {
    for (uint j = c; j < c + 8; j++) {
      xs[r * TILE + j] = r < count ? act[ulong(first + r) * a.intermediate + k + j] : 0.0f;
    }
    load_affine_tile<GROUP>(tile, reinterpret_cast<const device uint*>(record + a.down_weight),
                            reinterpret_cast<const device bfloat*>(record + a.down_scales),
                            reinterpret_cast<const device bfloat*>(record + a.down_biases), column, a.hidden, a.intermediate, k, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_tiles(acc, xs, tile, sg);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store_tile(acc, xs, sg);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint j = c; j < c + 8; j++) {
    if (r < count && column + j < a.hidden) {
      out[ulong(jobs[first + r].place) * a.hidden + column + j] = xs[r * TILE + j];
    }
  }
}

#define EXPERTS(GROUP) \
  [[kernel]] void expert_gate_up_mv_g##GROUP( \
      const device Bytes* slots [[buffer(0)]], const device Job* jobs [[buffer(1)]], \
      const device float* x [[buffer(2)]], device float* act [[buffer(3)]], constant ExpertArgs& a [[buffer(4)]], \
      uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]], \
      uint lane [[thread_index_in_simdgroup]]) { \
    gate_up_mv<GROUP>(slots, jobs, x, act, a, group, sg, lane); \
  } \
  [[kernel]] void expert_down_mv_g##GROUP( \
      const device Bytes* slots [[buffer(0)]], const device Job* jobs [[buffer(1)]], \
      const device float* act [[buffer(2)]], device float* out [[buffer(3)]], constant ExpertArgs& a [[buffer(4)]], \
      uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]], \
      uint lane [[thread_index_in_simdgroup]]) { \
    down_mv<GROUP>(slots, jobs, act, out, a, group, sg, lane); \
  } \
  [[kernel]] void expert_gate_up_mm_g##GROUP( \
      const device Bytes* slots [[buffer(0)]], const device Job* jobs [[buffer(1)]], \
      const device Batch* batches [[buffer(2)]], const device float* x [[buffer(3)]], \
      device float* act [[buffer(4)]], constant ExpertArgs& a [[buffer(5)]], \
      threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]], \
      uint t [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
    gate_up_mm<GROUP>(slots, jobs, batches, x, act, a, memory, group, t, sg); \
  } \
  [[kernel]] void expert_down_mm_g##GROUP( \
      const device Bytes* slots [[buffer(0)]], const device Job* jobs [[buffer(1)]], \
      const device Batch* batches [[buffer(2)]], const device float* act [[buffer(3)]], \
      device float* out [[buffer(4)]], constant ExpertArgs& a [[buffer(5)]], \
      threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]], \
      uint t [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { \
    down_mm<GROUP>(slots, jobs, batches, act, out, a, memory, group, t, sg); \
  }

EXPERTS(32)
EXPERTS(64)

// out[row] = sum over rank of weights[row, rank] * y[row, rank], from zero in rank order. Products and sums
// are rounded apart: a product that is already rounded cannot become part of a fused multiply-add.
[[kernel]] void rank_sum(
    const device float* y [[buffer(0)]], const device float* weights [[buffer(1)]], device float* out [[buffer(2)]],
    constant SumArgs& a [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]]) {
  const uint j = group.x * 256 + t;
  if (j >= a.hidden) { return; }
  float sum = 0.0f;
  for (uint rank = 0; rank < a.top_k; rank++) {
    const ulong at = ulong(group.y) * a.top_k + rank;
    sum += fma(weights[at], y[at * a.hidden + j], 0.0f);
  }
  out[ulong(group.y) * a.hidden + j] = sum;
}

// gate = silu(gate) * up, in place.
[[kernel]] void silu_mul(
    device float* gate [[buffer(0)]], const device float* up [[buffer(1)]], constant SumArgs& a [[buffer(2)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  const uint j = group.x * 256 + t;
  if (j >= a.hidden) { return; }
  const ulong at = ulong(group.y) * a.hidden + j;
  gate[at] = silu(gate[at]) * up[at];
}

// out[row] *= sigmoid(gate[row]).
[[kernel]] void gate_rows(
    device float* out [[buffer(0)]], const device float* gate [[buffer(1)]], constant SumArgs& a [[buffer(2)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  const uint j = group.x * 256 + t;
  if (j < a.hidden) { out[ulong(group.y) * a.hidden + j] *= sigmoid(gate[group.y]); }
}
