// Decodes random tokens with llama.cpp and prints what it cost as one line of JSON: see compare.sh.
//
//     decode MODEL THREADS PROMPT TOKENS LOADING
//
// LOADING: `mmap` maps the file and computes from it as it is; `random` also tells the kernel that
// the mapping is read at random; `read` reads all into memory; `repacked` reads it and lets
// llama.cpp repack weights for this processor.

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

static double seconds(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// Bytes that this process made the disk deliver.
static uint64_t disk_bytes() {
    std::ifstream io("/proc/self/io");
    std::string name;
    uint64_t value = 0;
    while (io >> name >> value) {
        if (name == "read_bytes:") {
            return value;
        }
    }
    return 0;
}

static long major_faults() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt;
}

// Tells the kernel of every mapping of the model; how many there are.
static int advise_random(const std::string & model) {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    int found = 0;
    while (std::getline(maps, line)) {
        unsigned long low = 0, high = 0;
        if (line.find(model) != std::string::npos && std::sscanf(line.c_str(), "%lx-%lx", &low, &high) == 2) {
            found += madvise((void *) low, high - low, MADV_RANDOM) == 0;
        }
    }
    return found;
}

static void fail(const char * what) {
    std::fprintf(stderr, "decode: %s\n", what);
    std::exit(1);
}

static void step(llama_context * context, std::vector<llama_token> tokens) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), int32_t(tokens.size()))) != 0) {
        fail("llama_decode failed");
    }
    llama_synchronize(context);
}

int main(int count, char ** arguments) {
    if (count != 6) {
        fail("MODEL THREADS PROMPT TOKENS LOADING");
    }
    const std::string path = arguments[1], loading = arguments[5];
    const int threads = std::atoi(arguments[2]), prompt = std::atoi(arguments[3]), tokens = std::atoi(arguments[4]);
    const bool mapped = loading == "mmap" || loading == "random";
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) {
            std::fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();

    const double loaded = seconds(CLOCK_MONOTONIC);
    llama_model_params model_settings = llama_model_default_params();
    model_settings.load_mode = mapped ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    model_settings.use_extra_bufts = loading == "repacked";
    model_settings.progress_callback = [](float, void *) { return true; };
    llama_model * model = llama_model_load_from_file(path.c_str(), model_settings);
    if (model == nullptr) {
        fail("the model does not load");
    }
    if (loading == "random" && advise_random(path) == 0) {
        fail("no mapping of the model takes MADV_RANDOM");
    }
    llama_context_params settings = llama_context_default_params();
    settings.n_ctx = 1024;
    settings.n_batch = settings.n_ubatch = 512;
    settings.n_threads = settings.n_threads_batch = threads;
    llama_context * context = llama_init_from_model(model, settings);
    if (context == nullptr) {
        fail("no context");
    }
    const double load = seconds(CLOCK_MONOTONIC) - loaded;

    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    uint64_t state = 1;
    const auto draw = [&] {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return llama_token((state >> 33) % uint64_t(vocabulary));
    };
    std::vector<llama_token> first(static_cast<size_t>(prompt));
    for (auto & token : first) {
        token = draw();
    }
    const double before = seconds(CLOCK_MONOTONIC);
    step(context, first);
    const double prefilled = seconds(CLOCK_MONOTONIC);
    const double processor = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const uint64_t bytes = disk_bytes();
    const long faults = major_faults();
    for (int token = 0; token < tokens; ++token) {
        step(context, {draw()});
    }
    const double decoded = seconds(CLOCK_MONOTONIC);
    std::printf(
        "{\"decode_tok_s\": %.6f, \"prefill_tok_s\": %.6f, \"cpu_s_per_token\": %.6f, \"bytes_per_token\": %.0f, "
        "\"major_faults_per_token\": %.1f, \"load_s\": %.3f}\n",
        tokens / (decoded - prefilled), prompt / (prefilled - before),
        (seconds(CLOCK_PROCESS_CPUTIME_ID) - processor) / tokens, double(disk_bytes() - bytes) / tokens,
        double(major_faults() - faults) / tokens, load);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
