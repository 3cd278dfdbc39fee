// Kernels whose teams have several threads: right ones in every order of threads, and each mistake
// that a GPU would not tell of.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/kir/kir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/kernel_abi.h"
#include "tests/emulator/counters_testing.h"
#include "tests/emulator/kernel_testing.h"

namespace athanor {
namespace {

// The kernel IR, the runtime and the emulator have a home each for these.
static_assert(kir::kBlockThreads == kCudaBlockThreads &&
              kir::kBlockThreads == emulator::kMostThreadsOfBlock);
static_assert(kir::kWaveThreads == emulator::kWave);

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOrders[] = {"ascending", "descending", "1", "20261127"};

// Is a butterfly of swaps; in a block, waves meet in the first 64 bytes of its shared memory.
constexpr char kAll[] = R"(
template <int T, typename V, typename Op>
FN V all(V x, Op op) {
  constexpr int kPart = T < 32 ? T : 32;
  for (int step = kPart / 2; step > 0; step /= 2) x = op(x, swap<T>(x, step));
  x = from_first<T>(x);
  if constexpr (T > 32) {
    const Buffer parts = shared<T>(0, 64);
    const i64 lane = lane_of<T>();
    if (lane % 32 == 0) store<V>(parts, lane / 32, x);
    barrier<T>();
    x = load<V>(parts, 0);
    for (i64 i = 1; i < T / 32; ++i) x = op(x, load<V>(parts, i));
    barrier<T>();
  }
  return x;
}
)";

// Returns the program whose kernel of teams of T threads does `body`, in which T stands for their
// number, for each item `g` with each `lane`.
CudaSource TeamProgram(int team, int shared_bytes, absl::string_view body) {
  const std::string text =
      absl::StrCat(kArguments, "constexpr int T = ", team, ";\n", kAll,
                   "TEAM_KERNEL(athanor_kernel, ", team, ", ", shared_bytes, ") {\n",
                   "const i64 lane = lane_of<T>();\n"
                   "for (i64 g = first<T>(a); g < a.items; g += teams<T>(a)) {\n"
                   "#line 1\n",
                   body, "\n}\n}\n");
  return CudaSourceOf(text, "sm_80");
}

class TeamsTest : public KernelTest {
 protected:
  // Runs `items` items of a kernel, in whose shared and global memory a team has 1024 bytes and
  // each buffer too, by `blocks` teams; returns what the device says.
  absl::Status FateOfCode(int team, const std::string& code, int64_t items, unsigned blocks) {
    const CudaFunction function = LoadCode(code);
    Arguments arguments = {.b0 = Upload(std::vector<float>(256, 1)),
                           .b1 = Upload(std::vector<float>(256, 2)),
                           .items = items,
                           .workspace = Allocate(512 * blocks).data,
                           .stride = 512};
    EXPECT_EQ(Launch(function, arguments, blocks, team), kCudaSuccess);
    return Wait();
  }
  absl::Status Fate(int team, absl::string_view body, int64_t items = 1, unsigned blocks = 1) {
    return FateOfCode(team, Code(TeamProgram(team, 1024, body)), items, blocks);
  }
  // Expects `body` to end with `text` in each order of threads, and the next device to be whole.
  template <typename Matcher>
  void ExpectFault(int team, absl::string_view body, const Matcher& text, int64_t items = 1,
                   unsigned blocks = 1) {
    const std::string code = Code(TeamProgram(team, 1024, body));
    static const std::string& good = *new std::string(Code(TeamProgram(
        32, 64,
        "store<f32>(a.b1, lane, all<T>(load<f32>(a.b0, lane), [](f32 x, f32 y) { return x + y; "
        "}));")));
    for (const char* order : kOrders) {
      setenv("ATHANOR_EMULATOR_ORDER", order, 1);
      Open();
      const absl::Status status = FateOfCode(team, code, items, blocks);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << order;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("athanor_kernel: "), text))
          << order;
    }
    Open();
    const absl::Status next = FateOfCode(32, good, 1, 1);
    EXPECT_TRUE(next.ok()) << next;
  }
};

TEST_F(TeamsTest, EachThreadOfEachTeamSeesEachOfItsItems) {
  for (const int team : {2, 4, 8, 16, 32, 128}) {
    const CudaFunction function = Load(
        TeamProgram(team, 0, "store<i64>(a.b1, g * T + lane, 1000 * g + lane + teams<T>(a));"));
    for (const char* order : kOrders) {
      setenv("ATHANOR_EMULATOR_ORDER", order, 1);
      for (const auto& [blocks, threads] :
           {std::pair(1, team), std::pair(1, 128), std::pair(3, 128), std::pair(7, team)}) {
        for (const int64_t items : {1, 5, 40}) {
          const BufferArgument out = Allocate(8 * items * team);
          ASSERT_EQ(Launch(function, {.b1 = out, .items = items}, blocks, threads), kCudaSuccess);
          const std::vector<int64_t> got = Download<int64_t>(out);
          for (int64_t i = 0; i < items * team; ++i) {
            ASSERT_EQ(got[i], 1000 * (i / team) + i % team + blocks * threads / team)
                << team << " " << order << " " << blocks << " x " << threads;
          }
        }
      }
    }
  }
}

