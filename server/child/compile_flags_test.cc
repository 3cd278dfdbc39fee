#include "server/child/compile_flags.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target TargetOf(const char* device, int vector_bytes) {
  v1::Target target;
  target.set_device(device);
  target.set_vector_bytes(vector_bytes);
  return target;
}

// Part of the keys of all that caches hold.
TEST(CompileFlagsTest, TheCpusAreThoseOfClang) {
  EXPECT_EQ(CompileFlags::For(TargetOf("cpu", 64)).ToString(),
            "-O3 -mprefer-vector-width=512 -ffp-contract=off");
  EXPECT_EQ(CompileFlags::For(TargetOf("cpu", 16)).ToString(),
            "-O3 -mprefer-vector-width=128 -ffp-contract=off");
  EXPECT_EQ(CompileFlags::For(v1::Target()).ToString(),
            "-O3 -mprefer-vector-width=512 -ffp-contract=off");
}

TEST(CompileFlagsTest, AGpusAreThoseOfNvrtc) {
  EXPECT_EQ(CompileFlags::For(TargetOf("cuda", 1)).ToString(), "--std=c++17 --fmad=false");
}

}  // namespace
}  // namespace athanor
