// The emulator as kernels see it, in place of the header of the same name that they are compiled
// with for a GPU: the same names, on the host, where each access to memory is checked. nvrtc.cc
// puts launch.h before it, and defines ATHANOR_ARCH; and ATHANOR_COUNTS where
// ATHANOR_EMULATOR_COUNTS is set, so that teams of one tell of their accesses.
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
#define CONSTANT constexpr
// Begins the kernel that reads its arguments from `a`, in the device's memory: a thread's run,
// which a launch calls.
#define KERNEL(name) TEAM_KERNEL(name, 1, 0)
// Begins a kernel of teams of so many threads, which have so many bytes of shared memory. A block
// holds whole teams and has at most 128 threads.
#define TEAM_KERNEL(name, threads_of_team, bytes_of_team)                           \
  static_assert(athanor::emulator::IsTeam(threads_of_team),                         \
                "a team is 1, 2, 4, 8, 16, 32 or 128 threads");                     \
  static_assert((bytes_of_team) <= athanor::emulator::MostShared(threads_of_team),  \
                "the teams of a block have 48 KiB of shared memory");               \
  static void name##_thread(const Arguments& a);                                    \
  extern "C" const unsigned long name##_argument_bytes = sizeof(unsigned long);     \
  extern "C" const int name##_team = threads_of_team;                               \
  extern "C" const long name##_shared_bytes = bytes_of_team;                        \
  extern "C" void name(void** arguments, const athanor::emulator::Launch* launch) { \
    name##_thread(athanor::emulator::Begin<threads_of_team, Arguments>(             \
        *static_cast<const unsigned long*>(arguments[0]), launch));                 \
  }                                                                                 \
  static void name##_thread(const Arguments& a)

extern "C" const char athanor_arch[] = ATHANOR_ARCH;

template <typename T, typename From>
FN T as(From x) {
  return __builtin_bit_cast(T, x);
}