TEST_F(TeamsTest, SwapsAndFirstLanesGiveTheirThreadsValue) {
  for (const int team : {2, 8, 32, 128}) {
    const int part = std::min(team, 32);
    const CudaFunction function = Load(TeamProgram(team, 0, R"(
        i64 at = g * T * 8 + lane;
        for (int step = 1; step < (T < 32 ? T : 32); step *= 2, at += T) {
          store<i64>(a.b1, at, swap<T>(100 * g + lane, step));
        }
        store<i64>(a.b1, at, from_first<T>(i64(-1) - lane));
        store<i64>(a.b1, at + T, i64(swap<T>(i32(lane) - 7, 1)) + i64(swap<T>(u32(lane), 1)) +
                                 i64(swap<T>(f32(lane), 1)) + i64(swap<T>(f64(lane), 1)) +
                                 i64(swap<T>(u64(lane), 1)));)"));
    for (const char* order : kOrders) {
      setenv("ATHANOR_EMULATOR_ORDER", order, 1);
      const BufferArgument out = Allocate(8 * 3 * team * 8);
      ASSERT_EQ(Launch(function, {.b1 = out, .items = 3}, 1, 128), kCudaSuccess);
      const std::vector<int64_t> got = Download<int64_t>(out);
      for (int g = 0; g < 3; ++g) {
        for (int lane = 0; lane < team; ++lane) {
          int at = g * team * 8 + lane;
          for (int step = 1; step < part; step *= 2, at += team) {
            ASSERT_EQ(got[at], 100 * g + (lane ^ step)) << team << " " << order << " " << step;
          }
          ASSERT_EQ(got[at], -1 - lane / part * part);
          ASSERT_EQ(got[at + team], 5 * (lane ^ 1) - 7);
        }
      }
    }
  }
}

// Computes for rows of any length, each by a team: the largest, the sum of exponentials in shared
// memory, and the quotients.
constexpr char kSoftmax[] = R"(
  const i64 n = a.s0;
  const Buffer row = SCRATCH;
  f32 most = -__builtin_inff();
  for (i64 x = 0; x < n; x += T) {
    if (x + lane < n) {
      const f32 v = load<f32>(a.b0, g * n + x + lane);
      most = v > most ? v : most;
    }
  }
  most = all<T>(most, [](f32 x, f32 y) { return x > y ? x : y; });
  f32 sum = 0;
  for (i64 x = 0; x < n; x += T) {
    if (x + lane >= n) continue;
    const f32 v = exp_f32(load<f32>(a.b0, g * n + x + lane) - most);
    store<f32>(row, n - 1 - x - lane, v);
    sum += v;
  }
  sum = all<T>(sum, [](f32 x, f32 y) { return x + y; });
  barrier<T>();
  for (i64 x = 0; x < n; x += T) {
    if (x + lane < n) store<f32>(a.b1, g * n + x + lane, load<f32>(row, n - 1 - x - lane) / sum);
  }
  barrier<T>();
)";

TEST_F(TeamsTest, ASoftmaxOfRowsIsRightInEveryOrder) {
  constexpr int kMost = 300;
  for (const int team : {8, 32, 128}) {
    for (const char* scratch : {"shared<T>(64, 1200)", "scratch<T>(a, 0, 1200)"}) {
      const CudaFunction function = Load(
          TeamProgram(team, 64 + 4 * kMost, absl::StrReplaceAll(kSoftmax, {{"SCRATCH", scratch}})));
      for (const int n : {1, 31, 32, 33, 127, 129, kMost}) {
        constexpr int kRows = 11;
        std::vector<float> in(kRows * n);
        for (size_t i = 0; i < in.size(); ++i) in[i] = float(i * 7 % 13) - 6;
        std::vector<float> first;
        for (const char* order : kOrders) {
          setenv("ATHANOR_EMULATOR_ORDER", order, 1);
          const BufferArgument out = Allocate(4 * in.size());
          const unsigned blocks = 1 + n % 3;
          ASSERT_EQ(Launch(function,
                           {.b0 = Upload(in),
                            .b1 = out,
                            .s0 = n,
                            .items = kRows,
                            .workspace = Allocate(1200 * 128 / team * blocks).data,
                            .stride = 1200},
                           blocks, 128),
                    kCudaSuccess);
          const absl::Status status = Wait();
          ASSERT_TRUE(status.ok()) << status;
          const std::vector<float> got = Download<float>(out);
          for (int row = 0; row < kRows; ++row) {
            double sum = 0;
            for (int i = 0; i < n; ++i) sum += std::exp(double(in[row * n + i]));
            for (int i = 0; i < n; ++i) {
              const double want = std::exp(double(in[row * n + i])) / sum;
              ASSERT_NEAR(got[row * n + i], want, 1e-5 * want) << team << " " << order << " " << n;
            }
          }
          if (first.empty()) first = got;
          ASSERT_EQ(std::memcmp(first.data(), got.data(), 4 * got.size()), 0) << order;
        }
      }
    }
  }
}

template <typename T>
std::vector<T> Values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {T(0), T(1), Limits::max(), Limits::lowest(), T(-1), T(3)};
  if constexpr (Limits::has_infinity) {
    const T nan = Limits::quiet_NaN();
    values = {T(0),
              T(-0.0),
              nan,
              -nan,
              T(1),
              Limits::infinity(),
              -Limits::infinity(),
              Limits::denorm_min(),
              T(-3),
              Limits::max()};
  }
  return values;
}

// Is a reduction's operation, in the kernel's text and here.
template <typename T>
struct Op {
  const char* text;
  T (*apply)(T x, T y);
};
template <typename T>
std::vector<Op<T>> Ops() {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;  // wraps
  std::vector<Op<T>> ops = {{"x + y", [](T x, T y) { return T(Wide(x) + Wide(y)); }},
                            {"x < y ? x : y", [](T x, T y) { return x < y ? x : y; }},
                            {"x > y ? x : y", [](T x, T y) { return x > y ? x : y; }},
                            {"x * y", [](T x, T y) { return T(Wide(x) * Wide(y)); }}};
  if constexpr (std::is_integral_v<T>) {
    ops.push_back({"x & y", [](T x, T y) { return T(x & y); }});
    ops.push_back({"x | y", [](T x, T y) { return T(x | y); }});
  }
  return ops;
}

