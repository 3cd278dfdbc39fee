#include "server/tuner/run/isolated.h"

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "gtest/gtest.h"
#include "server/tuner/run/own_stack_thread.h"

namespace athanor {
namespace {

constexpr IsolationLimits kLimits{.timeout = std::chrono::milliseconds(10000),
                                  .memory_bytes = int64_t{1} << 30};
constexpr size_t kBytes = 64 << 10;

// Writes over some of its stack.
void UseStack() {
  std::array<volatile char, kBytes> used;
  for (volatile char& byte : used) byte = 1;
}

TEST(IsolatedTest, ReturnsWhatTheBodyReturns) {
  EXPECT_TRUE(RunIsolated("a body", kLimits, [] { return absl::OkStatus(); }).ok());
  const absl::Status status =
      RunIsolated("a body", kLimits, [] { return absl::DataLossError("wrong"); });
  EXPECT_EQ(status, absl::DataLossError("wrong"));
}

// The caller's thread lives on in the parent alone: its stack must not become that of a thread of
// the forked process.
TEST(IsolatedTest, ThreadsOfTheBodyLeaveTheCallersStackAlone) {
  absl::Status status;
  auto caller = OwnStackThread::Start([&] {
    std::array<char, kBytes> data;
    data.fill(7);
    status = RunIsolated("a body", kLimits, [&] {
      std::vector<std::thread> threads;
      // As many as make glibc free stacks when they end.
      for (int i = 0; i < 16; ++i) threads.emplace_back(UseStack);
      for (std::thread& thread : threads) thread.join();
      const auto changed = absl::c_count_if(data, [](char byte) { return byte != 7; });
      return changed == 0 ? absl::OkStatus()
                          : absl::InternalError(std::to_string(changed) + " bytes changed");
    });
  });
  ASSERT_TRUE(caller.ok()) << caller.status();
  (*caller)->Join();
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace athanor
