#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  i64 s0;
  i64 items;
  device u8* workspace;
  i64 stride;
  device ErrorSlot* error;
};
KERNEL(athanor_kernel) {
  const i64 first = place, teams = places;
  const i64 s0 = a.s0;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  for (i64 g = first; g < a.items; g += teams) {
    f32 v0 = as<f32>(0x0u);
    for (i64 x0 = (4L * g), x0_end = (((4L * g + 4L) < s0 ? (4L * g + 4L) : s0)); x0 < x0_end; x0 += 1) {
      f32 v1 = load<f32>(b0, x0);
      f32 v2 = (v0 > v1 ? v0 : v1);
      f32 v3 = exp_f32(v2);
      i32 v4 = (v0 < v1);
      f32 v5 = (v4 ? v3 : v2);
      store<f32>(b1, x0, v5);
    }
  }
}