class AllReduceTest : public TeamsTest {
 protected:
  // The first items are all alike, the next are zeros of both signs, the others of all kinds.
  static constexpr int kItems = 24, kPlainItems = 16;
  template <typename T>
  static std::vector<T> Inputs(int team) {
    const std::vector<T> values = Values<T>();
    std::vector<T> in;
    for (int g = 0; g < kItems; ++g) {
      for (int lane = 0; lane < team; ++lane) {
        const size_t pick = g < int(values.size()) ? g
                            : g < kPlainItems      ? (lane * (g + 1) / 3) % 2
                                                   : size_t(lane * g + lane / 7);
        in.push_back(values[pick % values.size()]);
      }
    }
    return in;
  }

  // Expects all threads to have the same bits, and right ones where no order of operands matters.
  // `device`: the type's name there; `carried`: what threads swap.
  template <typename T>
  void Expect(const std::string& device, const std::string& carried) {
    const std::vector<Op<T>> ops = Ops<T>();
    for (const int team : {2, 32, 128}) {
      std::string body = "C x = C(load<V>(a.b0, g * T + lane));\n";
      for (size_t i = 0; i < ops.size(); ++i) {
        absl::StrAppend(&body, "store<V>(a.b1, (a.items * ", i,
                        " + g) * T + lane, V(all<T>(x, [](C a, C b) -> C {\n"
                        "const V x = V(a), y = V(b); return C(V(",
                        ops[i].text, ")); })));\n");
      }
      const CudaFunction function =
          Load(TeamProgram(team, 64, absl::StrReplaceAll(body, {{"V", device}, {"C", carried}})));
      const std::vector<T> in = Inputs<T>(team);
      for (const char* order : kOrders) {
        setenv("ATHANOR_EMULATOR_ORDER", order, 1);
        const BufferArgument out = Allocate(sizeof(T) * in.size() * ops.size());
        ASSERT_EQ(Launch(function, {.b0 = Upload(in), .b1 = out, .items = kItems}, 2, 128),
                  kCudaSuccess);
        const absl::Status status = Wait();
        ASSERT_TRUE(status.ok()) << status;
        const std::vector<T> got = Download<T>(out);
        for (size_t i = 0; i < ops.size(); ++i) {
          for (int g = 0; g < kItems; ++g) {
            ExpectItem(ops[i], &in[g * team], &got[(kItems * i + g) * team], team, g);
          }
        }
      }
    }
  }
  template <typename T>
  static void ExpectItem(const Op<T>& op, const T* in, const T* got, int team, int g) {
    T want = in[0];
    for (int lane = 1; lane < team; ++lane) want = op.apply(want, in[lane]);
    const bool exact = std::is_integral_v<T> || (g < kPlainItems && op.text[2] != '*');
    for (int lane = 0; lane < team; ++lane) {
      ASSERT_EQ(std::memcmp(&got[0], &got[lane], sizeof(T)), 0)
          << op.text << " of a team of " << team << ", item " << g << ", lane " << lane;
      if (exact && want == want) {
        ASSERT_EQ(got[lane], want) << op.text << " of a team of " << team << ", item " << g;
      }
    }
  }
};

TEST_F(AllReduceTest, NarrowNumbers) {
  Expect<int8_t>("i8", "i32");
  Expect<uint8_t>("u8", "u32");
  Expect<int16_t>("i16", "i32");
  Expect<uint16_t>("u16", "u32");
}
TEST_F(AllReduceTest, WholeNumbers) {
  Expect<int32_t>("i32", "i32");
  Expect<uint32_t>("u32", "u32");
  Expect<int64_t>("i64", "i64");
  Expect<uint64_t>("u64", "u64");
}
TEST_F(AllReduceTest, FloatingNumbers) {
  Expect<float>("f32", "f32");
  Expect<double>("f64", "f64");
}

TEST_F(TeamsTest, ManyLaunchesOfKernelsOfOtherTeamsFollowEachOther) {
  std::vector<CudaFunction> functions;
  for (const int team : {32, 128, 4}) {
    functions.push_back(Load(TeamProgram(
        team, 1024,
        "store<f32>(shared<T>(64, 512), lane, load<f32>(a.b0, g * T + lane));\n"
        "barrier<T>();\n"
        "store<f32>(a.b0, g * T + lane, 1 + load<f32>(shared<T>(64, 512), T - 1 - lane));\n"
        "barrier<T>();")));
  }
  functions.push_back(
      Load("for (i64 i = 0; i < 128; ++i) "
           "store<f32>(a.b0, g * 128 + i, 1 + load<f32>(a.b0, g * 128 + i));"));
  const int teams[] = {32, 128, 4, 128};
  const BufferArgument memory = Upload(std::vector<float>(1024, 0));
  for (int launch = 0; launch < 200; ++launch) {
    const int team = teams[launch % 4];
    ASSERT_EQ(Launch(functions[launch % 4], {.b0 = memory, .items = 1024 / team}, 1 + launch % 3,
                     launch % 4 == 3 ? 1 : 128),
              kCudaSuccess);
  }
  EXPECT_THAT(Download<float>(memory), Each(200.0f));
}

