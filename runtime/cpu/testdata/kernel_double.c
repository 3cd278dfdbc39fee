#include "runtime/cpu/testdata/kernel.h"

void athanor_kernel(void* const* b, const i64* s, i64 begin, i64 end, void* scratch, Error* error) {
  const unaligned_f32* in = b[0];
  unaligned_f32* out = b[1];
  for (i64 i = begin; i < end; ++i) out[i] = 2 * in[i];
}
