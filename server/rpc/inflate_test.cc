#include "server/rpc/inflate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/compressed_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class InflateTest : public testing::Test {
 protected:
  ~InflateTest() override { EXPECT_EQ(ledger_.used(), 0); }

  absl::StatusOr<std::string> Inflate(const std::string& bytes,
                                      InflateLimits limits = {64 * kMiB, 100},
                                      grpc_compression_algorithm how = GRPC_COMPRESS_GZIP) {
    auto inflated = InflatedBytes::Of(CompressedBuffer(bytes, how), limits, &ledger_);
    if (!inflated.ok()) return inflated.status();
    EXPECT_GE(ledger_.used(HeldKind::kRequests), static_cast<int64_t>(inflated->view().size()));
    return std::string(inflated->view());
  }
  void Refused(const std::string& bytes, const InflateLimits& limits, absl::StatusCode code,
               const std::string& named) {
    const absl::Status status = Inflate(bytes, limits).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }

  ServerLedger ledger_{16 * kMiB};
};

std::string Numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, i, ",");
  return text;
}

TEST_F(InflateTest, BothAlgorithmsOfAnySize) {
  for (const int count : {0, 1, 100, 10'000, 1'000'000}) {
    const std::string text = Numbers(count);
    EXPECT_EQ(Inflate(Deflated(text)).value(), text);
    EXPECT_EQ(Inflate(Deflated(text, 1, false), {64 * kMiB, 100}, GRPC_COMPRESS_DEFLATE).value(),
              text);
  }
}

TEST_F(InflateTest, UpToTheLimitAndNoByteMore) {
  const std::string text = Numbers(100'000);
  const auto size = static_cast<int64_t>(text.size());
  EXPECT_EQ(Inflate(Deflated(text), {size, 100}).value(), text);
  Refused(Deflated(text), {size - 1, 100}, absl::StatusCode::kResourceExhausted,
          absl::StrCat("more than ", size - 1, " bytes (--max_message_bytes)"));
}

TEST_F(InflateTest, ARatioBeyondAMiB) {
  const std::string few(kFreeInflation, 'x');
  EXPECT_EQ(Inflate(Deflated(few), {64 * kMiB, 1}).value(), few);
  const std::string more(kFreeInflation + 1, 'x');
  Refused(Deflated(more), {64 * kMiB, 100}, absl::StatusCode::kResourceExhausted,
          "more than 100 times its size (--max_inflation)");
  EXPECT_EQ(Inflate(Deflated(more), {64 * kMiB, 1032}).value(), more);
}

TEST_F(InflateTest, NoMoreThanTheLedgerHas) {
  Refused(GzipBomb(), {64 * kMiB, 1032}, absl::StatusCode::kResourceExhausted, "--memory_limit");
}

TEST_F(InflateTest, WhatIsNoStreamIsRefused) {
  const std::string whole = Deflated(Numbers(1000));
  for (const size_t size : {size_t{1}, size_t{10}, whole.size() / 2, whole.size() - 1}) {
    Refused(whole.substr(0, size), {kMiB, 100}, absl::StatusCode::kInvalidArgument,
            "it is cut off");
  }
  Refused(whole + "x", {kMiB, 100}, absl::StatusCode::kInvalidArgument, "bytes follow its end");
  std::string damaged = whole;
  damaged[whole.size() - 6] ^= 1;  // damages its checksum
  Refused(damaged, {kMiB, 100}, absl::StatusCode::kInvalidArgument, "incorrect data check");
  Refused("no stream at all", {kMiB, 100}, absl::StatusCode::kInvalidArgument,
          "incorrect header check");
}

TEST_F(InflateTest, WhatIsNotCompressedIsNotToldToBe) {
  grpc::Slice slice(std::string(kMiB, 'x'));
  EXPECT_FALSE(InflatesLong(grpc::ByteBuffer(&slice, 1)));
  EXPECT_FALSE(InflatesLong(grpc::ByteBuffer()));
  EXPECT_FALSE(InflatesLong(CompressedBuffer("few", GRPC_COMPRESS_GZIP)));
  EXPECT_TRUE(InflatesLong(CompressedBuffer(std::string(kMiB, 'x'), GRPC_COMPRESS_DEFLATE)));
}

}  // namespace
}  // namespace athanor
