#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  i64 s0;
  i64 s1;
  i64 items;
  device u8* workspace;
  i64 stride;
  device ErrorSlot* error;
};
KERNEL(athanor_kernel) {
  const i64 first = place, teams = places;
  const i64 s0 = a.s0;
  const i64 s1 = a.s1;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Buffer b3 = {a.workspace + first * a.stride + 0, 6};
  const Buffer b4 = {a.workspace + first * a.stride + 64, 68};
  for (i64 g = first; g < a.items; g += teams) {
    f32 v0 = as<f32>(0x0u);
    u16 v1 = 0x3f80u;
    store<u16>(b3, 2L, v1);
    f32 v2 = v0;
    f32 v3 = v0;
    for (i64 x0 = 0L, x0_end = s1; x0 < x0_end; x0 += 1) {
      f32 v4 = load<f32>(b1, x0);
      u16 v5 = load<u16>(b0, (2L * g * s1 + x0));
      f32 v6 = bf16_to_f32(v5);
      f32 v7 = fma_f32(v6, v4, v2);
      v2 = v7;
      u16 v8 = (((-2L) * g + s0 + (-1L)) > 0) ? load<u16>(b0, (2L * g * s1 + x0 + s1)) : 0;
      f32 v9 = bf16_to_f32(v8);
      f32 v10 = fma_f32(v9, v4, v3);
      v3 = v10;
    }
    store<f32>(b4, 0L, v2);
    store<f32>(b4, 16L, v3);
    #pragma unroll
    for (i64 x1 = 0L, x1_end = 2L; x1 < x1_end; x1 += 1) {
      f32 v11 = load<f32>(b4, (16L * x1));
      u16 v12 = load<u16>(b3, 2L);
      f32 v13 = bf16_to_f32(v12);
      f32 v14 = (v11 + v13);
      if ((((-2L) * g - x1 + s0) > 0)) store<f32>(b2, (2L * g + x1), v14);
    }
  }
}
