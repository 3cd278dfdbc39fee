// The emulator as kernels see it, in place of the header of the same name that they are compiled
// with for a GPU: the same names, on the host, where each access to memory is checked. nvrtc.cc
// puts launch.h before it, and defines ATHANOR_ARCH.
#ifndef ATHANOR_DEVICE_H
#define ATHANOR_DEVICE_H

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long;
using u64 = unsigned long;
using f32 = float;
using f64 = double;

#define FN inline __attribute__((always_inline))
// Begins the kernel that reads its arguments from `a`: a thread's run, which a launch calls.
#define KERNEL(name)                                                                \
  static void name##_thread(const Arguments& a);                                    \
  extern "C" const unsigned long name##_argument_bytes = sizeof(Arguments);         \
  extern "C" void name(void** arguments, const athanor::emulator::Launch* launch) { \
    const Arguments& a = *static_cast<const Arguments*>(arguments[0]);              \
    athanor::emulator::Begin(a, launch);                                            \
    name##_thread(a);                                                               \
  }                                                                                 \
  static void name##_thread(const Arguments& a)

extern "C" const char athanor_arch[] = ATHANOR_ARCH;

namespace athanor::emulator {

static const Launch* launch;
static Range near;  // the range that was accessed last

[[gnu::noinline, gnu::cold]] static void Fail(Fault fault, const Access& access) {
  launch->fault(launch, fault, access);
  __builtin_unreachable();
}

// Sets `near`.
[[gnu::noinline]] static void Find(const Access& access) {
  long low = 0, high = launch->range_count;
  while (low < high) {  // the first range that ends behind the address
    const long middle = (low + high) / 2;
    if (launch->ranges[middle].end <= access.address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == launch->range_count || access.address < launch->ranges[low].begin ||
      launch->ranges[low].end - access.address < static_cast<u64>(access.bytes)) {
    Fail(Fault::kAddress, access);
  }
  near = launch->ranges[low];
}

// Returns where the host finds an address of the device.
FN void* Reach(const Access& access) {
  if (access.address < near.begin || access.address >= near.end ||
      near.end - access.address < static_cast<u64>(access.bytes)) {
    Find(access);
  }
  return reinterpret_cast<void*>(access.address & ~kDeviceBit);
}

template <typename T>
FN T* Element(const void* address, bool write) {
  const Access access = {reinterpret_cast<u64>(address), sizeof(T), write};
  if (access.address % sizeof(T) != 0) Fail(Fault::kMisaligned, access);
  return static_cast<T*>(Reach(access));
}

// A thread's scratch holds what no kernel wrote.
template <typename A>
FN void Begin(const A& a, const Launch* of) {
  launch = of;
  near = {};
  if (a.stride == 0 || of->thread >= a.items) return;
  const u64 scratch = reinterpret_cast<u64>(a.workspace) + of->thread * a.stride;
  __builtin_memset(Reach({scratch, a.stride, true}), kUnwritten, a.stride);
}

}  // namespace athanor::emulator

struct Buffer {
  u8* data;
  i64 bytes;
};

// Is a number on the device.
class Cell {
 public:
  void operator=(i64 value) { *athanor::emulator::Element<i64>(this, true) = value; }
  operator i64() const { return *athanor::emulator::Element<i64>(this, false); }

