typedef unsigned short u16;
typedef int i32x16 __attribute__((ext_vector_type(16)));
typedef long i64;
typedef float f32;
typedef float f32u __attribute__((aligned(1), may_alias));
typedef float f32x16 __attribute__((ext_vector_type(16)));
#define FN static inline __attribute__((always_inline))
struct KernelError {
  i64 code, index, extent, item;
};
FN u16 bits_below_16(i64 n) {
  return (u16)(n <= 0 ? 0 : n >= 16 ? ((1UL << 16) - 1) : (1UL << n) - 1);
}
FN f32x16 load_below_f32x16(const f32u* p, i64 n) {
  return (f32x16)__builtin_ia32_loadups512_mask((const void*)p, (f32x16)0, bits_below_16(n));
}
#define FMA __builtin_elementwise_fma
FN f32x16 exp_f32x16(f32x16 x) {
  x = x < (f32x16)-104.5f ? (f32x16)-104.5f : x;
  x = x > (f32x16)89.0f ? (f32x16)89.0f : x;
  const f32x16 n = __builtin_elementwise_roundeven(x * 0x1.715476p+0f);
  f32x16 r = FMA(n, (f32x16)-0x1.62e430p-1f, x);
  r = FMA(n, (f32x16)0x1.05c610p-29f, r);
  f32x16 p = FMA((f32x16)0x1.6a2252p-10f, r, (f32x16)0x1.123b04p-7f);
  p = FMA(p, r, (f32x16)0x1.5558f8p-5f);
  p = FMA(p, r, (f32x16)0x1.555490p-3f);
  p = FMA(p, r, (f32x16)0x1.fffffcp-2f);
  p = FMA(p, r * r, r) + 1.0f;
  return __builtin_ia32_scalefps512_mask(p, n, (f32x16)0.0f, (u16)-1, 4);
}
FN void store_below_f32x16(f32u* p, f32x16 x, i64 n) {
  __builtin_ia32_storeups512_mask((void*)p, x, bits_below_16(n));
}
void athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch,
                    struct KernelError* error) {
  const i64 s0 = sizes[0];
  __builtin_assume(s0 >= 0);
  const f32u* const b0 = buffers[0];
  f32u* const b1 = buffers[1];
#pragma clang loop unroll(disable)
  for (i64 g = begin; g < end; ++g) {
    f32 v0 = 0x0p+0f;
    f32x16 v1 = (f32x16)(v0);
    #pragma clang loop unroll(disable)
    for (i64 x0 = (64L * g), x0_end = (((64L * g + 64L) < s0 ? (64L * g + 64L) : s0)); x0 < x0_end; x0 += 16) {
      f32x16 v2 = load_below_f32x16(b0 + x0, ((-1L) * x0 + s0));
      f32x16 v3 = (v1 > v2 ? v1 : v2);
      f32x16 v4 = exp_f32x16(v3);
      i32x16 v5 = (i32x16)(v1 < v2);
      f32x16 v6 = (v5 ? v4 : v3);
      store_below_f32x16(b1 + x0, v6, ((-1L) * x0 + s0));
    }
  }
}
