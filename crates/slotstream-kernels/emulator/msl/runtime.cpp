// Runs the launches of a job: one fiber for each thread of a threadgroup, one threadgroup after the
// other. A simdgroup runs until all its lanes wait at a threadgroup barrier; the order of lanes,
// simdgroups and threadgroups is the job's. See job.rs for the format of a job.
#include "fibers.h"
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

// libgcc before 13 lacks the rounding of float to bf16 (ties to even; NaN stays NaN).
extern "C" __attribute__((weak)) __bf16 __truncsfbf2(float x) {
  unsigned bits = __builtin_bit_cast(unsigned, x);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  bits = nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1);
  return __builtin_bit_cast(__bf16, static_cast<unsigned short>(bits >> 16));
}

extern "C" void msl_switch(void** save, void* to);
#if defined(__x86_64__)
asm(".text\n.globl msl_switch\nmsl_switch:\n"
    "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp\nret\n");
enum { SAVED = 6 };
#elif defined(__aarch64__)
asm(".text\n.globl msl_switch\nmsl_switch:\n"
    "sub sp, sp, #160\n"
    "stp x30, x29, [sp]\nstp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\nstp x23, x24, [sp, #48]\n"
    "stp x25, x26, [sp, #64]\nstp x27, x28, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
    "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x30, x29, [sp]\nldp x19, x20, [sp, #16]\nldp x21, x22, [sp, #32]\nldp x23, x24, [sp, #48]\n"
    "ldp x25, x26, [sp, #64]\nldp x27, x28, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
    "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
#else
#error "no fibers for this processor"
#endif

namespace msl {
__thread Position here;
__thread Cell cells[2][1024];

enum class State : unsigned char { Ready, Simdgroup, Threadgroup, Done };
struct Fiber { void* stack; Position position; State state; unsigned site; };
static __thread Fiber fibers[1024];
static __thread void* scheduler;
static __thread const Call* current;
enum { STACK = 64 * 1024 };

[[noreturn]] static void fail(const char* what, unsigned a, unsigned b) {
  std::fprintf(stderr, "%s: %s (lines %u and %u of the source), threadgroup %u %u %u\n", current->name,
               what, a, b, here.group[0], here.group[1], here.group[2]);
  std::fflush(stderr);
  std::_Exit(3);
}
static void wait(State state, unsigned site) {
  Fiber& fiber = fibers[here.index];
  fiber.position.turn = here.turn;
  fiber.state = state;
  fiber.site = site;
  msl_switch(&fiber.stack, scheduler);
  here = fiber.position;
}
void threadgroup_wait(unsigned site) { wait(State::Threadgroup, site); }
void simdgroup_wait(unsigned site) { wait(State::Simdgroup, site); }
static void entry() {
  current->body(*current);
  fibers[here.index].state = State::Done;
  msl_switch(&fibers[here.index].stack, scheduler);
  __builtin_trap();
}
static void prepare(Fiber& fiber, unsigned char* top) {
  void** sp = reinterpret_cast<void**>(top - 64);
#if defined(__x86_64__)
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < SAVED; i++) { *--sp = nullptr; }
#else
  sp -= 20;
  std::memset(sp, 0, 160);
  sp[0] = reinterpret_cast<void*>(entry);
#endif
  fiber.stack = sp;
  fiber.state = State::Ready;
}

// The order in which `count` things run.
struct Orders {
  unsigned mode;
  std::mt19937_64 random;
  void operator()(std::vector<unsigned>& order, unsigned count) {
    order.resize(count);
    for (unsigned i = 0; i < count; i++) { order[i] = mode == 1 ? count - 1 - i : i; }
    if (mode == 2) { std::shuffle(order.begin(), order.end(), random); }
  }
};

// Runs simdgroup `sg` until its lanes wait for the threadgroup or are done.
static void run_simdgroup(unsigned sg, const std::vector<unsigned>& lanes) {
  Fiber* all = fibers + sg * 32;
  for (;;) {
    for (unsigned lane : lanes) {
      if (all[lane].state != State::Ready) { continue; }
      here = all[lane].position;
      msl_switch(&scheduler, all[lane].stack);
    }
    const Fiber& first = all[0];
    for (unsigned lane = 1; lane < 32; lane++) {
      if (all[lane].state != first.state) { fail("divergent simdgroup", first.site, all[lane].site); }
      if (first.state != State::Done && all[lane].site != first.site) {
        fail(first.state == State::Simdgroup ? "divergent simdgroup operation"
                                             : "divergent threadgroup barrier", first.site, all[lane].site);
      }
    }
    if (first.state != State::Simdgroup) { return; }
    for (unsigned lane = 0; lane < 32; lane++) { all[lane].state = State::Ready; }
  }
}

static void run_threadgroup(const Call& call, Orders& orders) {
  std::vector<unsigned> simdgroups, lanes;
  const unsigned count = call.threads / 32;
  for (;;) {
    orders(simdgroups, count);
    for (unsigned sg : simdgroups) {
      orders(lanes, 32);
      run_simdgroup(sg, lanes);
    }
    const Fiber& first = fibers[0];
    for (unsigned sg = 1; sg < count; sg++) {
      const Fiber& other = fibers[sg * 32];
      if (other.state != first.state) { fail("threadgroup barrier that some threads never reach", first.site, other.site); }
      if (first.state != State::Done && other.site != first.site) {
        fail("divergent threadgroup barrier", first.site, other.site);
      }
    }
    if (first.state == State::Done) { return; }
    for (unsigned i = 0; i < call.threads; i++) { fibers[i].state = State::Ready; }
  }
}

// Runs every `step`th of the threadgroups, from the `first` on.
static void run_groups(Call call, Orders& orders, const std::vector<unsigned>& groups, size_t first, size_t step) {
  static __thread unsigned char* stacks;
  if (!stacks) {
    void* at = mmap(nullptr, size_t(1024) * STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) { std::perror("mmap"); std::_Exit(4); }
    stacks = static_cast<unsigned char*>(at);
  }
  current = &call;
  const unsigned* grid = call.grid;
  for (size_t i = first; i < groups.size(); i += step) {
    const unsigned group = groups[i];
    // Exactly as long as the plan says, and full of NaN.
    unsigned char* memory = static_cast<unsigned char*>(std::malloc(call.threadgroup_memory ? call.threadgroup_memory : 1));
    std::memset(memory, 0xff, call.threadgroup_memory);
    call.memory = memory;
    for (unsigned i = 0; i < call.threads; i++) {
      fibers[i].position = Position{{group % grid[0], group / grid[0] % grid[1], group / grid[0] / grid[1]},
                                    i, i / 32, i % 32, call.threads / 32, 0};
      prepare(fibers[i], stacks + size_t(i + 1) * STACK);
    }
    run_threadgroup(call, orders);
    std::free(memory);
  }
}

#ifdef MSL_FAST
// Threads that take threadgroups in turn. Their order is none that could be stated.
struct Workers {
  std::mutex mutex;
  std::condition_variable change;
  unsigned long round = 0;
  size_t running = 0, count;
  const Call* call = nullptr;
  Orders* orders = nullptr;
  const std::vector<unsigned>* groups = nullptr;
  std::vector<std::thread> threads;

  explicit Workers(size_t all) : count(all) {
    for (size_t i = 1; i < count; i++) { threads.emplace_back([this, i] { serve(i); }); }
  }
  void serve(size_t i) {
    for (unsigned long seen = 0;;) {
      std::unique_lock<std::mutex> lock(mutex);
      change.wait(lock, [&] { return round != seen; });
      seen = round;
      lock.unlock();
      Orders own = *orders;
      run_groups(*call, own, *groups, i, count);
      lock.lock();
      if (--running == 0) { change.notify_all(); }
    }
  }
  void run(const Call& launch, Orders& of_job, const std::vector<unsigned>& all) {
    std::unique_lock<std::mutex> lock(mutex);
    call = &launch;
    orders = &of_job;
    groups = &all;
    running = count - 1;
    round++;
    change.notify_all();
    lock.unlock();
    Orders own = of_job;
    run_groups(launch, own, all, 0, count);
    lock.lock();
    change.wait(lock, [&] { return running == 0; });
  }
};
#endif

static void run(Call& call, Orders& orders) {
  std::vector<unsigned> groups;
  orders(groups, call.grid[0] * call.grid[1] * call.grid[2]);
#ifdef MSL_FAST
  static Workers* const workers = new Workers(std::max(1u, std::thread::hardware_concurrency()));
  if (groups.size() >= 4) { return workers->run(call, orders, groups); }
#endif
  run_groups(call, orders, groups, 0, 1);
}
}  // namespace msl

