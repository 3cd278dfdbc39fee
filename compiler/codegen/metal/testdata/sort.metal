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
  const Buffer b3 = {a.workspace + first * a.stride + 0, 4000};
  const Buffer b4 = {a.workspace + first * a.stride + 4032, 4000};
  const Buffer b5 = {a.workspace + first * a.stride + 8064, 4000};
  const Buffer b6 = {a.workspace + first * a.stride + 12096, 4000};
  for (i64 g = first; g < a.items; g += teams) {
    for (i64 x0 = 0L, x0_end = s0; x0 < x0_end; x0 += 1) {
      u32 v0 = load<u32>(b0, (g * s0 + x0));
      store<u32>(b3, x0, v0);
      i64 v1 = x0;
      i32 v2 = (i32)v1;
      store<i32>(b4, x0, v2);
    }
    sort<u32, i32>(Row{b3, 0L}, Row{b4, 0L}, Row{b5, 0L}, Row{b6, 0L}, s0);
    for (i64 x1 = 0L, x1_end = s0; x1 < x1_end; x1 += 1) {
      u32 v3 = load<u32>(b3, x1);
      store<u32>(b1, (g * s0 + x1), v3);
      i32 v4 = load<i32>(b4, x1);
      store<i32>(b2, (g * s0 + x1), v4);
    }
  }
}
