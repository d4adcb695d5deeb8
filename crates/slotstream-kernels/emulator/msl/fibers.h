// What the shim, the launchers and the runtime share.
#pragma once

namespace msl {
// Where a thread is. `index` counts within its threadgroup, whose threads all lie in x.
// `turn` says which of its two cells a thread has shown last.
struct Position { unsigned group[3], index, simdgroup, lane, simdgroups, turn; };
// Not thread_local, whose every use asks whether there is something to initialise.
extern __thread Position here;
// Two for each thread: what it shows to its simdgroup. Operations take turns, so that one wait for each is
// enough: whoever is ahead by one writes the cell that nobody reads any more.
struct Cell { alignas(16) unsigned char bytes[16]; };
extern __thread Cell cells[2][1024];
// A site is the line of a call: all lanes, or threads, must wait at the same one.
void threadgroup_wait(unsigned site);
void simdgroup_wait(unsigned site);

// One launch.
struct Call {
  const char* name;
  void (*body)(const Call&);
  unsigned char* const* binds;
  const void* constants;
  unsigned char* memory;
  unsigned grid[3], threads;
  unsigned long threadgroup_memory;
};
struct Kernel { const char* name; void (*body)(const Call&); unsigned long constants_len; };
// One table for each library; both kinds of table end with a null.
extern const Kernel* const libraries[];
}  // namespace msl
