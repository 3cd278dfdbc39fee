// One warp a block gives the registers that it finds to one matrix instruction.
extern "C" {

#define WARP_KERNEL(name, lefts, rights, instruction, T, constraint, as_word)               \
  __global__ void name(const unsigned* left, const unsigned* right, unsigned* sum) {        \
    const int warp = blockIdx.x * 32 + threadIdx.x;                                         \
    unsigned a[4] = {}, b[2] = {};                                                          \
    for (int i = 0; i < lefts; ++i) a[i] = left[warp * lefts + i];                          \
    for (int i = 0; i < rights; ++i) b[i] = right[threadIdx.x * rights + i];                \
    T d[4] = {};                                                                            \
    asm volatile("mma.sync.aligned." instruction                                            \
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                   \
                 : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]),        \
                   "+" constraint(d[3])                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));       \
    for (int i = 0; i < 4; ++i) sum[warp * 4 + i] = as_word(d[i]);                          \
  }

WARP_KERNEL(multiply_f16, 4, 2, "m16n8k16.row.col.f32.f16.f16.f32", float, "f", __float_as_uint)
WARP_KERNEL(multiply_bf16, 4, 2, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f",
            __float_as_uint)
WARP_KERNEL(multiply_i8, 4, 2, "m16n8k32.row.col.s32.s8.s8.s32", int, "r", unsigned)
WARP_KERNEL(multiply_tf32, 4, 2, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f",
            __float_as_uint)

#define LOAD_KERNEL(name, suffix)                                                          \
  __global__ void name(const unsigned* tile, unsigned* registers) {                        \
    __shared__ __align__(16) unsigned shared[32 * 4];                                      \
    for (int i = 0; i < 4; ++i) shared[threadIdx.x * 4 + i] = tile[threadIdx.x * 4 + i];   \
    __syncthreads();                                                                       \
    const unsigned row = unsigned(__cvta_generic_to_shared(shared + threadIdx.x * 4));     \
    unsigned d[4];                                                                         \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" suffix ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                          \
                 : "r"(row)                                                                \
                 : "memory");                                                              \
    for (int i = 0; i < 4; ++i) registers[threadIdx.x * 4 + i] = d[i];                     \
  }
LOAD_KERNEL(load_plain, "")
LOAD_KERNEL(load_trans, ".trans")

// A block's warp sums `steps` products, each of 16 along k, in one accumulator.
#define CHAIN_KERNEL(name, type)                                                              \
  __global__ void name(const unsigned* left, const unsigned* right, float* sum, int steps) {  \
    float d[4] = {};                                                                          \
    for (int step = 0; step < steps; ++step) {                                                \
      const unsigned* a = left + ((blockIdx.x * steps + step) * 32 + threadIdx.x) * 4;        \
      const unsigned* b = right + ((blockIdx.x * steps + step) * 32 + threadIdx.x) * 2;       \
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                     \
                   ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"               \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));       \
    }                                                                                         \
    for (int i = 0; i < 4; ++i) sum[(blockIdx.x * 32 + threadIdx.x) * 4 + i] = d[i];          \
  }
CHAIN_KERNEL(chain_f16, "f16")
CHAIN_KERNEL(chain_bf16, "bf16")
}
