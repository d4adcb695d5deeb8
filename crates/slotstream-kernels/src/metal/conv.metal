// Causal depthwise convolution and SiLU: tap kernel - 1 is the current row, taps are `dilation` apart.
[[kernel]] void conv_silu(
    const device float* window [[buffer(0)]], const device float* weight [[buffer(1)]],
    device float* out [[buffer(2)]], constant ConvArgs& a [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  const uint c = group.x * 256 + t;
  if (c >= a.channels) { return; }
  float sum = 0.0f;
  for (uint tap = 0; tap < a.taps; tap++) {
    sum += weight[ulong(c) * a.taps + tap] * window[ulong(group.y + tap * a.dilation) * a.channels + c];
  }
  out[ulong(group.y) * a.channels + c] = silu(sum);
}