// Threads read what another wrote, or write over what another reads.
TEST_F(TeamsTest, AMissingBarrierIsCaught) {
  struct Place {
    const char *buffer, *name;
  };
  for (const Place& place :
       {Place{"shared<T>(64, 512)", "of the team's shared memory, from byte 64 on"},
        Place{"scratch<T>(a, 0, 512)", "of the team's workspace, from byte 0 on"},
        Place{"a.b1", "an argument of 1024"}}) {
    for (const int team : {4, 32, 128}) {
      const auto body = [&](const char* text) {
        return absl::StrReplaceAll(text, {{"BUFFER", place.buffer}});
      };
      ExpectFault(team,
                  body("const Buffer b = BUFFER; store<f32>(b, lane, 1); barrier<T>();\n"
                       "store<f32>(b, lane, 2);\n"
                       "store<f32>(a.b0, lane, load<f32>(b, lane ^ 1));"),
                  AllOf(HasSubstr("of team 0 "), HasSubstr(place.name),
                        HasSubstr("since the last barrier: between them a barrier is missing")));
      ExpectFault(team,
                  body("const Buffer b = BUFFER; store<f32>(b, lane, 1); barrier<T>();\n"
                       "const f32 v = load<f32>(b, T - 1 - lane); store<f32>(b, lane, v);"),
                  AllOf(HasSubstr(place.name), HasSubstr("a barrier is missing")));
      ExpectFault(
          team, body("store<f32>(BUFFER, 0, f32(lane));"),
          AllOf(HasSubstr("writes 4 bytes 0 bytes into"), HasSubstr("wrote since the last")));
    }
  }
}

TEST_F(TeamsTest, ARaceNamesBothThreadsAndThePlace) {
  EXPECT_THAT(
      std::string(Fate(32,
                       "if (lane == 3) store<f32>(a.b1, 5, 1);\n"
                       "const f32 x = load<f32>(a.b1, lane == 9 ? 5 : 100 + lane);\n"
                       "store<f32>(a.b0, lane, x);")
                      .message()),
      HasSubstr("athanor_kernel: thread 9 of team 0 reads 4 bytes 20 bytes into an argument "
                "of 1024, which thread 3 wrote since the last barrier: between them a "
                "barrier is missing"));
}

TEST_F(TeamsTest, TheNextItemsWritesRaceWithThisItemsReads) {
  ExpectFault(32,
              "const Buffer b = shared<T>(0, 128); store<f32>(b, lane, 1); barrier<T>();\n"
              "store<f32>(a.b1, g * T + lane, load<f32>(b, T - 1 - lane));",
              HasSubstr("of the team's shared memory, from byte 0 on, which thread"), 2);
}

TEST_F(TeamsTest, NeighbouringBytesDoNotRace) {
  EXPECT_TRUE(Fate(32,
                   "store<u8>(a.b1, lane, u8(lane)); store<u16>(a.b1, 100 + lane, u16(lane));\n"
                   "store<u8>(shared<T>(0, 32), lane, load<u8>(a.b1, lane));")
                  .ok());
  ExpectFault(32, "store<u8>(a.b1, lane / 2, 1);", HasSubstr("writes 1 bytes"));
}

TEST_F(TeamsTest, ScratchThatNobodyWroteIsCaught) {
  for (const auto& [buffer, place] :
       {std::pair("shared<T>(128, 256)", "256 bytes of the team's shared memory, from byte 128 on"),
        std::pair("scratch<T>(a, 128, 256)",
                  "256 bytes of the team's workspace, from byte 128 on")}) {
    ExpectFault(32,
                absl::StrCat("const Buffer b = ", buffer, ";\n",
                             "if (lane != 5) store<f32>(b, lane, 1);\n"
                             "barrier<T>();\n"
                             "store<f32>(a.b1, lane, load<f32>(b, lane));"),
                HasSubstr(absl::StrCat("thread 5 of team 0 reads 4 bytes 20 bytes into ", place,
                                       ", which no thread of the team has written")));
    // The team before left nothing.
    ExpectFault(32,
                absl::StrCat("const Buffer b = ", buffer, ";\n",
                             "if (g == a.s0) { store<f32>(b, lane, 1); barrier<T>(); }\n"
                             "store<f32>(a.b1, g * T + lane, load<f32>(b, lane));"),
                HasSubstr("of team 1 reads"), 2, 2);
  }
}

// Four items share each sum: the last to draw adds up what all four stored, and says which it was.
constexpr char kTicket[] = R"(
  store<f32>(a.b0, g * T + lane, f32(g + lane));
  const i32 before = ticket<T>(a.b1, g / 4, 4);
  if (before == 3) {
    f32 sum = 0;
    for (i64 i = 0; i < 4; ++i) sum += load<f32>(a.b0, (g / 4 * 4 + i) * T + T - 1 - lane);
    store<f32>(a.b0, (a.items + g / 4) * T + lane, sum);
    if (lane == 0) store<f32>(a.b0, (a.items + a.items / 4) * T + g / 4, f32(g));
  }
)";

class TicketsTest : public TeamsTest {
 protected:
  static constexpr int kItems = 8, kTiles = kItems / 4;

  // Opens a device of this order, runs `body` for the items, and returns what the device says.
  absl::Status FateOfSums(absl::string_view body, const char* order, unsigned blocks = kItems,
                          unsigned char counters = 0) {
    setenv("ATHANOR_EMULATOR_ORDER", order, 1);
    Open();
    std::string& code = codes_[std::string(body)];
    if (code.empty()) code = Code(TeamProgram(128, 64, body));
    const CudaFunction function = LoadCode(code);
    memory_ = Upload(std::vector<float>((kItems + kTiles + 1) * 128, -1));
    counters_ = Upload(std::vector<unsigned char>(sizeof(uint32_t) * kTiles, counters));
    EXPECT_EQ(Launch(function, {.b0 = memory_, .b1 = counters_, .items = kItems}, blocks, 128),
              kCudaSuccess);
    return Wait();
  }
  // Expects the fault in each order.
  template <typename Matcher>
  void ExpectFaultOf(absl::string_view body, const Matcher& text, unsigned char counters = 0) {
    for (const char* order : kOrders) {
      EXPECT_THAT(std::string(FateOfSums(body, order, kItems, counters).message()), text) << order;
    }
  }
  // Returns kTicket with another text for a part of it.
  static std::string With(absl::string_view was, absl::string_view is) {
    EXPECT_THAT(kTicket, HasSubstr(std::string(was)));
    return absl::StrReplaceAll(kTicket, {{was, is}});
  }