namespace athanor::emulator {

static const Launch* launch;
static Range near;      // the range that was accessed last
static bool watched;    // accesses are told. Never set where teams of one tell nothing
static int locks;       // that the thread holds which runs
static int team_locks;  // that the team's threads hold

constexpr bool IsTeam(int threads) {
  return threads == kMostThreadsOfBlock ||
         (threads > 0 && threads <= kWave && (threads & (threads - 1)) == 0);
}
constexpr long MostShared(int threads) {
  return kMostSharedBytesOfBlock / (kMostThreadsOfBlock / threads);
}

// Accesses are described where they fail: on the way they stay in registers.
[[gnu::noinline, gnu::cold]] static void Fail(Fault fault, u64 address, i64 bytes, bool write,
                                              u64 argument = 0, i64 argument_bytes = 0) {
  launch->fault(launch, fault, {address, bytes, write, argument, argument_bytes});
  __builtin_unreachable();
}

// Sets `near`.
[[gnu::noinline]] static void Find(u64 address, i64 bytes, bool write) {
  long low = 0, high = launch->range_count;
  while (low < high) {  // the first range that ends behind the address
    const long middle = (low + high) / 2;
    if (launch->ranges[middle].end <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == launch->range_count || address < launch->ranges[low].begin ||
      launch->ranges[low].end - address < static_cast<u64>(bytes)) {
    Fail(Fault::kAddress, address, bytes, write);
  }
  near = launch->ranges[low];
}

// Returns where the host finds an address of the device.
FN void* Reach(u64 address, i64 bytes, bool write) {
  const u64 within = address - near.begin, near_bytes = near.end - near.begin;
  if (within >= near_bytes || near_bytes - within < static_cast<u64>(bytes)) {
    Find(address, bytes, write);
  }
  return reinterpret_cast<void*>(address & ~kDeviceBit);
}

template <typename T>
FN T* Element(u64 address, bool write) {
  if (address % sizeof(T) != 0) Fail(Fault::kMisaligned, address, sizeof(T), write);
  return static_cast<T*>(Reach(address, sizeof(T), write));
}
template <typename T>
FN T* Element(const void* address, bool write) {
  return Element<T>(reinterpret_cast<u64>(address), write);
}

// Tells of an access to what other threads of the team may access.
FN void Touch(const Access& access) {
  if (watched && locks == 0) launch->touch(launch, access);
}

// Is where threads of a team may change besides where they meet, so that records are written by
// several at a time.
FN void Step() {
  if (!watched || launch->step == nullptr) return;
  const int own = locks;
  launch->step(launch);
  locks = own;
}

// Returns a thread's arguments. A team's scratch holds what no kernel wrote.
template <int T, typename A>
FN const A& Begin(u64 address, const Launch* of) {
  launch = of;
  near = {};
#ifdef ATHANOR_COUNTS
  watched = of->touch != nullptr;
#else
  watched = T > 1;
#endif
  locks = 0;
  if (of->first_of_team) team_locks = 0;
  if (address % alignof(A) != 0) Fail(Fault::kMisaligned, address, sizeof(A), false);
  const A& a = *static_cast<const A*>(Reach(address, sizeof(A), false));
  const long team = of->thread / T;
  if (!of->first_of_team || a.stride == 0 || team >= a.items) return a;
  const u64 scratch = reinterpret_cast<u64>(a.workspace) + team * a.stride;
  __builtin_memset(Reach(scratch, a.stride, true), kUnwritten, a.stride);
  if (T > 1) of->workspace = {scratch, scratch + a.stride};
  return a;
}

FN void CheckTeam(int threads) {
  if (launch->team != threads) Fail(Fault::kTeam, 0, threads, false);
}

// Fails unless so many bytes lie in the team's shared memory, at a multiple of 16.
FN void CheckShared(u64 address, i64 bytes, bool write) {
  const Range& own = launch->shared;
  if (address < own.begin || own.end < address + bytes) {
    Fail(Fault::kShared, address, bytes, write);
  }
  if (address % 16 != 0) Fail(Fault::kMisaligned, address, 16, write);
}

// Returns a part of what belongs to the team.
FN u8* Part(u64 whole, i64 whole_bytes, i64 offset, i64 bytes) {
  if (offset < 0 || bytes < 0 || offset + bytes > whole_bytes) {
    Fail(Fault::kArgument, whole + offset, bytes, true, whole, whole_bytes);
  }
  return reinterpret_cast<u8*>(whole + offset);
}

// Is where in the text a function is called, as its last argument.
struct Site {
  const char* file;
  int line, column;
};
#define ATHANOR_SITE \
  athanor::emulator::Site { __builtin_FILE(), __builtin_LINE(), __builtin_COLUMN() }

template <int T, typename Value>
FN Value Meet(Meeting::Kind kind, Value value, i64 step, Site site) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "threads exchange 4 or 8 bytes");
  if (locks != 0) Fail(Fault::kHolds, 0, 0, false);
  u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(value));
  bits = launch->meet(launch, {kind, T, int(step), site.file, site.line, site.column}, bits);
  locks = 0;  // others may hold some
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace athanor::emulator

struct Buffer {
  u8* data;
  i64 bytes;
};

// Is a number on the device.
class Cell {
 public:
  void operator=(i64 value) { *Told(true) = value; }
  operator i64() const { return *Told(false); }

 private:
  i64* Told(bool write) const {
    athanor::emulator::Step();
    i64* const element = athanor::emulator::Element<i64>(this, write);
    athanor::emulator::Touch({reinterpret_cast<u64>(this), sizeof(i64), write});
    return element;
  }
  i64 value_;
};
struct alignas(64) ErrorSlot {
  Cell code, index, extent, item;
  u32 lock;
};
using Errors = ErrorSlot*;

