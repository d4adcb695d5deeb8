// Times llama.cpp's products with Q4_0 weights that do not fit the caches, on one thread, and prints
// them as one line of JSON: see compare.sh.
//
// By name of shape, rows and layout of the weights (`plain`: as in the file, `repacked`: for this
// processor): GB of weights a second with one row, GFLOP/s with several, by the processor's time.

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

// Bytes of weights of a case: many times what the caches hold.
static const size_t STREAMED = size_t(256) << 20;

static double processor_seconds() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

static void fail(const char * what) {
    std::fprintf(stderr, "products: %s\n", what);
    std::exit(1);
}

// The layout that llama.cpp makes for this processor where it has one.
static ggml_backend_buffer_type_t repacked_type() {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const auto extra = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t * types = extra ? extra(device) : nullptr;
    return types ? *types : nullptr;
}

// Weights of one shape, in as many matrices as it takes.
struct Weights {
    ggml_context * context;
    ggml_backend_buffer_t buffer;
    std::vector<ggml_tensor *> all;

    Weights(int64_t rows, int64_t columns, ggml_backend_buffer_type_t type) {
        const size_t one = ggml_row_size(GGML_TYPE_Q4_0, columns) * size_t(rows);
        const size_t count = (STREAMED + one - 1) / one;
        context = ggml_init({(count + 1) * ggml_tensor_overhead(), nullptr, true});
        for (size_t i = 0; i < count; ++i) {
            all.push_back(ggml_new_tensor_2d(context, GGML_TYPE_Q4_0, columns, rows));
        }
        buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
        if (buffer == nullptr) {
            fail("no memory for the weights");
        }
        std::vector<float> values(size_t(rows * columns));
        uint32_t state = 1;
        for (float & value : values) {
            state = state * 1664525u + 1013904223u;
            value = float(int32_t(state) >> 16) / 32768.0f;
        }
        std::vector<uint8_t> bytes(one);
        ggml_quantize_chunk(GGML_TYPE_Q4_0, values.data(), bytes.data(), 0, rows, columns, nullptr);
        for (ggml_tensor * tensor : all) {
            ggml_backend_tensor_set(tensor, bytes.data(), 0, one);
        }
    }

    ~Weights() {
        ggml_backend_buffer_free(buffer);
        ggml_free(context);
    }
};

// Processor seconds of the product of each of `count` matrices with `m` rows of `x`.
static double seconds(const Weights & weights, size_t count, int64_t m, ggml_backend_t backend) {
    const int64_t columns = weights.all[0]->ne[0];
    ggml_context * context = ggml_init(
        {(2 * count + 8) * ggml_tensor_overhead() + ggml_graph_overhead_custom(2 * count, false), nullptr, true});
    ggml_tensor * x = ggml_new_tensor_2d(context, GGML_TYPE_F32, columns, m);
    ggml_set_input(x);
    ggml_cgraph * graph = ggml_new_graph_custom(context, 2 * count, false);
    for (size_t i = 0; i < count; ++i) {
        ggml_build_forward_expand(graph, ggml_mul_mat(context, weights.all[i], x));
    }
    ggml_gallocr_t memory = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (!ggml_gallocr_alloc_graph(memory, graph)) {
        fail("no memory for the results");
    }
    std::vector<float> values(size_t(columns * m));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = float(int64_t(i * 37 % 101) - 50) / 50.0f;
    }
    ggml_backend_tensor_set(x, values.data(), 0, values.size() * sizeof(float));
    double last = 0;
    // The first run touches the memory of the results.
    for (int run = 0; run < 2; ++run) {
        const double before = processor_seconds();
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            fail("a product failed");
        }
        last = processor_seconds() - before;
    }
    ggml_gallocr_free(memory);
    ggml_free(context);
    return last;
}

int main() {
    ggml_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_WARN) {
            std::fputs(text, stderr);
        }
    }, nullptr);
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    const ggml_backend_buffer_type_t types[] = {ggml_backend_cpu_buffer_type(), repacked_type()};
    const char * names[] = {"plain", "repacked"};
    const int64_t shapes[][2] = {{640, 2560}, {2560, 640}};
    const int64_t row_counts[] = {1, 8, 16, 64, 512};
    const char * between = "{";
    for (const auto & shape : shapes) {
        for (int layout = 0; layout < 2; ++layout) {
            if (types[layout] == nullptr) {
                continue;
            }
            const Weights weights(shape[0], shape[1], types[layout]);
            const double bytes = double(ggml_nbytes(weights.all[0]));
            for (const int64_t m : row_counts) {
                // As many products as take a moment.
                const size_t count = m < 64 ? weights.all.size() : weights.all.size() * 8 / size_t(m) + 1;
                const double each = seconds(weights, count, m, backend) / double(count);
                const double speed = m == 1 ? bytes / each : 2.0 * double(shape[0] * shape[1] * m) / each;
                std::printf("%s\"%dx%d m=%d %s\": %.4f", between, int(shape[0]), int(shape[1]), int(m),
                    names[layout], speed / 1e9);
                between = ", ";
            }
        }
    }
    std::printf("}\n");
    ggml_backend_free(backend);
    return 0;
}