namespace {
struct Input {
  FILE* file;
  void bytes(void* to, size_t len) {
    if (len && std::fread(to, 1, len, file) != len) { std::fprintf(stderr, "the job is cut off\n"); std::_Exit(4); }
  }
  unsigned long number() { unsigned long n; bytes(&n, 8); return n; }
  std::string text() { std::string s(number(), ' '); bytes(s.data(), s.size()); return s; }
};
struct Buffer { unsigned char* at; size_t len; };
enum : size_t { SPARSE = size_t(1) << 26 };

// Exactly as long as stated, so that the sanitizer sees the first byte past its end; sparse when
// larger than memory.
Buffer allocate(size_t len) {
  if (len < SPARSE) { return {static_cast<unsigned char*>(std::malloc(len ? len : 1)), len}; }
  void* at = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) { std::perror("mmap"); std::_Exit(4); }
  return {static_cast<unsigned char*>(at), len};
}

void release(const Buffer& buffer) {
  if (buffer.len < SPARSE) { std::free(buffer.at); } else { munmap(buffer.at, buffer.len); }
}

void launch(Input& in, const std::vector<Buffer>& buffers, msl::Orders& orders) {
  const std::string name = in.text();
  msl::Call call{};
  call.name = name.c_str();
  std::vector<unsigned char*> binds(in.number());
  for (auto& bind : binds) { const size_t buffer = in.number(); bind = buffers.at(buffer).at + in.number(); }
  call.binds = binds.data();
  std::vector<unsigned char> constants(in.number());
  in.bytes(constants.data(), constants.size());
  call.constants = constants.data();
  for (auto& count : call.grid) { count = unsigned(in.number()); }
  call.threads = unsigned(in.number());
  call.threadgroup_memory = in.number();
  for (const msl::Kernel* const* library = msl::libraries; *library; library++) {
    for (const msl::Kernel* kernel = *library; kernel->name; kernel++) {
      if (name != kernel->name) { continue; }
      call.body = kernel->body;
      if (constants.size() != kernel->constants_len) {
        std::fprintf(stderr, "%s: %zu bytes of constants, %lu in MSL\n", name.c_str(), constants.size(), kernel->constants_len);
        std::_Exit(4);
      }
    }
  }
  if (!call.body) { std::fprintf(stderr, "no kernel is called %s\n", name.c_str()); std::_Exit(4); }
  msl::run(call, orders);
}