template <int T = 1, typename A>
FN i64 first(const A&) {
  athanor::emulator::CheckTeam(T);
  return athanor::emulator::launch->thread / T;
}
template <int T = 1, typename A>
FN i64 teams(const A&) {
  athanor::emulator::CheckTeam(T);
  return athanor::emulator::launch->threads / T;
}
template <int T>
FN i64 lane_of() {
  athanor::emulator::CheckTeam(T);
  return athanor::emulator::launch->thread % T;
}
template <int T = 1, typename A>
FN Buffer scratch(const A& a, i64 offset, i64 bytes) {
  const u64 own = reinterpret_cast<u64>(a.workspace) + first<T>(a) * a.stride;
  return {athanor::emulator::Part(own, a.stride, offset, bytes), bytes};
}
template <int T>
FN Buffer shared(i64 offset, i64 bytes) {
  athanor::emulator::CheckTeam(T);
  const athanor::emulator::Range& own = athanor::emulator::launch->shared;
  return {athanor::emulator::Part(own.begin, own.end - own.begin, offset, bytes), bytes};
}

template <int T>
FN void barrier(athanor::emulator::Site site = ATHANOR_SITE) {
  athanor::emulator::Meet<T>(athanor::emulator::Meeting::kBarrier, 0, 0, site);
}
template <int T, typename Value>
FN Value swap(Value x, i64 step, athanor::emulator::Site site = ATHANOR_SITE) {
  return athanor::emulator::Meet<T>(athanor::emulator::Meeting::kSwap, x, step, site);
}
template <int T, typename Value>
FN Value from_first(Value x, athanor::emulator::Site site = ATHANOR_SITE) {
  return athanor::emulator::Meet<T>(athanor::emulator::Meeting::kFromFirst, x, 0, site);
}
template <int T>
FN i32 ticket(const Buffer& counters, i64 index, i32 teams,
              athanor::emulator::Site site = ATHANOR_SITE) {
  namespace emulator = athanor::emulator;
  static_assert(T == emulator::kMostThreadsOfBlock, "a block draws tickets");
  const u64 argument = reinterpret_cast<u64>(counters.data);
  const emulator::Access counter = {argument + index * i64(sizeof(u32)), sizeof(u32), true,
                                    argument, counters.bytes};
  if (u64(index) >= u64(counters.bytes) / sizeof(u32)) {
    emulator::Fail(emulator::Fault::kArgument, counter.address, sizeof(u32), true, argument,
                   counters.bytes);
  }
  emulator::Element<u32>(counter.address, true);
  emulator::CheckTeam(T);
  emulator::launch->draw(emulator::launch, counter);
  return i32(emulator::Meet<T>(emulator::Meeting::kTicket, counter.address, teams, site));
}

