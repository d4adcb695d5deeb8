"""Writes a GGUF file of random Q4_0 weights with the layer shapes of Qwen3.8-Flash-Next.

    gguf_model.py OUT LAYERS VOCABULARY

An expert takes 2,764,800 bytes, as in the checkpoints of `synthesize`. Weights have the mean zero,
or the hidden states would fall into one direction and the router would always take the same
experts. Needs numpy, and gguf with the architecture `qwen4exp`.
"""

import sys
import zlib

import gguf
import numpy as np

HIDDEN, EXPERT, EXPERTS, CHOSEN = 2560, 640, 512, 10
STREAMS, LOW_RANK = 4, 320
HEADS, KEY_HEADS, HEAD_DIM = 24, 2, 256
INDEX_HEADS, INDEX_DIM, INDEX_TOP = 4, 128, 2048
KEY_DIM, VALUE_DIM, VALUE_HEADS, CONV = 16 * 128, 48 * 128, 48, 4
ARCH = "qwen4exp"
Q4_0 = gguf.GGMLQuantizationType.Q4_0
# Weights of a block of Q4_0, and its bytes: a scale in f16 and the nibbles.
BLOCK, BLOCK_BYTES = 32, 18


class Weights:
    """Random numbers for a tensor, always the same ones for a name."""

    def __init__(self):
        nibbles = np.random.default_rng(1).integers(1, 16, (2, 1 << 24), dtype=np.uint8)
        self.bytes = nibbles[0] | nibbles[1] << 4

    def quantized(self, name, rows, columns):
        blocks = rows * columns // BLOCK
        whole = np.resize(np.roll(self.bytes, zlib.crc32(name.encode()) & 0xFFFFF), (blocks, BLOCK_BYTES))
        whole[:, :2] = np.frombuffer(np.float16(0.006).tobytes(), np.uint8)
        return whole.reshape(rows, columns // BLOCK * BLOCK_BYTES)

    def floats(self, name, shape, scale):
        return (np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape) * scale).astype(np.float32)


def tensors(layers, vocabulary):
    """Name, shape and kind of every tensor: a number is the value of all, `~x` the size of random ones."""
    streams = STREAMS * HIDDEN
    yield "token_embd", (vocabulary, HIDDEN), "q4"
    yield "output", (vocabulary, HIDDEN), "q4"
    yield "output_hc_norm", (streams,), 1.0
    yield "output_hc_down", (LOW_RANK, streams), "q4"
    yield "output_hc_up", (streams, LOW_RANK), "q4"
    for layer in range(layers):
        full = (layer + 1) % 4 == 0
        for name, shape, kind in [*hyper(streams), *(attention() if full else delta()), *mlp()]:
            yield f"blk.{layer}.{name}", shape, kind


def hyper(streams):
    for part in ("attn", "ffn"):
        yield f"hc_{part}_norm", (streams,), 1.0
        yield f"hc_{part}_down", (LOW_RANK, streams), "q4"
        yield f"hc_{part}_up", (streams, LOW_RANK), "q4"
        yield f"hc_{part}_inject", (STREAMS, streams), "~0.005"


def attention():
    yield "attn_q", (HEADS * HEAD_DIM * 2, HIDDEN), "q4"
    yield "attn_k", (KEY_HEADS * HEAD_DIM, HIDDEN), "q4"
    yield "attn_v", (KEY_HEADS * HEAD_DIM, HIDDEN), "q4"
    yield "attn_output", (HIDDEN, HEADS * HEAD_DIM), "q4"
    yield "attn_q_norm", (HEAD_DIM,), 1.0
    yield "attn_k_norm", (HEAD_DIM,), 1.0
    yield "indexer.q_proj", (INDEX_HEADS * INDEX_DIM, HIDDEN), "q4"
    yield "indexer.k_proj", (INDEX_DIM, HIDDEN), "q4"
    yield "indexer.q_norm", (INDEX_DIM,), 1.0
    yield "indexer.k_norm", (INDEX_DIM,), 1.0


