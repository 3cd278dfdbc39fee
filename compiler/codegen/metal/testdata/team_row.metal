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
struct Combine0 {
  static FN f32 of(f32 x, f32 y) { return max_f32(x, y); }
};
struct Combine1 {
  static FN f32 of(f32 x, f32 y) { return (x + y); }
};
TEAM_KERNEL(athanor_kernel) {
  SHARED u64 memory[416];
  const i64 lane = at_lane, part = i64(wave) * 832;
  const i64 first = i64(block) * waves + wave, teams = i64(blocks) * waves;
  const i64 s0 = a.s0;
  const i64 s1 = a.s1;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Shared b3 = {(threadgroup u8*)memory + part + 0, 800};
  for (i64 g = first; g < a.items; g += teams) {
    f32 v0 = as<f32>(0xff800000u);
    f32 v1 = as<f32>(0x0u);
    f32 v2 = v0;
    for (i64 x0 = 0L, x0_end = s1; x0 < x0_end; x0 += 32) {
      f32 v3 = (lane < ((-1L) * x0 + s1)) ? load<f32>(b0, ((g * s1 + x0) + lane)) : 0;
      i32 v4 = (lane < ((-1L) * x0 + s1));
      f32 v5 = (v4 ? v3 : v0);
      f32 v6 = max_f32(v5, v2);
      v2 = v6;
    }
    f32 v7 = reduce<Combine0, 32>(v2, lane, memory);
    f32 v8 = as<f32>(0xbf800000u);
    f32 v9 = (v7 * v8);
    f32 v10 = v9;
    f32 v11 = v1;
    f32 v12 = v11;
    for (i64 x1 = 0L, x1_end = s1; x1 < x1_end; x1 += 32) {
      f32 v13 = (lane < ((-1L) * x1 + s1)) ? load<f32>(b0, ((g * s1 + x1) + lane)) : 0;
      f32 v14 = (v13 + v10);
      f32 v15 = exp_f32(v14);
      if ((lane < ((-1L) * x1 + s1))) store<f32>(b3, (x1 + lane), v15);
      i32 v16 = (lane < ((-1L) * x1 + s1));
      f32 v17 = (v16 ? v15 : v11);
      f32 v18 = (v12 + v17);
      v12 = v18;
    }
    f32 v19 = reduce<Combine1, 32>(v12, lane, memory);
    i32 v20 = (v1 < v19);
    if ((lane == 0)) store<u8>(b2, g, v20);
    if (v20) {
      f32 v21 = v19;
      for (i64 x2 = 0L, x2_end = s1; x2 < x2_end; x2 += 32) {
        f32 v22 = (lane < ((-1L) * x2 + s1)) ? load<f32>(b3, (x2 + lane)) : 0;
        f32 v23 = (v22 / v21);
        if ((lane < ((-1L) * x2 + s1))) store<f32>(b1, ((g * s1 + x2) + lane), v23);
      }
    }
  }
}
