#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  Buffer b3;
  Buffer b4;
  Buffer b5;
  i64 s0;
  i64 items;
  u8* workspace;
  i64 stride;
  ErrorSlot* error;
};
TEAM_KERNEL(athanor_kernel, 128, 64) {
  const i64 s0 = a.s0;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Buffer b3 = a.b3;
  const Buffer b4 = a.b4;
  const Buffer b5 = a.b5;
  const i64 lane = lane_of<128>();
  for (i64 g = first<128>(a); g < a.items; g += teams<128>(a)) {
    f32 v0 = load<f32>(b0, ((256L * g) + lane));
    f32 v1 = load<f32>(b0, ((256L * g + 128L) + lane));
    f32 v2 = (v0 + v1);
    store<f32>(b3, ((128L * g) + lane), v2);
    f32 v3 = reduce<128>(v2, [](f32 x, f32 y) -> f32 { return max_f32(x, y); });
    if ((lane == 0)) store<f32>(b4, g, v3);
    i32 v4 = ticket<128>(b5, (i64)(((i32)g >> 2)), 4);
    i32 v5 = (i32)0x2u;
    i32 v6 = (v5 < v4);
    if (v6) {
      f32 v7 = 0x0p+0f;
      f32 v8 = v7;
      f32 v9 = v8;
      f32 v10 = v7;
      for (i64 x0 = 0L, x0_end = 4L; x0 < x0_end; x0 += 1) {
        f32 v11 = load<f32>(b3, ((512L * (g >> 2) + 128L * x0 + 127L) + (lane * (-1L))));
        f32 v12 = (v9 + v11);
        v9 = v12;
        f32 v13 = load<f32>(b4, (4L * (g >> 2) + x0));
        f32 v14 = max_f32(v10, v13);
        v10 = v14;
      }
      store<f32>(b1, ((128L * (g >> 2)) + lane), v9);
      f32 v15 = reduce<128>(v9, [](f32 x, f32 y) -> f32 { return (x + y); });
      f32 v16 = (v15 + v10);
      if ((lane == 0)) store<f32>(b2, ((g >> 2)), v16);
    }
  }
}
