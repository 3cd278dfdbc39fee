// Runs kernels, as the Metal dialect prints them, on the host, and compares them with the reference
// evaluator: the same bodies and headers but metal_stdlib.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compiler/codegen/print/printed_kernels_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace on_host {

struct Printed {
  const char* name;
  int team;
  long scratch_bytes, argument_bytes;
  void (*run)(const void* arguments);
};

#include "athanor/device.h"
#include "athanor/printed_kernels.inc"

}  // namespace on_host

namespace {

using on_host::Buffer;
using on_host::ErrorSlot;
using on_host::host;

Buffer All(Tensor& t) {
  return {reinterpret_cast<unsigned char*>(t.bytes.data()), static_cast<long>(t.bytes.size())};
}
Buffer Element(Tensor& t, int64_t i) {
  const int bytes = DTypeBytes(t.dtype);
  return {All(t).data + i * bytes, bytes};
}

// The meeting of the threads of the team that runs.
std::unique_ptr<std::barrier<>> meeting;

// A launch of a printed kernel: its arguments as a launch builds them without knowing the kernel,
// and its teams one after another, the last one first.
class Launch {
 public:
  explicit Launch(const std::string& name) {
    for (const on_host::Printed& p : on_host::kPrinted) {
      if (p.name == name) printed_ = &p;
    }
    EXPECT_NE(printed_, nullptr) << name;
  }

  RecordedFailure Run(const std::vector<Buffer>& buffers, const std::vector<int64_t>& sizes,
                      int64_t items, int64_t teams) {
    std::vector<int64_t> words;
    const auto add = [&](const void* p) { words.push_back(reinterpret_cast<int64_t>(p)); };
    for (const Buffer& b : buffers) {
      add(b.data);
      words.push_back(b.bytes);
    }
    words.insert(words.end(), sizes.begin(), sizes.end());
    words.push_back(items);
    // Each team finds what the one before left behind.
    const std::unique_ptr<char[]> workspace(new char[teams * printed_->scratch_bytes + 1]);
    std::memset(workspace.get(), 0x5a, teams * printed_->scratch_bytes);
    add(workspace.get());
    words.push_back(printed_->scratch_bytes);
    ErrorSlot error = {};
    add(&error);
    EXPECT_EQ(8 * words.size(), printed_->argument_bytes);
    host = {.teams = teams, .meet = [] { meeting->arrive_and_wait(); }};
    for (host.team = teams - 1; host.team >= 0; --host.team) RunTeam(words.data());
    EXPECT_EQ(error.lock, 0);
    return {error.code, error.item, error.index, error.extent};
  }

 private:
  void RunTeam(const void* arguments) const {
    if (printed_->team == 1) return printed_->run(arguments);
    meeting = std::make_unique<std::barrier<>>(printed_->team);
    std::vector<std::thread> threads;
    for (int lane = 0; lane < printed_->team; ++lane) {
      threads.emplace_back([&, lane] {
        on_host::host_lane = lane;
        printed_->run(arguments);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const on_host::Printed* printed_ = nullptr;
};

class HostLauncher : public PrintedLauncher {
 public:
  RecordedFailure Run(const std::string& name, const std::vector<Tensor*>& tensors,
                      const std::vector<int64_t>& sizes, int64_t items, int64_t teams) override {
    std::vector<Buffer> buffers;
    for (Tensor* tensor : tensors) buffers.push_back(All(*tensor));
    return Launch(name).Run(buffers, sizes, items, teams);
  }
};

// Runs a kernel once for each element.
void RunElements(const std::string& name, Tensor& condition, Tensor& operands,
                 std::vector<Tensor>& results) {
  Launch launch(name);
  const int64_t row = kOperandRow * DTypeBytes(operands.dtype);
  for (int64_t i = 0; i < condition.elements(); ++i) {
    std::vector<Buffer> buffers = {Element(condition, i), {All(operands).data + i * row, row}};
    for (Tensor& result : results) buffers.push_back(Element(result, i));
    launch.Run(buffers, {}, 1, 1);
  }
}

TEST(PrintedKernels, EqualTheReference) {
  HostLauncher launcher;
  for (const PrintedCheck& check : PrintedChecks()) {
    // Their teams are a part of a SIMD-group, which Metal refuses.
    if (check.name == "TeamsMaskLanes" || check.name == "TeamsReadWhatOthersWrote") continue;
    // It has no fragments and no tickets.
    if (check.name.substr(0, 7) == "TilesOf" || check.name == "TeamsShareSums") continue;
    SCOPED_TRACE(std::string(check.name));
    check.run(launcher);
  }
}

TEST(PrintedKernels, OpsEqualTheReference) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype != DType::kF64) ExpectPrintedOps(row.dtype, /*f64=*/false, RunElements);
  }
}

TEST(PrintedKernels, MovesEqualThoseOfOneLane) {
  HostLauncher launcher;
  ExpectPrintedMoves(launcher, /*f64=*/false);
}

TEST(PrintedKernels, RandomBitsEqualTheReference) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}}) {
    const Tensor want = ExpectedRandomBits(seed, 101);
    for (int64_t i = 0; i < 101; ++i) {
      EXPECT_EQ(on_host::philox(i, seed), want.data<uint32_t>()[i]) << i << ", seed " << seed;
    }
  }
}

