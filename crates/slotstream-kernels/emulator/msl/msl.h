// The part of MSL 3.1 that kernels here may use, for clang: nothing else is declared, and no other
// header is found. With MSL_ADDRESS_SPACES the address spaces are types, for a syntax pass; without,
// they are ordinary memory and the kernels run on the fibers of runtime.cpp.
#pragma once
#include "fibers.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef __bf16 bfloat;

#define MSL_VECTORS(T) \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECTORS(float)
MSL_VECTORS(uint)
MSL_VECTORS(ulong)
#undef MSL_VECTORS

#ifdef MSL_ADDRESS_SPACES
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define INFINITY __builtin_inff()
#define METAL_FUNC inline __attribute__((always_inline))

namespace msl {
// Shows a value to the simdgroup; all lanes have done so when this returns.
template <class T> inline void show(T value, uint site) {
  static_assert(sizeof(T) <= 16, "an exchange cell has 16 bytes");
  here.turn ^= 1;
  __builtin_memcpy(cells[here.turn][here.index].bytes, &value, sizeof value);
  simdgroup_wait(site);
}
// What a lane showed last.
template <class T> inline T get(uint lane) {
  T value;
  __builtin_memcpy(&value, cells[here.turn][here.simdgroup * 32 + lane].bytes, sizeof value);
  return value;
}
template <class T, class F> inline T reduce(T value, F f, uint site) {
  show(value, site);
  T all = get<T>(0);
  for (uint lane = 1; lane < 32; lane++) { all = f(all, get<T>(lane)); }
  return all;
}
template <class T> inline T shuffle(T value, uint lane, uint site) {
  show(value, site);
  return get<T>(lane & 31);
}
// Where lanes meet although they exchange nothing, so that one that is elsewhere is seen.
inline void meet(uint site) {
#ifdef MSL_FAST
  (void)site;
#else
  simdgroup_wait(site);
#endif
}
}  // namespace msl

#define MSL_SITE uint site = __builtin_LINE()
namespace metal {
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline void threadgroup_barrier(mem_flags, MSL_SITE) { msl::threadgroup_wait(site); }
inline void simdgroup_barrier(mem_flags, MSL_SITE) { msl::simdgroup_wait(site); }

inline float fabs(float x) { return __builtin_fabsf(x); }
inline float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
// Of a number and a NaN both give the number.
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline uint max(uint a, uint b) { return a > b ? a : b; }
inline uint min(uint a, uint b) { return a < b ? a : b; }
inline uint popcount(uint x) { return uint(__builtin_popcount(x)); }
namespace precise {
inline float exp(float x) { return __builtin_expf(x); }
inline float log(float x) { return __builtin_logf(x); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
}  // namespace precise
template <class T, class U> inline T as_type(U from) {
  static_assert(sizeof(T) == sizeof(U), "as_type keeps the size");
  return __builtin_bit_cast(T, from);
}

template <class T> T simd_sum(T v, MSL_SITE) {
  return msl::reduce(v, [](T a, T b) { return T(a + b); }, site);
}
template <class T> T simd_max(T v, MSL_SITE) {
  return msl::reduce(v, [](T a, T b) { return metal::max(a, b); }, site);
}
template <class T> T simd_min(T v, MSL_SITE) {
  return msl::reduce(v, [](T a, T b) { return metal::min(a, b); }, site);
}
inline bool simd_any(bool v, MSL_SITE) {
  return msl::reduce<uint>(v, [](uint a, uint b) { return a | b; }, site) != 0;
}
template <class T> T simd_shuffle(T v, ushort lane, MSL_SITE) { return msl::shuffle(v, lane, site); }
template <class T> T simd_shuffle_xor(T v, ushort mask, MSL_SITE) {
  return msl::shuffle(v, msl::here.lane ^ mask, site);
}
template <class T> T simd_broadcast(T v, ushort lane, MSL_SITE) { return msl::shuffle(v, lane, site); }
template <class T> T simd_prefix_exclusive_sum(T v, MSL_SITE) {
  msl::show(v, site);
  T sum = 0;
  for (uint lane = 0; lane < msl::here.lane; lane++) { sum += msl::get<T>(lane); }
  return sum;
}

enum memory_order { memory_order_relaxed };
struct atomic_uint { uint value; };
template <class P> inline uint atomic_fetch_add_explicit(P* to, uint by, memory_order) {
  return __atomic_fetch_add(&to->value, by, __ATOMIC_RELAXED);
}
template <class P> inline uint atomic_load_explicit(P* from, memory_order) {
  return __atomic_load_n(&from->value, __ATOMIC_RELAXED);
}
template <class P> inline void atomic_store_explicit(P* to, uint value, memory_order) {
  __atomic_store_n(&to->value, value, __ATOMIC_RELAXED);
}

// Lane l keeps elements 2l and 2l + 1 in row-major order. Apple's layout is another one, so
// thread_elements() is not declared.
template <class T, int R, int C> struct simdgroup_matrix { T elements[2]; };
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, R, C>{{value, value}};
}
inline ulong msl_place(uint i, ulong row, ulong2 origin, bool transpose) {
  const uint at = msl::here.lane * 2 + i, r = transpose ? at % 8 : at / 8, c = transpose ? at / 8 : at % 8;
  return (origin.y + r) * row + origin.x + c;
}
template <class T, class P>
void simdgroup_load(simdgroup_matrix<T, 8, 8>& to, P* from, ulong row = 8, ulong2 origin = 0,
                    bool transpose = false, MSL_SITE) {
  msl::meet(site);
  for (uint i = 0; i < 2; i++) { to.elements[i] = from[msl_place(i, row, origin, transpose)]; }
}
template <class T, class P>
void simdgroup_store(simdgroup_matrix<T, 8, 8> from, P* to, ulong row = 8, ulong2 origin = 0,
                     bool transpose = false, MSL_SITE) {
  msl::meet(site);
  for (uint i = 0; i < 2; i++) { to[msl_place(i, row, origin, transpose)] = from.elements[i]; }
}
template <class T>
void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& to, simdgroup_matrix<T, 8, 8> a,
                                   simdgroup_matrix<T, 8, 8> b, simdgroup_matrix<T, 8, 8> c, MSL_SITE) {
  struct Both { T a[2], b[2]; };
  msl::show(Both{{a.elements[0], a.elements[1]}, {b.elements[0], b.elements[1]}}, site);
  for (uint i = 0; i < 2; i++) {
    const uint at = msl::here.lane * 2 + i, row = at / 8, column = at % 8;
    T sum = c.elements[i];
    for (uint k = 0; k < 8; k++) {
      const uint left = row * 8 + k, right = k * 8 + column;
      sum += msl::get<Both>(left / 2).a[left % 2] * msl::get<Both>(right / 2).b[right % 2];
    }
    to.elements[i] = sum;
  }
}
}  // namespace metal
#undef MSL_SITE

// C++ that MSL does not have.
#pragma GCC poison double static virtual goto throw try catch new delete dynamic_cast typeid asm