  std::map<std::string, std::string> codes_;
  BufferArgument memory_, counters_;
};

TEST_F(TicketsTest, TheLastToDrawSeesWhatAllStored) {
  for (const char* order : kOrders) {
    for (const unsigned blocks : {unsigned{kItems}, 3u, 1u}) {
      const absl::Status status = FateOfSums(kTicket, order, blocks);
      ASSERT_TRUE(status.ok()) << status;
      const std::vector<float> got = Download<float>(memory_);
      for (int tile = 0; tile < kTiles; ++tile) {
        for (int lane = 0; lane < 128; ++lane) {
          ASSERT_EQ(got[(kItems + tile) * 128 + lane], 4 * (127 - lane) + 16 * tile + 6) << order;
        }
      }
      EXPECT_THAT(Download<uint32_t>(counters_), Each(0u)) << order;
      if (blocks != kItems) continue;
      const float last = got[(kItems + kTiles) * 128];
      if (order == kOrders[0]) EXPECT_EQ(last, 3);
      if (order == kOrders[1]) EXPECT_EQ(last, 0);
    }
  }
}

TEST_F(TicketsTest, ACounterThatIsNotDrawnByAllIsCaught) {
  ExpectFaultOf(With("g / 4, 4)", "g / 4, 5)"),
                HasSubstr("athanor_kernel: counter not reset: it holds 4 when the launch ends, 0 "
                          "bytes into an argument of 8"));
  ExpectFaultOf("if (g != 6) ticket<T>(a.b1, g / 4, 4);",
                HasSubstr("counter not reset: it holds 3 when the launch ends, 4 bytes into an "
                          "argument of 8"));
}

TEST_F(TicketsTest, CountersThatDoNotBeginAtZeroAreCaught) {
  ExpectFaultOf(kTicket, HasSubstr("draws a counter that holds 16843009 when the launch begins"),
                /*counters=*/1);
}

TEST_F(TicketsTest, StoresThatNoDrawOrdersAreCaught) {
  const auto race = HasSubstr("in the same launch: teams do not wait for each other");
  // A store behind the ticket.
  const std::string store = "store<f32>(a.b0, g * T + lane, f32(g + lane));";
  ExpectFaultOf(
      absl::StrReplaceAll(With(store, ""), {{"a.b1, g / 4, 4);", "a.b1, g / 4, 4); " + store}}),
      race);
  // Sums that are added up before all are there.
  ExpectFaultOf(With("before == 3", "before == 2"), race);
  // Each item draws a counter of another sum.
  ExpectFaultOf(With("ticket<T>(a.b1, g / 4, 4)", "ticket<T>(a.b1, g % 2, 4)"), race);
  // A number that is drawn without a ticket, as by atomics without fences, orders nothing.
  ExpectFaultOf(With("ticket<T>(a.b1, g / 4, 4)", "i32(g % 4); barrier<T>()"), race);
}

// Some order of teams mixes the items of two sums.
TEST_F(TicketsTest, OneCounterForTwoSumsIsCaught) {
  int caught = 0;
  for (const char* order : kOrders) {
    caught += !FateOfSums(With("ticket<T>(a.b1, g / 4, 4)", "ticket<T>(a.b1, 0, 4)"), order).ok();
  }
  EXPECT_GT(caught, 0);
}

TEST_F(TicketsTest, OnlyTicketsTouchCounters) {
  const auto only = HasSubstr("a counter of tickets: only they may touch it");
  ExpectFaultOf("ticket<T>(a.b1, g / 4, 4); load<u32>(a.b1, g / 4);", only);
  ExpectFaultOf("ticket<T>(a.b1, g / 4, 5); if (lane == 0) store<u32>(a.b1, g / 4, 0);", only);
}

TEST_F(TicketsTest, ABlockDrawsOneCounterAtATime) {
  ExpectFaultOf("ticket<T>(a.b1, lane / 64, 4);",
                HasSubstr("draws another counter than the first thread"));
  ExpectFaultOf("ticket<T>(a.b1, 2, 4);",
                HasSubstr("writes 4 bytes 8 bytes into an argument of 8"));
  ExpectFaultOf("if (lane != 5) ticket<T>(a.b1, 0, 4);",
                AllOf(HasSubstr("wait for a ticket at"), HasSubstr("; thread 5 ended")));
}

TEST_F(TeamsTest, ALaneThatIsAbsentFromASwapIsCaught) {
  for (const int team : {32, 128}) {
    ExpectFault(team,
                "f32 v = 1;\n"
                "if (lane != 5) v = swap<T>(v, 1);\n"
                "store<f32>(a.b1, lane, v);",
                AllOf(HasSubstr("team 0 stands still, since its threads do not meet: threads 0-4, "
                                "6-31"),
                      HasSubstr("wait for a swap at "), HasSubstr("kernel.cu:2:")));
  }
  // An absent lane does not keep those of other waves.
  ExpectFault(128, "if (lane != 77) store<i64>(a.b1, lane, from_first<T>(lane));",
              HasSubstr("threads 0-63, 77, 96-127 ended; threads 64-76, 78-95 wait for lane 0's "
                        "value at"));
}

TEST_F(TeamsTest, ABarrierThatNotAllReachIsCaught) {
  for (const int team : {4, 32, 128}) {
    ExpectFault(team, "if (lane == 1) return;\nbarrier<T>();",
                AllOf(HasSubstr("wait for a barrier at"), HasSubstr("thread 1 ended")));
    ExpectFault(team, "if (lane == 1) {\nbarrier<T>();\n} else {\nbarrier<T>();\n}",
                AllOf(HasSubstr("wait for a barrier at"), HasSubstr("kernel.cu:2:"),
                      HasSubstr("kernel.cu:4:"), HasSubstr("thread 1 waits for a barrier at")));
    ExpectFault(
        team, "if (lane == 1) barrier<T>(); else swap<T>(1, 1);",
        AllOf(HasSubstr("wait for a swap at"), HasSubstr("thread 1 waits for a barrier at")));
    // A loop that one thread leaves later.
    ExpectFault(team, "for (i64 i = 0; i < 3 + (lane == 2); ++i) barrier<T>();",
                AllOf(HasSubstr("thread 2 waits for a barrier at"), HasSubstr("ended")));
  }
}