// Keeps the first failure of an item, and of two items the lower one's, in any order of writing.
TEST(Record, KeepsTheLowestItemsFirstFailure) {
  ErrorSlot slot = {};
  const auto expect = [&](long item, long index) {
    EXPECT_EQ(slot.code, 1);
    EXPECT_EQ(slot.item, item);
    EXPECT_EQ(slot.index, index);
    EXPECT_EQ(slot.extent, index + 1);
    EXPECT_EQ(slot.lock, 0);
  };
  on_host::record(&slot, 5, 50, 51);
  expect(5, 50);
  on_host::record(&slot, 5, 60, 61);
  expect(5, 50);
  on_host::record(&slot, 9, 90, 91);
  expect(5, 50);
  on_host::record(&slot, 0, 7, 8);
  expect(0, 7);
  on_host::record(&slot, 0, 8, 9);
  expect(0, 7);
}

// Teams that fail at the same time neither lose the lowest item nor mix two records: each gives way
// to the others in the middle of writing.
TEST(Record, IsWholeAmongThreads) {
  constexpr int kThreads = 4, kRounds = 500;
  host = {.pause = [] { std::this_thread::yield(); }};
  ErrorSlot slot = {};
  int wrong = 0;
  std::barrier round(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const long item = (t + i) % kThreads;
        round.arrive_and_wait();
        on_host::record(&slot, item, item + 10, item + 20);
        round.arrive_and_wait();
        if (t > 0) continue;
        wrong += slot.code != 1 || slot.item != 0 || slot.index != 10 || slot.extent != 20;
        slot = {};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

template <typename Key, typename Place>
void ExpectSorted(int64_t n) {
  std::mt19937_64 random(n + sizeof(Key));
  std::vector<Key> keys(n + 1), other(n);
  std::vector<Place> places(n), moved(n);
  for (Key& k : keys) k = static_cast<Key>(random() % 3 == 0 ? ~Key{0} - random() % 4 : random());
  std::iota(places.begin(), places.end(), 0);
  std::vector<Place> order = places;
  SortBy(keys.data() + 1, order.data(), n);
  std::vector<Key> want = keys;
  for (int64_t i = 0; i < n; ++i) want[i + 1] = keys[order[i] + 1];
  const auto row = [](auto& v, long start) {
    return on_host::Row{
        {reinterpret_cast<unsigned char*>(v.data()), static_cast<long>(v.size() * sizeof(v[0]))},
        start};
  };
  on_host::sort<Key, Place>(row(keys, 1), row(places, 0), row(other, 0), row(moved, 0), n);
  EXPECT_EQ(keys, want);
  EXPECT_EQ(places, order);
}

TEST(Sort, TakesEveryKeyAndPlace) {
  for (const int64_t n : {0, 1, 2, 5, 64, 127}) {
    SCOPED_TRACE(n);
    ExpectSorted<uint8_t, int32_t>(n);
    ExpectSorted<uint16_t, int64_t>(n);
    ExpectSorted<uint32_t, int64_t>(n);
    ExpectSorted<uint64_t, int32_t>(n);
  }
}

TEST(Record, OfATeamKeepsTheLowestItemsLowestIndex) {
  ErrorSlot slot = {};
  const auto expect = [&](long item, long index, long extent) {
    EXPECT_EQ(slot.item, item);
    EXPECT_EQ(slot.index, index);
    EXPECT_EQ(slot.extent, extent);
    EXPECT_EQ(slot.lock, 0);
  };
  on_host::record<32>(&slot, 5, 50, 51);
  expect(5, 50, 51);
  on_host::record<32>(&slot, 5, 60, 51);
  expect(5, 50, 51);
  on_host::record<32>(&slot, 5, -1, 51);
  expect(5, -1, 51);
  on_host::record<32>(&slot, 5, -1, 7);
  expect(5, -1, 7);
  on_host::record<32>(&slot, 6, -9, 7);
  expect(5, -1, 7);
  on_host::record<32>(&slot, 4, 99, 8);
  expect(4, 99, 8);
}

}  // namespace
}  // namespace athanor
