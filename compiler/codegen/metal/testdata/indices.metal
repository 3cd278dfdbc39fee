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
    i64 v1 = ((v0 >> 3));
    store<i64>(b1, (10L * g), v1);
    i64 v2 = (floor_index(v0, 3L));
    store<i64>(b1, (10L * g + 1L), v2);
    i64 v3 = (floor_index(v0, ((s1 > 1L ? s1 : 1L))));
    store<i64>(b1, (10L * g + 2L), v3);
    i64 v4 = ((s1 > v0 ? s1 : v0));
    store<i64>(b1, (10L * g + 3L), v4);
    i64 v5 = ((v0 < 5L ? v0 : 5L));
    store<i64>(b1, (10L * g + 4L), v5);
    i64 v6 = (floor_index((g - s1), 7L));
    store<i64>(b1, (10L * g + 5L), v6);
    i64 v7 = ((g / 3L));
    store<i64>(b1, (10L * g + 6L), v7);
    i64 v8 = (s1 * v0 + (-4L));
    store<i64>(b1, (10L * g + 7L), v8);
    i64 v9 = (-9223372036854775807L - 1);
    store<i64>(b1, (10L * g + 8L), v9);
    i64 v10 = ((((-1L) * (g / 5L) + g) / (s1 + 1L)));
    store<i64>(b1, (10L * g + 9L), v10);
  }
}
