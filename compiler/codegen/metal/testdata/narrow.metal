#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
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
  for (i64 g = first; g < a.items; g += teams) {
    i64 v0 = load<i64>(b0, g);
    i64 v1 = (i64)(((i32)v0 >> 3));
    store<i64>(b1, (i64)(10 * (i32)g), v1);
    i64 v2 = (i64)(floor_index((i32)v0, 3));
    store<i64>(b1, (i64)(10 * (i32)g + 1), v2);
    i64 v3 = (i64)(floor_index((i32)v0, (((i32)s1 > 1 ? (i32)s1 : 1))));
    store<i64>(b1, (i64)(10 * (i32)g + 2), v3);
    i64 v4 = (i64)(((i32)s1 > (i32)v0 ? (i32)s1 : (i32)v0));
    store<i64>(b1, (i64)(10 * (i32)g + 3), v4);
    i64 v5 = (i64)(((i32)v0 < 5 ? (i32)v0 : 5));
    store<i64>(b1, (i64)(10 * (i32)g + 4), v5);
    i64 v6 = (i64)(floor_index(((i32)g - (i32)s1), 7));
    store<i64>(b1, (i64)(10 * (i32)g + 5), v6);
    i64 v7 = (i64)(((i32)g / 3));
    store<i64>(b1, (i64)(10 * (i32)g + 6), v7);
    i64 v8 = (i64)((i32)s1 * (i32)v0 + (-4));
    store<i64>(b1, (i64)(10 * (i32)g + 7), v8);
    i64 v9 = (-9223372036854775807L - 1);
    store<i64>(b1, (i64)(10 * (i32)g + 8), v9);
    i64 v10 = (i64)((((-1) * ((i32)g / 5) + (i32)g) / ((i32)s1 + 1)));
    store<i64>(b1, (i64)(10 * (i32)g + 9), v10);
  }
}
