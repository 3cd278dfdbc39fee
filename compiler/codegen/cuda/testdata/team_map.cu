#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  Buffer b3;
  Buffer b4;
  i64 s0;
  i64 s1;
  i64 items;
  u8* workspace;
  i64 stride;
  ErrorSlot* error;
};
TEAM_KERNEL(athanor_kernel, 8, 0) {
  const i64 s0 = a.s0;
  const i64 s1 = a.s1;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Buffer b3 = a.b3;
  const Buffer b4 = a.b4;
  const i64 lane = lane_of<8>();
  for (i64 g = first<8>(a); g < a.items; g += teams<8>(a)) {
    f32 v0 = 0x1p+0f;
    f32 v1 = load<f32>(b4, g);
    f32 v2 = v1;
    for (i64 x0 = (32L * g), x0_end = (((32L * g + 32L) < s0 ? (32L * g + 32L) : s0)); x0 < x0_end; x0 += 8) {
      f32 v3 = (lane < ((-1L) * x0 + s0)) ? load<f32>(b0, (x0 + lane)) : 0;
      f32 v4 = (lane < ((-1L) * x0 + s0)) ? load<f32>(b1, ((x0 * s1) + (lane * s1))) : 0;
      i64 v5 = (lane < ((-1L) * x0 + s0)) ? load<i64>(b3, (x0 + lane)) : 0;
      i64 v6 = (floor_index((v5), 3L));
      f32 v7 = (lane < ((-1L) * x0 + s0)) ? load<f32>(b0, ((0L > (((s0 + (-1L)) < (v6) ? (s0 + (-1L)) : (v6))) ? 0L : (((s0 + (-1L)) < (v6) ? (s0 + (-1L)) : (v6)))))) : 0;
      f32 v8 = fma_f32(v3, v4, v7);
      f32 v9 = max_f32(v8, v2);
      i32 v10 = (v9 < v0);
      if ((lane < ((-1L) * x0 + s0))) store<u8>(b2, (x0 + lane), v10);
    }
  }
}
