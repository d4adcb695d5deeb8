// The element-wise parts of a hyper-connection mixer; the products are those of affine and bf16.

// low = silu(low / streams), in place.
[[kernel]] void hc_low(
    device float* low [[buffer(0)]], constant HcArgs& a [[buffer(1)]],
    uint group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  const uint i = group * 256 + t;
  if (i < a.n) { low[i] = silu(low[i] / float(a.streams)); }
}

// gates = 2 sigmoid(gates / streams), in place.
[[kernel]] void hc_gates(
    device float* gates [[buffer(0)]], constant HcArgs& a [[buffer(1)]],
    uint group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  const uint i = group * 256 + t;
  if (i < a.n) { gates[i] = 2.0f * sigmoid(gates[i] / float(a.streams)); }
}

// mixed[row, j] = mean over streams of sigmoid(gates[row, s, j]) * normed[row, s, j].
[[kernel]] void hc_mean(
    const device float* normed [[buffer(0)]], const device float* gates [[buffer(1)]],
    device float* mixed [[buffer(2)]], constant HcArgs& a [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  const uint j = group.x * 256 + t;
  if (j >= a.n) { return; }
  const ulong row = ulong(group.y) * a.streams * a.n + j;
  float sum = 0.0f;
  for (uint s = 0; s < a.streams; s++) {
    const ulong at = row + ulong(s) * a.n;
    sum += sigmoid(gates[at]) * normed[at];
  }
  mixed[ulong(group.y) * a.n + j] = sum / float(a.streams);
}

// h[row, s, j] += inject[row, s] * y[row, j].
[[kernel]] void hc_inject(
    device float* h [[buffer(0)]], const device float* inject [[buffer(1)]], const device float* y [[buffer(2)]],
    constant HcArgs& a [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]]) {
  const uint j = group.x * 256 + t;
  if (j >= a.n) { return; }
  const ulong stream = ulong(group.z) * a.streams + group.y;
  h[stream * a.n + j] += inject[stream] * y[ulong(group.z) * a.n + j];
}
