// Small kernels of several questions: graphs, memory, clocks, faults.
using u64 = unsigned long long;

__device__ u64 Nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void empty() {}

// Reads eight sizes as a kernel of a recording finds them: in a block of parameters, or as arguments.
// A store that never happens keeps the reads.
extern "C" __global__ void read_sizes(const long long* sizes, unsigned* out) {
  long long product = 1;
  for (int i = 0; i < 8; ++i) product *= sizes[i];
  if (product == threadIdx.x + 1) *out = 1;
}
extern "C" __global__ void take_sizes(long long a, long long b, long long c, long long d,
                                      long long e, long long f, long long g, long long h,
                                      unsigned* out) {
  if (a * b * c * d * e * f * g * h == threadIdx.x + 1) *out = 1;
}

// Adds to the word that the kernel before it wrote: wrong if two ran at once, or, where their
// factors differ, out of order.
extern "C" __global__ void append(unsigned* value, unsigned factor) {
  if (threadIdx.x == 0) *value = *value * factor + 1;
}

extern "C" __global__ void count_nonzero(const uint4* from, u64 n, u64* count) {
  u64 found = 0;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += u64(gridDim.x) * blockDim.x) {
    const uint4 v = from[i];
    found += (v.x != 0) + (v.y != 0) + (v.z != 0) + (v.w != 0);
  }
  if (found != 0) atomicAdd(count, found);
}

// Runs for about `cycles`, and says how many it took and in how many nanoseconds.
extern "C" __global__ void spin(u64 cycles, u64* took) {
  const u64 begin_ns = Nanoseconds();
  const long long begin = clock64();
  long long now = begin;
  while (now - begin < cycles) now = clock64();
  if (took != nullptr && threadIdx.x == 0 && blockIdx.x == 0) {
    took[0] = now - begin;
    took[1] = Nanoseconds() - begin_ns;
  }
}

// Hangs, as far as its launcher can see.
extern "C" __global__ void hang(u64 nanoseconds) {
  const u64 begin = Nanoseconds();
  while (Nanoseconds() - begin < nanoseconds) {
  }
}

extern "C" __global__ void write_word(unsigned* to, unsigned value) { *to = value; }
extern "C" __global__ void trap() { asm volatile("trap;"); }
