#include "server/tuner/run/isolated.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

TEST(IsolatedTest, DroppedBytesAreZeroForAll) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kBytes, kBytes + 1}) {
    GuardedBytes memory = GuardedBytes::Create(bytes).value();
    std::fill_n(memory.data(), bytes, 'x');
    ASSERT_TRUE(RunIsolated("a body", kLimits, [&] { return memory.Drop(); }).ok());
    EXPECT_EQ(memory.view(), std::string(bytes, '\0'));
  }
}

TEST(IsolatedTest, BytesThatTheSystemDoesNotTakeBackAreTold) {
  const int file = memfd_create("a test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  GuardedBytes memory = GuardedBytes::Create(1, [&](size_t bytes) -> absl::StatusOr<SharedMemory> {
                          return *SharedMemory::OfFile(file, 0, bytes);
                        }).value();
  *memory.data() = 'x';
  // Who maps it already may write, but nobody may make holes.
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  const absl::Status kept = memory.Drop();
  EXPECT_EQ(kept.code(), absl::StatusCode::kUnavailable) << kept;
  EXPECT_EQ(memory.view(), "x");
  close(file);
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
