#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  Buffer b3;
  Buffer b4;
  i64 s0;
  i64 s1;
  i64 s2;
  i64 items;
  device u8* workspace;
  i64 stride;
  device ErrorSlot* error;
};
TEAM_KERNEL(athanor_kernel) {
  SHARED u64 memory[1];
  const i64 lane = at_lane, part = i64(wave) * 0;
  const i64 first = i64(block) * waves + wave, teams = i64(blocks) * waves;
  const i64 s0 = a.s0;
  const i64 s1 = a.s1;
  const i64 s2 = a.s2;
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Buffer b3 = a.b3;
  const Buffer b4 = a.b4;
  for (i64 g = first; g < a.items; g += teams) {
    if ((lane == 0)) prefetch<i32>(b1, (g * s1 + 64L));
    i64 v0 = load<i64>(b0, g);
    i32 v1 = check<32>(a.error, g, v0, s2, (lane == 0));
    i64 v2 = (i64)0x0UL;
    i64 v3 = (v1 ? v0 : v2);
    for (i64 x0 = 0L, x0_end = s1; x0 < x0_end; x0 += 32) {
      i32 v4 = (lane < ((-1L) * x0 + s1)) ? load<i32>(b1, ((g * s1 + x0) + lane)) : 0;
      i64 v5 = (i64)v4;
      i32 v6 = check<32>(a.error, g, v5, s2, ((lane < ((-1L) * x0 + s1)) & v1));
      u16 v7 = ((lane < ((-1L) * x0 + s1)) & v6) ? load<u16>(b2, (v5 + (s2 * v3))) : 0;
      if ((lane < ((-1L) * x0 + s1))) store<u16>(b3, ((g * s1 + x0) + lane), v7);
    }
    if (((lane == 0) & v1)) store<u8>(b4, g, v1);
  }
}
