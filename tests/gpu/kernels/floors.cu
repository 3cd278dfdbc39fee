// Reads, writes, copies and multiplies as fast as a device can. Data is noise: zeros may run faster.
using u64 = unsigned long long;

// Counts the cycles and nanoseconds of a kernel whose blocks all run at once, as block 0 sees them.
struct Clock {
  long long cycles = clock64();
  u64 nanoseconds = Now();

  static __device__ u64 Now() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
    return now;
  }
  __device__ void Store(u64* took) const {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    const u64 end = Now();  // first: no store moves behind it, and with it no work
    took[0] = clock64() - cycles;
    took[1] = end - nanoseconds;
  }
};

__device__ unsigned Mix(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}
__device__ u64 First() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ u64 Stride() { return u64(gridDim.x) * blockDim.x; }
__device__ uint4 Xor(uint4 a, uint4 b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

extern "C" __global__ void fill_noise(unsigned* to, u64 n) {
  for (u64 i = First(); i < n; i += Stride()) to[i] = Mix(unsigned(i) + 1);
}

// Keeps four reads of 16 bytes in flight. A store that never happens keeps the sum.
extern "C" __global__ void read_all(const uint4* from, u64 n, unsigned* out) {
  uint4 sum = {};
  u64 i = First();
  for (; i + 3 * Stride() < n; i += 4 * Stride()) {
    const uint4 a = from[i], b = from[i + Stride()];
    const uint4 c = from[i + 2 * Stride()], d = from[i + 3 * Stride()];
    sum = Xor(sum, Xor(Xor(a, b), Xor(c, d)));
  }
  for (; i < n; i += Stride()) sum = Xor(sum, from[i]);
  if ((sum.x | sum.y | sum.z | sum.w) == 0) *out = 1;
}

__device__ uint4 LoadPastL1(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// Reads `n` elements round and round, `loads` by each thread, four in flight, past the first-level
// caches, which together hold small sizes. REQUIRES: loads a multiple of 4
extern "C" __global__ void read_around(const uint4* from, u64 n, int loads, unsigned* out) {
  const u64 step = Stride() % n;
  u64 at = First() % n;
  uint4 sum = {};
  for (int load = 0; load < loads; load += 4) {
    uint4 v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = LoadPastL1(from + at);
      at += step;
      at = at < n ? at : at - n;
    }
    sum = Xor(sum, Xor(Xor(v[0], v[1]), Xor(v[2], v[3])));
  }
  if ((sum.x | sum.y | sum.z | sum.w) == 0) *out = 1;
}

extern "C" __global__ void write_all(uint4* to, u64 n, unsigned seed) {
  const uint4 value = make_uint4(seed, seed ^ 0x55555555u, ~seed, seed + threadIdx.x);
  for (u64 i = First(); i < n; i += Stride()) to[i] = value;
}

extern "C" __global__ void copy_all(const uint4* from, uint4* to, u64 n) {
  u64 i = First();
  for (; i + 3 * Stride() < n; i += 4 * Stride()) {
    const uint4 a = from[i], b = from[i + Stride()];
    const uint4 c = from[i + 2 * Stride()], d = from[i + 3 * Stride()];
    to[i] = a;
    to[i + Stride()] = b;
    to[i + 2 * Stride()] = c;
    to[i + 3 * Stride()] = d;
  }
  for (; i < n; i += Stride()) to[i] = from[i];
}

// Adds to sums independent of each other, so that only the rate limits; 2 * 8 * 16 operations a
// step.
extern "C" __global__ void fma_f32(float* out, u64* took, int steps, float scale, float add) {
  const Clock clock;
  float sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = float(threadIdx.x + i);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] = fmaf(sum[i], scale, add);
    }
  }
  float all = 0;
  for (int i = 0; i < 8; ++i) all += sum[i];
  if (all == -1.0f) out[0] = all;
  clock.Store(took);
}

// Makes two 16-bit floats of magnitude 0.5 to 1 and either sign, of random mantissas.
__device__ unsigned NoisePair(unsigned seed, unsigned exponent, unsigned mantissa) {
  const unsigned noise = Mix(seed);
  return (noise & (0x80008000u | mantissa | mantissa << 16)) | exponent | exponent << 16;
}

#define MULTIPLY(type)                                                                           \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                           \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                      \
               : "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])              \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[i][0]),       \
                 "r"(right[i][1]))

// Makes eight products a step and warp, each of 2 * 16 * 8 * 16 operations.
#define MMA_KERNEL(name, type, exponent, mantissa)                                   \
  extern "C" __global__ void name(float* out, u64* took, int steps) {                \
    const Clock clock;                                                               \
    unsigned left[4], right[8][2];                                                   \
    float sum[8][4] = {};                                                            \
    const unsigned seed = unsigned(First()) * 64;                                    \
    for (int i = 0; i < 4; ++i) left[i] = NoisePair(seed + i, exponent, mantissa);   \
    for (int i = 0; i < 16; ++i)                                                     \
      right[i / 2][i % 2] = NoisePair(seed + 16 + i, exponent, mantissa);            \
    for (int step = 0; step < steps; ++step) {                                       \
      _Pragma("unroll") for (int i = 0; i < 8; ++i) MULTIPLY(type);                  \
    }                                                                                \
    float all = 0;                                                                   \
    for (int i = 0; i < 32; ++i) all += sum[i / 4][i % 4];                           \
    if (all == -1.2345f) out[0] = all;                                               \
    clock.Store(took);                                                               \
  }
MMA_KERNEL(mma_f16, "f16", 0x3800u, 0x03ffu)
MMA_KERNEL(mma_bf16, "bf16", 0x3f00u, 0x007fu)