// One job: buffers, launches, results.
void run_job(Input& in) {
  msl::Orders orders{unsigned(in.number()), std::mt19937_64(in.number())};
  std::vector<Buffer> buffers(in.number());
  for (auto& buffer : buffers) {
    buffer = allocate(in.number());
    for (size_t pieces = in.number(); pieces; pieces--) {
      const size_t at = in.number(), len = in.number();
      in.bytes(buffer.at + at, len);
    }
  }
  for (size_t addresses = in.number(); addresses; addresses--) {
    unsigned char* entry = buffers.at(in.number()).at;
    entry += in.number();
    const unsigned char* target = buffers.at(in.number()).at;
    target += in.number();
    std::memcpy(entry, &target, 8);
  }
  for (size_t launches = in.number(); launches; launches--) { launch(in, buffers, orders); }
  for (size_t results = in.number(); results; results--) {
    const unsigned char* from = buffers.at(in.number()).at;
    from += in.number();
    const size_t len = in.number();
    std::fwrite(from, 1, len, stdout);
  }
  // Whoever reads the results sees that all launches ended.
  std::fputc('.', stdout);
  std::fflush(stdout);
  for (const Buffer& buffer : buffers) { release(buffer); }
}
}  // namespace

// Jobs come one after the other.
int main() {
  Input in{stdin};
  for (int next; (next = std::fgetc(stdin)) != EOF;) {
    std::ungetc(next, stdin);
    run_job(in);
  }
  return 0;
}