TEST_F(TeamsTest, ACellOfAnErrorRecordIsCheckedBeforeItIsWatched) {
  // Half of it is in the team's memory, which nobody has written.
  const std::string code =
      Code(TeamProgram(32, 1020,
                       "Cell* const last = reinterpret_cast<Cell*>(shared<T>(0, 64).data + 1016);\n"
                       "if (lane == 0) store<i64>(a.b1, 0, *last);"));
  EXPECT_THAT(std::string(FateOfCode(32, code, 1, 1).message()),
              AllOf(HasSubstr("thread 0 of team 0 reads 8 bytes"), Not(HasSubstr("has written"))));
}

TEST_F(TeamsTest, MeetingsOfAnotherTeamAreCaught) {
  EXPECT_THAT(std::string(Fate(32, "barrier<16>();").message()),
              AllOf(HasSubstr("thread 0 of team 0 waits for a barrier at "),
                    HasSubstr("of a team of 16 threads; the kernel's teams have 32")));
  Open();
  EXPECT_THAT(std::string(Fate(32, "barrier<128>();").message()),
              HasSubstr("of a team of 128 threads; the kernel's teams have 32"));
  Open();
  EXPECT_THAT(
      std::string(Fate(32, "store<i64>(a.b1, first(a), 1);").message()),
      HasSubstr("thread 0 of team 0 takes its team for one of 1 threads; the kernel's teams "
                "have 32"));
  Open();
  EXPECT_THAT(std::string(Fate(32, "g += teams(a);").message()),
              HasSubstr("thread 0 of team 0 takes its team for one of 1 threads"));
  for (const char* body : {"barrier<32>();", "lane_of<32>();", "shared<32>(0, 8);",
                           "from_first<32>(1);", "scratch<32>(a, 0, 8);", "teams<32>(a);"}) {
    Open();
    EXPECT_THAT(std::string(KernelTest::Fate(body).message()),
                HasSubstr("thread 0 of 1 takes its team for one of 32 threads; the kernel's teams "
                          "have 1"))
        << body;
  }
  for (const int step : {0, 3, 32}) {
    Open();
    EXPECT_THAT(std::string(Fate(32, absl::StrCat("swap<T>(1, ", step, ");")).message()),
                HasSubstr(absl::StrCat(" by ", step, "; it may be a power of two up to 16")));
  }
}

TEST_F(TeamsTest, BlocksThatAreNoWholeTeamsAreCaught) {
  struct Case {
    int team;
    unsigned threads;
  };
  for (const Case& c : {Case{32, 48}, Case{32, 16}, Case{128, 64}, Case{32, 256}, Case{128, 256}}) {
    Open();
    const CudaFunction function = Load(TeamProgram(c.team, 0, "barrier<T>();"));
    ASSERT_EQ(Launch(function, {.items = 1}, 2, c.threads), kCudaSuccess);
    EXPECT_THAT(
        std::string(Wait().message()),
        HasSubstr(absl::StrCat("athanor_kernel: blocks of ", c.threads, " threads; its teams of ",
                               c.team, " need blocks of whole teams, of at most 128 threads")));
  }
}

TEST_F(TeamsTest, TwoTeamsAtOneCellAreCaught) {
  ExpectFault(32, "if (lane == 0) store<f32>(a.b1, 3, 1);",
              AllOf(HasSubstr("thread 0 of team "),
                    HasSubstr("writes 4 bytes 12 bytes into an argument of 1024, which thread 0 of "
                              "team "),
                    HasSubstr("wrote in the same launch: teams do not wait for each other")),
              2, 2);
  // Writes over what another team reads, or wrote.
  ExpectFault(32,
              "if (g == 0) store<f32>(a.b1, lane, 1);\n"
              "if (g == 1) store<f32>(a.b0, lane, load<f32>(a.b1, lane));",
              HasSubstr("in the same launch"), 2, 2);
  // One team may do so for two items.
  EXPECT_TRUE(Fate(32, "if (lane == 0) store<f32>(a.b1, 3, 1);", 2, 1).ok());
}

TEST_F(TeamsTest, TheLowestFailedItemIsReportedWhoeverFails) {
  for (const char* order : kOrders) {
    setenv("ATHANOR_EMULATOR_ORDER", order, 1);
    Open();
    const CudaFunction function =
        Load(TeamProgram(32, 0, "if (g % 5 == 3 && lane == 7) record(a.error, g, 100 + g, a.s0);"));
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
    ASSERT_EQ(Launch(function, {.s0 = 40, .items = 29, .error = slot.data}, 2, 128), kCudaSuccess);
    const auto [error, lock] = Download<ErrorSlot>(slot)[0];
    EXPECT_EQ(error.item, 3) << order;
    EXPECT_EQ(error.index, 103);
    EXPECT_EQ(lock, 0);
  }
}

