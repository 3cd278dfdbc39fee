// The calling convention of runtime/device/kernel_abi.h in C, as kernels spell it.
typedef long long i64;
typedef struct {
  i64 code, index, extent, item;
} Error;
typedef float unaligned_f32 __attribute__((aligned(1)));
typedef i64 unaligned_i64 __attribute__((aligned(1)));

void athanor_kernel(void* const* b, const i64* s, i64 begin, i64 end, void* scratch, Error* error);