template <typename T>
FN T* checked(const Buffer& b, i64 index, bool write) {
  const u64 argument = reinterpret_cast<u64>(b.data), address = argument + index * i64(sizeof(T));
  if (u64(index) >= u64(b.bytes) / sizeof(T)) {
    athanor::emulator::Fail(athanor::emulator::Fault::kArgument, address, sizeof(T), write,
                            argument, b.bytes);
  }
  T* const element = athanor::emulator::Element<T>(address, write);
  athanor::emulator::Touch({address, sizeof(T), write, argument, b.bytes});
  return element;
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

// What a thread of a wave has of a matrix instruction's operands and sums.
struct Left {
  u32 x[4];
};
struct Right {
  u32 x[2];
};
template <typename T>
struct Sums {
  T x[4];
};

namespace athanor::emulator {

// Returns the thread's elements of a matrix of shared memory, whose element (i, j) is at index + i
// * row_stride + j * column_stride. `at`: where the piece of 16 bytes lies, in bytes from the first
// one, that the thread loads and exchanges with others.
template <typename T, typename Operand>
FN Operand Load(const Buffer& b, i64 index, i64 row_stride, i64 column_stride, MatrixSide side,
                i64 at, Site site) {
  CheckTeam(kMostThreadsOfBlock);
  const u64 begin = reinterpret_cast<u64>(b.data) + index * i64(sizeof(T));
  if (Meet<kMostThreadsOfBlock>(Meeting::kFromFirst, begin, 0, site) != begin) {
    Fail(Fault::kWave, begin, 0, false);
  }
  T elements[sizeof(Operand) / sizeof(T)];
  for (u64 slot = 0; slot < sizeof(Operand) / sizeof(T); ++slot) {
    int row = 0, column = 0;
    launch->element(launch, side, sizeof(T), slot, &row, &column);
    const i64 element = index + row * row_stride + column * column_stride;
    const u64 argument = reinterpret_cast<u64>(b.data),
              address = argument + element * i64(sizeof(T));
    if (u64(element) >= u64(b.bytes) / sizeof(T)) {
      Fail(Fault::kArgument, address, sizeof(T), false, argument, b.bytes);
    }
    elements[slot] = *Element<T>(address, false);
    launch->order(launch, {address, sizeof(T), false, argument, b.bytes});
  }
  CheckShared(begin + at, 16, false);
  // Right operands are two matrices of eight rows, left ones four.
  constexpr i64 kRows = sizeof(Operand) / sizeof(u32) * 8;
  if (launch->thread % kWave < kRows) launch->count(launch, {begin + at, 16, false});
  Operand operand;
  __builtin_memcpy(&operand, elements, sizeof(operand));
  return operand;
}

template <typename T>
FN Sums<T> Multiply(Factors factors, const Left& a, const Right& b, Sums<T> c, Site site) {
  Product product;
  __builtin_memcpy(product.left, a.x, sizeof(a.x));
  __builtin_memcpy(product.right, b.x, sizeof(b.x));
  __builtin_memcpy(product.sums, c.x, sizeof(c.x));
  Meet<kMostThreadsOfBlock>(Meeting::kMultiply, reinterpret_cast<u64>(&product), i64(factors),
                            site);
  __builtin_memcpy(c.x, product.sums, sizeof(c.x));
  return c;
}

}  // namespace athanor::emulator

template <typename T>
FN Left load_left(const Buffer& b, i64 index, i64 stride,
                  athanor::emulator::Site site = ATHANOR_SITE) {
  const i64 thread = athanor::emulator::launch->thread;
  return athanor::emulator::Load<T, Left>(
      b, index, stride, 1, athanor::emulator::MatrixSide::kLeft,
      thread % 16 * stride * i64(sizeof(T)) + thread / 16 % 2 * 16, site);
}
template <typename T>
FN Left load_left_transposed(const Buffer& b, i64 index, i64 stride,
                             athanor::emulator::Site site = ATHANOR_SITE) {
  static_assert(sizeof(T) == 2, "loads transpose elements of 2 bytes");
  const i64 thread = athanor::emulator::launch->thread, row = thread % 8 + thread / 16 % 2 * 8;
  return athanor::emulator::Load<T, Left>(b, index, 1, stride, athanor::emulator::MatrixSide::kLeft,
                                          row * stride * i64(sizeof(T)) + thread / 8 % 2 * 16,
                                          site);
}
template <typename T>
FN Right load_right(const Buffer& b, i64 index, i64 stride,
                    athanor::emulator::Site site = ATHANOR_SITE) {
  static_assert(sizeof(T) == 2, "loads transpose elements of 2 bytes");
  const i64 thread = athanor::emulator::launch->thread;
  return athanor::emulator::Load<T, Right>(b, index, stride, 1,
                                           athanor::emulator::MatrixSide::kRight,
                                           thread % 16 * stride * i64(sizeof(T)), site);
}
template <typename T>
FN Right load_right_transposed(const Buffer& b, i64 index, i64 stride,
                               athanor::emulator::Site site = ATHANOR_SITE) {
  const i64 thread = athanor::emulator::launch->thread;
  return athanor::emulator::Load<T, Right>(
      b, index, 1, stride, athanor::emulator::MatrixSide::kRight,
      thread % 8 * stride * i64(sizeof(T)) + thread / 8 % 2 * 16, site);
}

#define MULTIPLY(operands, T, factors)                                                         \
  FN Sums<T> multiply_##operands(const Left& a, const Right& b, const Sums<T>& c,              \
                                 athanor::emulator::Site site = ATHANOR_SITE) {                \
    return athanor::emulator::Multiply<T>(athanor::emulator::Factors::factors, a, b, c, site); \
  }