// Threads that fail at once neither lose the lowest item nor mix two records: in a random order
// they change between any two steps of writing.
TEST_F(TeamsTest, RecordsAreWholeThoughThreadsWriteThemAtOnce) {
  const std::string code = Code(TeamProgram(
      32, 0,
      "const i64 item = (lane * 11 + 5) % 32;\nrecord<T>(a.error, item, 10 + item, 100 + item);"));
  for (int seed = 0; seed < 300; ++seed) {
    setenv("ATHANOR_EMULATOR_ORDER", std::to_string(seed).c_str(), 1);
    if (seed == 0) Open();
    const CudaFunction function = LoadCode(code);
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
    ASSERT_EQ(Launch(function, {.items = 1, .error = slot.data}, 1, 32), kCudaSuccess);
    const absl::Status status = Wait();
    ASSERT_TRUE(status.ok()) << status;
    const auto [error, lock] = Download<ErrorSlot>(slot)[0];
    ASSERT_EQ(error.code, 1);
    ASSERT_EQ(error.item, 0) << seed;
    ASSERT_EQ(error.index, 10) << seed;
    ASSERT_EQ(error.extent, 100) << seed;
    ASSERT_EQ(lock, 0);
  }
}

// Records that are written without a lock are mixed in some order.
TEST_F(TeamsTest, ATornRecordShows) {
  const std::string code = Code(TeamProgram(32, 0,
                                            "publish(&a.error->item, lane);\n"
                                            "publish(&a.error->index, lane);"));
  int torn = 0;
  for (int seed = 0; seed < 20; ++seed) {
    setenv("ATHANOR_EMULATOR_ORDER", std::to_string(seed).c_str(), 1);
    const CudaFunction function = LoadCode(code);
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
    ASSERT_EQ(Launch(function, {.items = 1, .error = slot.data}, 1, 32), kCudaSuccess);
    const auto [error, lock] = Download<ErrorSlot>(slot)[0];
    torn += error.item != error.index;
  }
  EXPECT_GT(torn, 5);
}

TEST_F(TeamsTest, AThreadThatWaitsWithALockIsCaught) {
  const CudaFunction function =
      Load(TeamProgram(32, 0, "if (lane == 4) try_lock(&a.error->lock);\nbarrier<T>();"));
  const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
  ASSERT_EQ(Launch(function, {.items = 1, .error = slot.data}, 1, 32), kCudaSuccess);
  EXPECT_THAT(std::string(Wait().message()),
              HasSubstr("thread 4 of team 0 waits for others while it holds a lock"));
  Open();
  const BufferArgument taken = Allocate(sizeof(ErrorSlot));
  ASSERT_EQ(Launch(Load(TeamProgram(32, 0, "record<T>(a.error, -2, 0, 0);")),
                   {.items = 1, .error = taken.data}, 1, 32),
            kCudaSuccess);
  EXPECT_THAT(std::string(Wait().message()), HasSubstr("of a lock that no other thread can hold"));
}

TEST_F(TeamsTest, AnErrorThatIsWrittenWithoutItsLockIsCaught) {
  for (const char* order : kOrders) {
    setenv("ATHANOR_EMULATOR_ORDER", order, 1);
    Open();
    const CudaFunction function = Load(TeamProgram(32, 0, "a.error->index = lane;"));
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
    ASSERT_EQ(Launch(function, {.items = 1, .error = slot.data}, 1, 32), kCudaSuccess);
    EXPECT_THAT(std::string(Wait().message()), HasSubstr("a barrier is missing")) << order;
  }
}

TEST_F(TeamsTest, AnAccessOutsideItsPartOfSharedMemoryIsCaught) {
  ExpectFault(32, "store<f32>(shared<T>(64, 124), lane, 1);",
              HasSubstr("thread 31 of team 0 writes 4 bytes 124 bytes into 124 bytes of the team's "
                        "shared memory, from byte 64 on"));
  ExpectFault(32, "shared<T>(1000, 28);",
              HasSubstr("writes 28 bytes 1000 bytes into 1024 bytes of the team's shared memory, "
                        "from byte 0 on"));
  ExpectFault(32, "scratch<T>(a, 500, 16);", HasSubstr("writes 16 bytes 500 bytes into"));
  // Through a pointer of its own, into the team beside it.
  ExpectFault(32, "Buffer b = shared<T>(0, 1024); b.bytes = 2048; store<f32>(b, 256 + lane, 1);",
              HasSubstr("writes 4 bytes"));
}

TEST_F(TeamsTest, TeamsThatNoGpuHasDoNotCompile) {
  const auto error = [](int team, int shared_bytes) {
    return std::string(emulator::Compiler()
                           .value()
                           ->Compile(TeamProgram(team, shared_bytes, ""))
                           .status()
                           .message());
  };
  EXPECT_EQ(error(128, 48 << 10), "");
  EXPECT_EQ(error(32, 12 << 10), "");
  for (const int team : {3, 64, 256}) {
    EXPECT_THAT(error(team, 0), HasSubstr("a team is 1, 2, 4, 8, 16, 32 or 128 threads"));
  }
  EXPECT_THAT(error(32, (12 << 10) + 64), HasSubstr("have 48 KiB of shared memory"));
}

TEST_F(TeamsTest, AnOrderThatIsNoneIsNamed) {
  setenv("ATHANOR_EMULATOR_ORDER", "sideways", 1);
  EXPECT_THAT(std::string(Fate(32, "").message()),
              HasSubstr("ATHANOR_EMULATOR_ORDER may be ascending, descending or a number"));
}

// Thread numbers in the order in which threads of a team come by.
TEST_F(TeamsTest, OrdersDiffer) {
  std::vector<std::vector<int64_t>> seen;
  for (const char* order : kOrders) {
    setenv("ATHANOR_EMULATOR_ORDER", order, 1);
    const CudaFunction function = Load(TeamProgram(
        32, 0,
        "barrier<T>(); while (!try_lock(&a.error->lock)) {} const i64 n = peek(&a.error->index);\n"
        "a.error->index = n + 1; unlock(&a.error->lock); store<i64>(a.b1, n, lane);"));
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1)), out = Allocate(8 * 32);
    ASSERT_EQ(Launch(function, {.b1 = out, .items = 1, .error = slot.data}, 1, 32), kCudaSuccess);
    seen.push_back(Download<int64_t>(out));
    std::vector<int64_t> sorted = seen.back();
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(sorted[i], i) << order;
  }
  EXPECT_TRUE(std::is_sorted(seen[0].begin(), seen[0].end()));
  EXPECT_TRUE(std::is_sorted(seen[1].rbegin(), seen[1].rend()));
  EXPECT_NE(seen[2], seen[0]);
  EXPECT_NE(seen[2], seen[1]);
  EXPECT_NE(seen[2], seen[3]);
}

