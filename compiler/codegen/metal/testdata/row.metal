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
  const Buffer b3 = {a.workspace + first * a.stride + 0, 200};
  for (i64 g = first; g < a.items; g += teams) {
    f32 v0 = as<f32>(0xff800000u);
    f32 v1 = as<f32>(0x0u);
    f32 v2 = v0;
    for (i64 x0 = 0L, x0_end = s1; x0 < x0_end; x0 += 1) {
      f32 v3 = load<f32>(b0, (g * s1 + x0));
      f32 v4 = max_f32(v3, v2);
      v2 = v4;
    }
    f32 v5 = v1;
    for (i64 x1 = 0L, x1_end = s1; x1 < x1_end; x1 += 1) {
      f32 v6 = load<f32>(b0, (g * s1 + x1));
      f32 v7 = as<f32>(0xbf800000u);
      f32 v8 = (v2 * v7);
      f32 v9 = (v6 + v8);
      f32 v10 = exp_f32(v9);
      store<f32>(b3, x1, v10);
      f32 v11 = (v5 + v10);
      v5 = v11;
    }
    i32 v12 = (v1 < v5);
    store<u8>(b2, g, v12);
    if (v12) {
      for (i64 x2 = 0L, x2_end = s1; x2 < x2_end; x2 += 1) {
        f32 v13 = load<f32>(b3, x2);
        f32 v14 = (v13 / v5);
        store<f32>(b1, (g * s1 + x2), v14);
      }
    }
  }
}
