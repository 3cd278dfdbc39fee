// A row whose checksum was damaged into a value of another type, or into none, was found bad but
// could not be quarantined: it was read and refused again and again.
#include "compiler/cache/cache_fixture.h"

namespace athanor {
namespace {

using BadChecksumStaysTest = CacheTest;

TEST_F(BadChecksumStaysTest, WhateverItIsTheRowGoesToQuarantine) {
  const char* const kChecksums[] = {"CAST(checksum || 'x' AS TEXT)", "7", "1.5", "x''"};
  for (const char* checksum : kChecksums) {
    const std::unique_ptr<Cache> cache = Open();
    cache->PutKernel(TestKernelKey(1), TestObject(1));
    ASSERT_TRUE(cache->Flush(kLong).ok());
    Execute(std::string("UPDATE kernels SET checksum = ") + checksum);
    const auto first = cache->Verify(/*quarantine=*/true);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->bad_size(), 1) << checksum;
    const auto again = cache->Verify(/*quarantine=*/false);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->bad_size(), 0) << checksum << ": " << again->ShortDebugString();
    EXPECT_EQ(Number("SELECT count(*) FROM kernels"), 0) << checksum;
    EXPECT_EQ(Number("SELECT count(*) FROM quarantine"), 1) << checksum;
  }
}

TEST_F(BadChecksumStaysTest, AFindPutsItThereToo) {
  const std::unique_ptr<Cache> cache = Open();
  cache->PutKernel(TestKernelKey(1), TestObject(1));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  Execute("UPDATE kernels SET checksum = CAST(checksum || 'x' AS TEXT)");
  EXPECT_EQ(cache->FindKernel(TestKernelKey(1)), std::nullopt);
  ASSERT_TRUE(cache->Flush(kLong).ok());
  EXPECT_EQ(Number("SELECT count(*) FROM kernels"), 0);
  EXPECT_EQ(Number("SELECT count(*) FROM quarantine"), 1);
}

}  // namespace
}  // namespace athanor