class CountersTest : public TeamsTest {
 protected:
  // Runs items of a kernel, a team each, on two buffers of 4096 numbers; returns what was counted.
  std::string Counted(int team, absl::string_view body, const char* counts = "1", int items = 1) {
    setenv("ATHANOR_EMULATOR_COUNTS", counts, 1);
    if (*counts == '\0') unsetenv("ATHANOR_EMULATOR_COUNTS");
    Open();
    const CudaFunction function = Load(TeamProgram(team, team > 1 ? 4096 + 128 : 0, body));
    EXPECT_EQ(Launch(function,
                     {.b0 = Upload(std::vector<float>(4096, 1)),
                      .b1 = Upload(std::vector<float>(4096, 2)),
                      .s0 = 32,
                      .items = items},
                     items, team),
              kCudaSuccess);
    const absl::Status status = Wait();
    EXPECT_TRUE(status.ok()) << status;
    return emulator::CountersText(emulator::CountersOf(library_));
  }
};

TEST_F(CountersTest, ACopyOfNeighboursTakesFewestSectors) {
  EXPECT_EQ(Counted(32,
                    "for (i64 x = 0; x < 1024; x += T) "
                    "store<f32>(a.b1, x + lane, load<f32>(a.b0, x + lane));"),
            "loads 32 requests 128 sectors 4096 bytes\n"
            "stores 32 requests 128 sectors 4096 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 0 exchanges 0\n");
}

TEST_F(CountersTest, ACopyOfRowsByLanesTakesASectorEach) {
  EXPECT_EQ(Counted(32,
                    "for (i64 x = 0; x < 32; ++x) "
                    "store<f32>(a.b1, x * 32 + lane, load<f32>(a.b0, lane * 32 + x));"),
            "loads 32 requests 1024 sectors 4096 bytes\n"
            "stores 32 requests 128 sectors 4096 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 0 exchanges 0\n");
  // All read one number: one sector serves them. A tail is a request of fewer.
  EXPECT_EQ(Counted(128,
                    "f32 v = load<f32>(a.b0, 5);\n"
                    "for (i64 x = 0; x < 200; x += T) if (x + lane < 200) "
                    "store<f32>(a.b1, x + lane, v);"),
            "loads 4 requests 4 sectors 512 bytes\n"
            "stores 7 requests 25 sectors 800 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 0 exchanges 0\n");
}

// A transposition through shared memory: by rows of 32 numbers a column is one bank; of 33, all.
TEST_F(CountersTest, ConflictsOfBanksShowInATransposition) {
  constexpr char kTranspose[] =
      "const Buffer t = shared<T>(0, 4224);\n"
      "for (i64 x = 0; x < 32; ++x) store<f32>(t, x * WIDTH + lane, load<f32>(a.b0, x * 32 + "
      "lane));\n"
      "barrier<T>();\n"
      "for (i64 x = 0; x < 32; ++x) store<f32>(a.b1, x * 32 + lane, load<f32>(t, lane * WIDTH + "
      "x));\n"
      "f32 sum = all<T>(f32(lane), [](f32 x, f32 y) { return x + y; });\n"
      "if (lane == 0) store<f32>(a.b1, 2000, sum);";
  for (const auto& [width, conflicts] : {std::pair("32", 32 * 31), std::pair("33", 0)}) {
    EXPECT_EQ(Counted(32, absl::StrReplaceAll(kTranspose, {{"WIDTH", width}})),
              absl::StrCat("loads 32 requests 128 sectors 4096 bytes\n"
                           "stores 33 requests 129 sectors 4100 bytes\n"
                           "shared 64 requests 8192 bytes ",
                           conflicts, " conflicts\nbarriers 1 exchanges 6\n"));
  }
}

// Teams of one that run side by side are a wave: neighbours share sectors, rows apart do not.
TEST_F(CountersTest, TeamsOfOneAreCountedByWaves) {
  const std::string neighbours = "store<f32>(a.b1, g, load<f32>(a.b0, g));";
  EXPECT_EQ(Counted(1, neighbours, "1", 64),
            "loads 2 requests 8 sectors 256 bytes\n"
            "stores 2 requests 8 sectors 256 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 0 exchanges 0\n");
  EXPECT_EQ(Counted(1, "store<f32>(a.b1, g, load<f32>(a.b0, g * 32));", "1", 64),
            "loads 2 requests 64 sectors 256 bytes\n"
            "stores 2 requests 8 sectors 256 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 0 exchanges 0\n");
  EXPECT_EQ(Counted(1, neighbours, "", 64),
            "loads 0 requests 0 sectors 0 bytes\n"
            "stores 0 requests 0 sectors 0 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 0 exchanges 0\n");
}

TEST_F(CountersTest, AccessesAreCountedOnRequestOnly) {
  EXPECT_EQ(Counted(32, "store<f32>(a.b1, lane, load<f32>(a.b0, lane)); barrier<T>();", ""),
            "loads 0 requests 0 sectors 0 bytes\n"
            "stores 0 requests 0 sectors 0 bytes\n"
            "shared 0 requests 0 bytes 0 conflicts\n"
            "barriers 1 exchanges 0\n");
}

}  // namespace
}  // namespace athanor