 private:
  i64 value_;
};
struct alignas(64) ErrorSlot {
  Cell code, index, extent, item;
  u32 lock;
};

template <typename A>
FN i64 first(const A&) {
  return athanor::emulator::launch->thread;
}
template <typename A>
FN i64 teams(const A&) {
  return athanor::emulator::launch->threads;
}
template <typename A>
FN Buffer scratch(const A& a, i64 offset, i64 bytes) {
  u8* const own = a.workspace + first(a) * a.stride;
  if (offset + bytes > a.stride) {
    athanor::emulator::Fail(
        athanor::emulator::Fault::kArgument,
        {reinterpret_cast<u64>(own) + offset, bytes, true, reinterpret_cast<u64>(own), a.stride});
  }
  return {own + offset, bytes};
}

template <typename T>
FN T* checked(const Buffer& b, i64 index, bool write) {
  const u8* const address = b.data + index * i64(sizeof(T));
  if (u64(index) >= u64(b.bytes) / sizeof(T)) {
    athanor::emulator::Fail(
        athanor::emulator::Fault::kArgument,
        {reinterpret_cast<u64>(address), sizeof(T), write, reinterpret_cast<u64>(b.data), b.bytes});
  }
  return athanor::emulator::Element<T>(address, write);
}
template <typename T>
FN T load(const Buffer& b, i64 index) {
  return *checked<T>(b, index, false);
}
template <typename T>
FN void store(const Buffer& b, i64 index, T value) {
  *checked<T>(b, index, true) = value;
}
template <typename T>
FN void prefetch(const Buffer&, i64) {}

// Threads run one after another, so a lock that is taken would stay so.
FN bool try_lock(u32* lock) {
  u32* const word = athanor::emulator::Element<u32>(lock, true);
  if (*word != 0) {
    athanor::emulator::Fail(athanor::emulator::Fault::kLocked,
                            {reinterpret_cast<u64>(lock), sizeof(*lock), true});
  }
  *word = 1;
  return true;
}
FN void unlock(u32* lock) { *athanor::emulator::Element<u32>(lock, true) = 0; }
template <typename Number>
FN i64 peek(const Number* from) {
  return *athanor::emulator::Element<i64>(from, false);
}
template <typename Number>
FN void publish(Number* to, i64 value) {
  *athanor::emulator::Element<i64>(to, true) = value;
}

// A GPU's conversions make every NaN this one.
constexpr u16 kNarrowNan = 0x7fff;
FN f32 f16_to_f32(u16 x) { return f32(__builtin_bit_cast(_Float16, x)); }
FN u16 f32_to_f16(f32 x) {
  return x != x ? kNarrowNan : __builtin_bit_cast(u16, static_cast<_Float16>(x));
}
FN u16 f32_to_bf16(f32 x) {
  const u32 bits = __builtin_bit_cast(u32, x);
  return x != x ? kNarrowNan : u16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Returns a * b + c, of factors whose product is exact, rounded to odd: rounding it to 16 bits
// gives what rounding once does. The error of the sum is exact (Knuth's two-sum).
FN f64 fma_odd(f64 a, f64 b, f64 c) {
  const f64 product = a * b, sum = product + c, part = sum - product;
  const f64 error = (product - (sum - part)) + (c - part);
  const u64 bits = __builtin_bit_cast(u64, sum);
  if (!(error < 0 || error > 0) || (bits & 1) != 0 || sum - sum != 0) return sum;
  return __builtin_bit_cast(f64, (error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
FN u16 fma_f16(u16 a, u16 b, u16 c) {
  const f64 sum = fma_odd(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c));
  return sum != sum ? kNarrowNan : __builtin_bit_cast(u16, static_cast<_Float16>(sum));
}
FN u16 fma_bf16(u16 a, u16 b, u16 c) {
  const auto wide = [](u16 x) { return f64(__builtin_bit_cast(f32, u32(x) << 16)); };
  const f64 sum = fma_odd(wide(a), wide(b), wide(c));
  // To f32 by rounding to odd as well: towards zero, then the last bit set if that was inexact.
  const f32 near = f32(sum);
  u32 bits = __builtin_bit_cast(u32, near);
  if (near != near || f64(near) == sum || near - near != 0) return f32_to_bf16(near);
  const f64 near_size = near < 0 ? -f64(near) : f64(near), size = sum < 0 ? -sum : sum;
  bits = (near_size > size ? bits - 1 : bits) | 1;
  return f32_to_bf16(__builtin_bit_cast(f32, bits));
}
FN f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
FN f64 fma_f64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }

FN f32 sqrt_f32(f32 x) { return __builtin_sqrtf(x); }
FN f64 sqrt_f64(f64 x) { return __builtin_sqrt(x); }
FN f32 round_f32(f32 x) { return __builtin_rintf(x); }
FN f64 round_f64(f64 x) { return __builtin_rint(x); }
FN f32 fmod_f32(f32 a, f32 b) { return __builtin_fmodf(a, b); }
FN f64 fmod_f64(f64 a, f64 b) { return __builtin_fmod(a, b); }
FN f32 pow_f32(f32 a, f32 b) { return f32(__builtin_pow(f64(a), f64(b))); }
FN f64 pow_f64(f64 a, f64 b) { return __builtin_pow(a, b); }

#define FUNCTION(name)                                        \
  FN f32 name##_f32(f32 x) { return __builtin_##name##f(x); } \
  FN f64 name##_f64(f64 x) { return __builtin_##name(x); }
FUNCTION(floor)
FUNCTION(exp)
FUNCTION(exp2)
FUNCTION(expm1)
FUNCTION(log)
FUNCTION(log2)
FUNCTION(log1p)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tan)
FUNCTION(asin)
FUNCTION(acos)
FUNCTION(atan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(tanh)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)
FUNCTION(erf)
#undef FUNCTION

#include "athanor/arithmetic.h"
#include "athanor/memory.h"

#endif