def delta():
    mixed = 2 * KEY_DIM + VALUE_DIM
    yield "attn_qkv", (mixed, HIDDEN), "q4"
    yield "attn_gate", (VALUE_DIM, HIDDEN), "q4"
    yield "ssm_conv1d", (mixed, CONV), "~0.3"
    yield "ssm_dt.bias", (VALUE_HEADS,), 0.5
    yield "ssm_a", (VALUE_HEADS,), -1.0
    yield "ssm_beta", (VALUE_HEADS, HIDDEN), "q4"
    yield "ssm_alpha", (VALUE_HEADS, HIDDEN), "q4"
    yield "ssm_norm", (128,), 1.0
    yield "ssm_out", (HIDDEN, VALUE_DIM), "q4"


def mlp():
    yield "ffn_gate_inp", (EXPERTS, HIDDEN), "~0.05"
    yield "ffn_gate_inp_shexp", (HIDDEN,), "~0.02"
    for name, rows, columns in (("gate", EXPERT, HIDDEN), ("up", EXPERT, HIDDEN), ("down", HIDDEN, EXPERT)):
        yield f"ffn_{name}_shexp", (rows, columns), "q4"
        yield f"ffn_{name}_exps", (EXPERTS, rows, columns), "q4"


def describe(writer, layers, vocabulary):
    writer.add_name("random")
    writer.add_block_count(layers)
    writer.add_context_length(262144)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(EXPERT)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(64)
    writer.add_array(f"{ARCH}.rope.dimension_sections", [11, 11, 10, 0])
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(CHOSEN)
    writer.add_expert_feed_forward_length(EXPERT)
    writer.add_expert_shared_feed_forward_length(EXPERT)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_state_size(128)
    writer.add_ssm_group_count(16)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_inner_size(VALUE_DIM)
    writer.add_uint32(f"{ARCH}.full_attention_interval", 4)
    writer.add_hyper_connection_count(STREAMS)
    writer.add_hyper_connection_low_rank(LOW_RANK)
    writer.add_indexer_head_count(INDEX_HEADS)
    writer.add_indexer_key_length(INDEX_DIM)
    writer.add_indexer_top_k(INDEX_TOP)
    writer.add_attention_compress_ratios([4 if (layer + 1) % 4 == 0 else 0 for layer in range(layers)])
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("none")
    writer.add_file_type(2)


def full_name(name):
    return name if name.endswith((".bias", "ssm_a")) else f"{name}.weight"


def pieces(weights, name, shape, kind):
    """The tensor's bytes, an expert at a time."""
    if kind != "q4":
        if isinstance(kind, str):
            yield weights.floats(name, shape, float(kind[1:]))
        else:
            yield np.full(shape, kind, np.float32)
    elif len(shape) == 2:
        yield weights.quantized(name, *shape)
    else:
        one = weights.quantized(name, *shape[1:])
        for expert in range(shape[0]):
            yield np.roll(one, expert * 3 % shape[1], axis=0)


def main():
    out, layers, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    writer = gguf.GGUFWriter(out, ARCH)
    describe(writer, layers, vocabulary)
    every = list(tensors(layers, vocabulary))
    for name, shape, kind in every:
        if kind == "q4":
            shape = (*shape[:-1], shape[-1] // BLOCK * BLOCK_BYTES)
            size, dtype, raw = int(np.prod(shape)), np.dtype(np.uint8), Q4_0
        else:
            size, dtype, raw = 4 * int(np.prod(shape)), np.dtype(np.float32), None
        writer.add_tensor_info(full_name(name), shape, dtype, size, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    file = writer.fout[0]
    writer.write_padding(file, file.tell())
    weights = Weights()
    for name, shape, kind in every:
        size = 0
        for piece in pieces(weights, name, shape, kind):
            size += file.write(memoryview(np.ascontiguousarray(piece)).cast("B"))
        writer.write_padding(file, size)
    file.close()


if __name__ == "__main__":
    main()
