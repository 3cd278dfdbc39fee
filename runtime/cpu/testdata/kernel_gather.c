#include "runtime/cpu/testdata/kernel.h"

void athanor_kernel(void* const* b, const i64* s, i64 begin, i64 end, void* scratch, Error* error) {
  const unaligned_f32* in = b[0];
  const unaligned_i64* indices = b[1];
  unaligned_f32* out = b[2];
  for (i64 i = begin; i < end; ++i) {
    const i64 k = indices[i];
    float value = 0;
    if (0 <= k && k < s[0]) {
      value = in[i * s[0] + k];
    } else if (error->code == 0) {
      *error = (Error){1, k, s[0], i};
    }
    out[i] = value;
  }
}
