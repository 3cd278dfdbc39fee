typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned short u16u __attribute__((aligned(1), may_alias));
typedef int i32u __attribute__((aligned(1), may_alias));
typedef unsigned int u32;
typedef long i64;
typedef float f32;
typedef float f32u __attribute__((aligned(1), may_alias));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef float f32x16u __attribute__((ext_vector_type(16), aligned(1), may_alias));
#define FN static inline __attribute__((always_inline))
struct KernelError {
  i64 code, index, extent, item;
};
FN f32 f32_of_u32(u32 x) {
  f32 bits;
  __builtin_memcpy(&bits, &x, sizeof(x));
  return bits;
}
FN f32 bf16_to_f32(u16 x) {
  return f32_of_u32(((u32)x) << 16);
}
FN f32x8 max_f32x8(f32x8 a, f32x8 b) {
  const f32x8 m = a > b ? a : b;
  return a != a ? a : m;
}
FN f32x4 max_f32x4(f32x4 a, f32x4 b) {
  const f32x4 m = a > b ? a : b;
  return a != a ? a : m;
}
FN f32x2 max_f32x2(f32x2 a, f32x2 b) {
  const f32x2 m = a > b ? a : b;
  return a != a ? a : m;
}
FN f32 max_f32(f32 a, f32 b) {
  const f32 m = a > b ? a : b;
  return a != a ? a : m;
}
FN f32 reduce_Max_f32x16(f32x16 x) {
  const f32x8 x8 = max_f32x8(x.lo, x.hi);
  const f32x4 x4 = max_f32x4(x8.lo, x8.hi);
  const f32x2 x2 = max_f32x2(x4.lo, x4.hi);
  const f32 x1 = max_f32(x2.x, x2.y);
  return x1;
}
void athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch,
                    struct KernelError* error) {
  const i64 s0 = sizes[0];
  __builtin_assume(s0 >= 0);
  const i64 s1 = sizes[1];
  __builtin_assume(s1 >= 0);
  const u16u* const b0 = buffers[0];
  const f32u* const b1 = buffers[1];
  f32u* const b2 = buffers[2];
  f32u* const b3 = (f32u*)((u8*)scratch + 0);
  i32u* const b4 = (i32u*)((u8*)scratch + 128);
#pragma clang loop unroll(disable)
  for (i64 g = begin; g < end; ++g) {
    f32 v0 = 0x0p+0f;
    f32x16 v1 = (f32x16)(v0);
    f32x16 v2 = v1;
    f32x16 v3 = v1;
    #pragma clang loop unroll(disable)
    for (i64 x0 = 0L, x0_end = s1; x0 < x0_end; x0 += 1) {
      f32x16 v4 = *(const f32x16u*)(b1 + (16L * x0));
      u16 v5 = b0[(2L * g * s1 + x0)];
      f32 v6 = bf16_to_f32(v5);
      f32x16 v7 = (f32x16)(v6);
      f32x16 v8 = __builtin_elementwise_fma(v7, v4, v2);
      v2 = v8;
      u16 v9 = b0[(2L * g * s1 + x0 + s1)];
      f32 v10 = bf16_to_f32(v9);
      f32x16 v11 = (f32x16)(v10);
      f32x16 v12 = __builtin_elementwise_fma(v11, v4, v3);
      v3 = v12;
    }
    *(f32x16u*)(b3 + 0L) = v3;
    #pragma clang loop unroll(full)
    for (i64 x1 = 0L, x1_end = 4L; x1 < x1_end; x1 += 1) {
      f32 v13 = b3[x1];
      f32 v14 = reduce_Max_f32x16(v2);
      f32 v15 = (v13 + v14);
      b2[(8L * g + x1)] = v15;
    }
  }
}
