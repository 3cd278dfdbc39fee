// Copies one tile of 32 x 32 f32 by the copy engine, whose descriptor is the caller's.
struct alignas(128) Map {
  unsigned long long opaque[16];
};

constexpr int kSide = 32;

__device__ void CopyTile(const Map* map, float* out, int x, int y) {
  __shared__ __align__(128) float tile[kSide * kSide];
  __shared__ __align__(8) unsigned long long arrived;
  const unsigned barrier = unsigned(__cvta_generic_to_shared(&arrived));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(int(sizeof(tile)))
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(unsigned(__cvta_generic_to_shared(tile))),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
  }
  // A tile that never comes must not hang the device: the output then keeps its poison.
  unsigned done = 0;
  for (int tries = 0; tries < 1000 && done == 0; ++tries) {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  }
  if (done == 0) return;
  for (int i = threadIdx.x; i < kSide * kSide; i += blockDim.x) out[i] = tile[i];
}

extern "C" __global__ void by_argument(const __grid_constant__ Map map, float* out, int x, int y) {
  CopyTile(&map, out, x, y);
}

extern "C" __global__ void by_pointer(const Map* map, float* out, int x, int y) {
  CopyTile(map, out, x, y);
}

// Begins with the fence that the instruction set asks for where a descriptor's bytes were written
// through another path.
extern "C" __global__ void by_pointer_fenced(const Map* map, float* out, int x, int y) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
  CopyTile(map, out, x, y);
}
