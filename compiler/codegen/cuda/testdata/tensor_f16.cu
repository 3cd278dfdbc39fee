#include "athanor/device.h"
struct Arguments {
  Buffer b0;
  Buffer b1;
  Buffer b2;
  i64 items;
  u8* workspace;
  i64 stride;
  ErrorSlot* error;
};
TEAM_KERNEL(athanor_kernel, 128, 13504) {
  const Buffer b0 = a.b0;
  const Buffer b1 = a.b1;
  const Buffer b2 = a.b2;
  const Buffer b3 = shared<128>(64, 4608);
  const Buffer b4 = shared<128>(4672, 4608);
  const Buffer b5 = shared<128>(9280, 4224);
  const i64 lane = lane_of<128>();
  for (i64 g = first<128>(a); g < a.items; g += teams<128>(a)) {
    i64 v0 = (i64)(((i32)g >> 1));
    i64 v1 = (i64)((-2) * ((i32)g >> 1) + (i32)g);
    f32 v2 = 0x0p+0f;
    Sums<f32> v3 = Sums<f32>{{v2, v2, v2, v2}};
    Sums<f32> v4 = v3;
    Sums<f32> v5 = v3;
    Sums<f32> v6 = v3;
    Sums<f32> v7 = v3;
    Sums<f32> v8 = v3;
    Sums<f32> v9 = v3;
    Sums<f32> v10 = v3;
    Sums<f32> v11 = v3;
    for (i64 x0 = 0L, x0_end = 64L; x0 < x0_end; x0 += 32) {
      barrier<128>();
      for (i64 x1 = 0L, x1_end = 2L; x1 < x1_end; x1 += 1) {
        i64 v12 = (((lane) >> 3) * (-64L) + lane * 8L + (64L * v1));
        i64 v13 = 72L;
        i64 v14 = v13;
        i32 v15 = (v12 < v14);
        copy<u16, 8>(b3, (((lane) >> 3) * 8L + lane * 8L + (1152L * x1)), b1, (((lane) >> 3) * 8L + lane * 8L + (72L * x0 + 1152L * x1 + 64L * v1)), v15);
      }
      for (i64 x2 = 0L, x2_end = 2L; x2 < x2_end; x2 += 1) {
        i64 v16 = (((lane) >> 3) * (-64L) + lane * 8L + (64L * v0));
        i64 v17 = 136L;
        i64 v18 = v17;
        i32 v19 = (v16 < v18);
        copy<u16, 8>(b4, (((lane) >> 3) * 8L + lane * 8L + (1152L * x2)), b2, (((lane) >> 3) * 72L + lane * 8L + (136L * x0 + 2176L * x2 + 64L * v0)), v19);
      }
      commit_copies();
      wait_copies<0>();
      barrier<128>();
      #pragma unroll
      for (i64 x3 = 0L, x3_end = 2L; x3 < x3_end; x3 += 1) {
        Right v20 = load_right<u16>(b4, (((lane) >> 5) * 32L + ((lane) >> 6) * (-64L) + (1152L * x3)), 72L);
        Right v21 = load_right<u16>(b4, (((lane) >> 5) * 32L + ((lane) >> 6) * (-64L) + (1152L * x3 + 8L)), 72L);
        Right v22 = load_right<u16>(b4, (((lane) >> 5) * 32L + ((lane) >> 6) * (-64L) + (1152L * x3 + 16L)), 72L);
        Right v23 = load_right<u16>(b4, (((lane) >> 5) * 32L + ((lane) >> 6) * (-64L) + (1152L * x3 + 24L)), 72L);
        Left v24 = load_left_transposed<u16>(b3, (((lane) >> 6) * 16L + (1152L * x3)), 72L);
        Sums<f32> v25 = multiply_f16(v24, v20, v4);
        v4 = v25;
        Sums<f32> v26 = multiply_f16(v24, v21, v5);
        v5 = v26;
        Sums<f32> v27 = multiply_f16(v24, v22, v6);
        v6 = v27;
        Sums<f32> v28 = multiply_f16(v24, v23, v7);
        v7 = v28;
        Left v29 = load_left_transposed<u16>(b3, (((lane) >> 6) * 16L + (1152L * x3 + 32L)), 72L);
        Sums<f32> v30 = multiply_f16(v29, v20, v8);
        v8 = v30;
        Sums<f32> v31 = multiply_f16(v29, v21, v9);
        v9 = v31;
        Sums<f32> v32 = multiply_f16(v29, v22, v10);
        v10 = v32;
        Sums<f32> v33 = multiply_f16(v29, v23, v11);
        v11 = v33;
      }
    }
    f32 v34 = v4.x[0];
    store<f32>(b5, (0L + lane), v34);
    f32 v35 = v5.x[0];
    store<f32>(b5, (132L + lane), v35);
    f32 v36 = v6.x[0];
    store<f32>(b5, (264L + lane), v36);
    f32 v37 = v7.x[0];
    store<f32>(b5, (396L + lane), v37);
    f32 v38 = v4.x[1];
    store<f32>(b5, (528L + lane), v38);
    f32 v39 = v5.x[1];
    store<f32>(b5, (660L + lane), v39);
    f32 v40 = v6.x[1];
    store<f32>(b5, (792L + lane), v40);
    f32 v41 = v7.x[1];
    store<f32>(b5, (924L + lane), v41);
    barrier<128>();
    for (i64 x4 = 0L, x4_end = 2L; x4 < x4_end; x4 += 1) {
      for (i64 x5 = (i64)(16 * (i32)x4 + 64 * (i32)v1), x5_end = (i64)(((16 * (i32)x4 + 64 * (i32)v1 + 8) < 72 ? (16 * (i32)x4 + 64 * (i32)v1 + 8) : 72)); x5 < x5_end; x5 += 1) {
        f32 v42 = (lane < ((((-64L) * v0 + 136L) < 64L ? ((-64L) * v0 + 136L) : 64L))) ? load<f32>(b5, (((lane) >> 1) * (-1055L) + ((lane) >> 5) * (-496L) + ((lane) >> 3) * 128L + lane * 528L + (4L * x5 + (-256L) * v1))) : 0;
        u16 v43 = f32_to_f16(v42);
        if ((lane < (i64)((((-64) * (i32)v0 + 136) < 64 ? ((-64) * (i32)v0 + 136) : 64)))) store<u16>(b0, ((i64)(136 * (i32)x5 + 64 * (i32)v0) + lane), v43);
      }
    }
    f32 v44 = v4.x[2];
    barrier<128>();
    store<f32>(b5, (0L + lane), v44);
    f32 v45 = v5.x[2];
    store<f32>(b5, (132L + lane), v45);
    f32 v46 = v6.x[2];
    store<f32>(b5, (264L + lane), v46);
    f32 v47 = v7.x[2];
    store<f32>(b5, (396L + lane), v47);
    f32 v48 = v4.x[3];
    store<f32>(b5, (528L + lane), v48);
    f32 v49 = v5.x[3];
    store<f32>(b5, (660L + lane), v49);
    f32 v50 = v6.x[3];
    store<f32>(b5, (792L + lane), v50);
    f32 v51 = v7.x[3];
    store<f32>(b5, (924L + lane), v51);
    barrier<128>();
    for (i64 x6 = 0L, x6_end = 2L; x6 < x6_end; x6 += 1) {
      for (i64 x7 = (i64)(16 * (i32)x6 + 64 * (i32)v1 + 8), x7_end = (i64)(((16 * (i32)x6 + 64 * (i32)v1 + 16) < 72 ? (16 * (i32)x6 + 64 * (i32)v1 + 16) : 72)); x7 < x7_end; x7 += 1) {
        f32 v52 = (lane < ((((-64L) * v0 + 136L) < 64L ? ((-64L) * v0 + 136L) : 64L))) ? load<f32>(b5, (((lane) >> 1) * (-1055L) + ((lane) >> 5) * (-496L) + ((lane) >> 3) * 128L + lane * 528L + (4L * x7 + (-256L) * v1 + (-32L)))) : 0;
        u16 v53 = f32_to_f16(v52);
        if ((lane < (i64)((((-64) * (i32)v0 + 136) < 64 ? ((-64) * (i32)v0 + 136) : 64)))) store<u16>(b0, ((i64)(136 * (i32)x7 + 64 * (i32)v0) + lane), v53);
      }
    }
    f32 v54 = v8.x[0];
    barrier<128>();
    store<f32>(b5, (0L + lane), v54);
    f32 v55 = v9.x[0];
    store<f32>(b5, (132L + lane), v55);
    f32 v56 = v10.x[0];
    store<f32>(b5, (264L + lane), v56);
    f32 v57 = v11.x[0];
    store<f32>(b5, (396L + lane), v57);
    f32 v58 = v8.x[1];
    store<f32>(b5, (528L + lane), v58);
    f32 v59 = v9.x[1];
    store<f32>(b5, (660L + lane), v59);
    f32 v60 = v10.x[1];
    store<f32>(b5, (792L + lane), v60);
    f32 v61 = v11.x[1];
    store<f32>(b5, (924L + lane), v61);
    barrier<128>();
    for (i64 x8 = 0L, x8_end = 2L; x8 < x8_end; x8 += 1) {
      for (i64 x9 = (i64)(16 * (i32)x8 + 64 * (i32)v1 + 32), x9_end = (i64)(((16 * (i32)x8 + 64 * (i32)v1 + 40) < 72 ? (16 * (i32)x8 + 64 * (i32)v1 + 40) : 72)); x9 < x9_end; x9 += 1) {
        f32 v62 = (lane < ((((-64L) * v0 + 136L) < 64L ? ((-64L) * v0 + 136L) : 64L))) ? load<f32>(b5, (((lane) >> 1) * (-1055L) + ((lane) >> 5) * (-496L) + ((lane) >> 3) * 128L + lane * 528L + (4L * x9 + (-256L) * v1 + (-128L)))) : 0;
        u16 v63 = f32_to_f16(v62);
        if ((lane < (i64)((((-64) * (i32)v0 + 136) < 64 ? ((-64) * (i32)v0 + 136) : 64)))) store<u16>(b0, ((i64)(136 * (i32)x9 + 64 * (i32)v0) + lane), v63);
      }
    }
    f32 v64 = v8.x[2];
    barrier<128>();
    store<f32>(b5, (0L + lane), v64);
    f32 v65 = v9.x[2];
    store<f32>(b5, (132L + lane), v65);
    f32 v66 = v10.x[2];
    store<f32>(b5, (264L + lane), v66);
    f32 v67 = v11.x[2];
    store<f32>(b5, (396L + lane), v67);
    f32 v68 = v8.x[3];
    store<f32>(b5, (528L + lane), v68);
    f32 v69 = v9.x[3];
    store<f32>(b5, (660L + lane), v69);
    f32 v70 = v10.x[3];
    store<f32>(b5, (792L + lane), v70);
    f32 v71 = v11.x[3];
    store<f32>(b5, (924L + lane), v71);
    barrier<128>();
    for (i64 x10 = 0L, x10_end = 2L; x10 < x10_end; x10 += 1) {
      for (i64 x11 = (i64)(16 * (i32)x10 + 64 * (i32)v1 + 40), x11_end = (i64)(((16 * (i32)x10 + 64 * (i32)v1 + 48) < 72 ? (16 * (i32)x10 + 64 * (i32)v1 + 48) : 72)); x11 < x11_end; x11 += 1) {
        f32 v72 = (lane < ((((-64L) * v0 + 136L) < 64L ? ((-64L) * v0 + 136L) : 64L))) ? load<f32>(b5, (((lane) >> 1) * (-1055L) + ((lane) >> 5) * (-496L) + ((lane) >> 3) * 128L + lane * 528L + (4L * x11 + (-256L) * v1 + (-160L)))) : 0;
        u16 v73 = f32_to_f16(v72);
        if ((lane < (i64)((((-64) * (i32)v0 + 136) < 64 ? ((-64) * (i32)v0 + 136) : 64)))) store<u16>(b0, ((i64)(136 * (i32)x11 + 64 * (i32)v0) + lane), v73);
      }
    }
  }
}
