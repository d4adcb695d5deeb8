// What every library starts with. MSL 3.1, kernels only as plain functions, threadgroup memory
// only as the argument [[threadgroup(0)]], so that the plan states its size.
//
// Only whole simdgroups may return early, and none may before a barrier.
#include <metal_stdlib>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
#include <metal_atomic>
using namespace metal;

constant constexpr uint SIMD = 32;

// An entry of a table of addresses. Records and pages lie in any of several buffers.
struct Bytes { const device uchar* at; };
struct Floats { const device float* at; };

METAL_FUNC float sigmoid(float x) { return 1.0f / (1.0f + precise::exp(-x)); }
METAL_FUNC float silu(float x) { return x * sigmoid(x); }

METAL_FUNC uint ceil_div(uint a, uint b) { return (a + b - 1) / b; }

// The sum over a threadgroup, in every thread. `parts` holds one value for each simdgroup.
METAL_FUNC float threadgroup_sum(float x, threadgroup float* parts, uint sg, uint lane, uint simdgroups) {
  x = simd_sum(x);
  if (lane == 0) { parts[sg] = x; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = simd_sum(lane < simdgroups ? parts[lane] : 0.0f);
  // So that `parts` can be used again at once.
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}
