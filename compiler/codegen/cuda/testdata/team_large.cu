#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  Buffer b3;
  Buffer b4;
  i64 s0;
  i64 items;
  u8* workspace;
  i64 stride;
  ErrorSlot* error;
};
TEAM_KERNEL(athanor_kernel, 4, 0) {
  const i64 s0 = a.s0;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Buffer b3 = a.b3;
  const Buffer b4 = a.b4;
  const Buffer b5 = scratch<4>(a, 0, 8192);
  const i64 lane = lane_of<4>();
  for (i64 g = first<4>(a); g < a.items; g += teams<4>(a)) {
    for (i64 x0 = 0L, x0_end = 4096L; x0 < x0_end; x0 += 4) {
      u16 v0 = load<u16>(b0, ((4096L * g + x0) + lane));
      store<u16>(b5, (x0 + lane), v0);
    }
    barrier<4>();
    u16 v1 = 0x0u;
    u16 v2 = v1;
    i32 v3 = 0;
    i32 v4 = v3;
    i64 v5 = (i64)0x8000000000000000UL;
    i64 v6 = v5;
    for (i64 x1 = 0L, x1_end = 4096L; x1 < x1_end; x1 += 4) {
      u16 v7 = load<u16>(b5, (((-1L) * x1 + 4095L) + (lane * (-1L))));
      store<u16>(b1, ((4096L * g + x1) + lane), v7);
      u16 v8 = f32_to_f16((f16_to_f32(v2) + f16_to_f32(v7)));
      v2 = v8;
      i32 v9 = (f16_to_f32(v7) < f16_to_f32(v1));
      i32 v10 = (v4 | v9);
      v4 = v10;
      i64 v11 = saturate<i64>(f16_to_f32(v7));
      i64 v12 = (v6 > v11 ? v6 : v11);
      v6 = v12;
    }
    u16 v13 = reduce<4>(v2, [](u16 x, u16 y) -> u16 { return f32_to_f16((f16_to_f32(x) + f16_to_f32(y))); });
    if ((lane == 0)) store<u16>(b2, g, v13);
    i32 v14 = reduce<4>(v4, [](i32 x, i32 y) -> i32 { return (x | y); });
    if ((lane == 0)) store<u8>(b3, g, v14);
    i64 v15 = reduce<4>(v6, [](i64 x, i64 y) -> i64 { return (x > y ? x : y); });
    if ((lane == 0)) store<i64>(b4, g, v15);
    barrier<4>();
  }
}
