#!/usr/bin/env bash
# slotstream and llama.cpp in turn, ROUNDS times, with random 4-bit weights of equal shapes. With
# RECEIPT, writes what it found to that file, too.
#
# `products`: products of the shapes of an expert, one thread, weights from memory, beside a plain read
# and candle. `models`: a prompt and decoding with 8 of the 48 layers of the published model (32,768
# tokens, no n-gram table, routers near uniform), first with all weights in memory, then in a memory
# cgroup of a third of the bytes of the experts.
#
# llama.cpp is the one in llama-cpp-python 0.3.36, the sources that PyPI has, built for this
# processor; decode.cpp and products.cpp drive it.
#
# Needs Linux, Rust, a C++ compiler (CC and CXX name others than cc and c++: with GCC 12 its products of
# several rows end with SIGILL where there is AMX, with clang 19 they do not), Python 3 with venv and, for `models`, 24 GB of memory, 40 GB of disk
# below SCRATCH (default: target/llama), and for the cgroup and for another read-ahead: root, as a
# rule. Without, those cases are left out. The read-ahead of SCRATCH's disk is changed while one case
# runs. What is below SCRATCH stays for the next time.
#
#     benches/llama/compare.sh products|models [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

part=${1:-}
[[ $part == products || $part == models ]] || fail "the first word is '$part', neither products nor models"
begin "${2:-3}" "${3:-}" "${4:-}" target/llama
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || fail "$cxx is missing"
mkdir -p "$scratch"

package=llama_cpp_python-0.3.36
sources=$scratch/$package/vendor/llama.cpp
python=$scratch/venv/bin/python
if [[ ! -e $scratch/build/bin/libllama.so ]]; then
    python3 -m venv "$scratch/venv"
    "$python" -m pip install --quiet cmake ninja numpy pyyaml requests tqdm scikit_build_core
    "$python" -m pip download --quiet --no-deps --no-build-isolation \
        --no-binary llama-cpp-python --dest "$scratch" llama-cpp-python==0.3.36
    tar -xzf "$scratch/$package.tar.gz" -C "$scratch"
    PATH=$scratch/venv/bin:$PATH cmake -G Ninja -S "$sources" -B "$scratch/build" \
        -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DLLAMA_CURL=OFF \
        -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF >"$scratch/cmake.log"
    PATH=$scratch/venv/bin:$PATH cmake --build "$scratch/build" --target llama
fi
driver() {
    "$cxx" -std=c++17 -O2 -Wall -Wextra -I "$sources/include" -I "$sources/ggml/include" \
        "benches/llama/$1.cpp" -L "$scratch/build/bin" -lllama -lggml -lggml-cpu -lggml-base \
        -Wl,-rpath,"$scratch/build/bin" -o "$scratch/$1"
}

if [[ $part == products ]]; then
    driver products
    kernels=$(program bench -p slotstream-benches --bench kernels --no-run)
    exec python3 benches/llama/products.py "$kernels" "$scratch" "$rounds" "$commit" "$receipt"
fi

driver decode
shape=(8 32768)
if [[ ! -e $scratch/gguf/model.gguf ]]; then
    mkdir -p "$scratch/gguf"
    PYTHONPATH=$sources/gguf-py "$python" benches/llama/gguf_model.py "$scratch/part.gguf" "${shape[@]}"
    mv "$scratch/part.gguf" "$scratch/gguf/model.gguf"
fi
examples generate repack synthesize
resident=$(program bench -p slotstream-benches --bench resident --no-run)
if [[ ! -e $scratch/model ]]; then
    "$programs/synthesize" --layers "${shape[0]}" --vocab "${shape[1]}" --no-ngram \
        --top-tenth 0.1 --out "$scratch/model"
fi
"$programs/repack" --model "$scratch/model" --out "$scratch/model.container" --resume

PYTHONPATH=$sources/gguf-py "$python" benches/llama/models.py \
    "$programs/generate" "$resident" "$scratch" "$rounds" "$commit" "$receipt"
