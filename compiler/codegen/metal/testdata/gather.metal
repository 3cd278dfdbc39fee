#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  Buffer b3;
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
  const Buffer b3 = a.b3;
  for (i64 g = first; g < a.items; g += teams) {
    prefetch<u16>(b2, (8L * g + 64L));
    i64 v0 = load<i64>(b0, g);
    i32 v1 = load<u8>(b1, g) != 0;
    i32 v2 = check(a.error, g, v0, s1, v1);
    i32 v3 = (v1 & v2);
    u16 v4 = v3 ? load<u16>(b2, v0) : 0;
    store<u16>(b3, g, v4);
  }
}