MULTIPLY(f16, f32, kF16)
MULTIPLY(bf16, f32, kBF16)
MULTIPLY(i8, i32, kI8)
MULTIPLY(u8, i32, kU8)
#undef MULTIPLY

// Copies land at the wait for their group, and no cell may be touched before.
template <typename T, i32 N>
FN void copy(const Buffer& to, i64 there, const Buffer& from, i64 here, i32 active) {
  namespace emulator = athanor::emulator;
  static_assert(sizeof(T) * N == 16, "a copy is of 16 bytes");
  emulator::CheckTeam(emulator::kMostThreadsOfBlock);
  const u64 target = reinterpret_cast<u64>(to.data) + there * i64(sizeof(T));
  const u64 source = reinterpret_cast<u64>(from.data) + (active ? here * i64(sizeof(T)) : 0);
  if (source % 16 != 0) {
    for (i32 i = 0; i < N; ++i) store<T>(to, there + i, active ? load<T>(from, here + i) : T(0));
    return;
  }
  const u64 elements = u64(to.bytes) / sizeof(T), given = u64(from.bytes) / sizeof(T);
  if (u64(there) >= elements || elements - there < N) {
    emulator::Fail(emulator::Fault::kArgument, target, 16, true, reinterpret_cast<u64>(to.data),
                   to.bytes);
  }
  if (active && (u64(here) >= given || given - here < N)) {
    emulator::Fail(emulator::Fault::kArgument, source, 16, false, reinterpret_cast<u64>(from.data),
                   from.bytes);
  }
  emulator::CheckShared(target, 16, true);
  const void* host = nullptr;
  if (active) {
    host = emulator::Reach(source, 16, false);
    const u64 argument = reinterpret_cast<u64>(from.data);
    for (u64 at = source; at < source + 16; at += 8) {
      emulator::launch->order(emulator::launch, {at, 8, false, argument, from.bytes});
    }
    emulator::launch->count(emulator::launch, {source, 16, false, argument, from.bytes});
  }
  emulator::Reach(target, 16, true);
  emulator::launch->copy(emulator::launch,
                         {target, 16, true, reinterpret_cast<u64>(to.data), to.bytes}, host);
}
FN void commit_copies() {
  athanor::emulator::CheckTeam(athanor::emulator::kMostThreadsOfBlock);
  athanor::emulator::launch->commit(athanor::emulator::launch);
}
template <i32 Groups>
FN void wait_copies() {
  athanor::emulator::CheckTeam(athanor::emulator::kMostThreadsOfBlock);
  athanor::emulator::launch->wait(athanor::emulator::launch, Groups);
}

// A lock that no thread of the team holds would stay taken: teams run one after another.
FN bool try_lock(u32* lock) {
  athanor::emulator::Step();
  u32* const word = athanor::emulator::Element<u32>(lock, true);
  if (*word != 0) {
    if (athanor::emulator::team_locks != 0) return false;
    athanor::emulator::Fail(athanor::emulator::Fault::kLocked, reinterpret_cast<u64>(lock),
                            sizeof(*lock), true);
  }
  *word = 1;
  ++athanor::emulator::locks;
  ++athanor::emulator::team_locks;
  return true;
}
FN void unlock(u32* lock) {
  athanor::emulator::Step();
  *athanor::emulator::Element<u32>(lock, true) = 0;
  --athanor::emulator::locks;
  --athanor::emulator::team_locks;
}
template <typename Number>
FN i64 peek(const Number* from) {
  athanor::emulator::Step();
  return *athanor::emulator::Element<i64>(from, false);
}
template <typename Number>
FN void publish(Number* to, i64 value) {
  athanor::emulator::Step();
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
#include "athanor/team.h"

#endif
