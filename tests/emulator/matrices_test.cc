// Matrix instructions and copies beside the threads: right kernels in every order of threads, and
// each mistake that a GPU would not tell of.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/value/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulator/counters.h"
#include "tests/emulator/kernel_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOrders[] = {"ascending", "descending", "1", "20261127"};
constexpr int kShared = 8192;

// Returns the program whose blocks do `body` with each `lane`, with two halves of shared memory.
CudaSource BlockProgram(absl::string_view body) {
  return CudaSourceOf(
      absl::StrCat(kArguments, "TEAM_KERNEL(athanor_kernel, 128, ", kShared, ") {\n",
                   "const i64 lane = lane_of<128>();\n"
                   "const Buffer s = shared<128>(0, 4096);\n"
                   "const Buffer t = shared<128>(4096, 4096);\n"
                   "for (i64 g = first<128>(a); g < a.items; g += teams<128>(a)) {\n"
                   "#line 1\n",
                   body, "\n}\n}\n"),
      "sm_80");
}

// An instruction's operands of small integers, which every dtype of an operand holds exactly.
struct Instruction {
  const char* name;
  const char* element;
  const char* sum;
  DType dtype;
  int k;
};
constexpr Instruction kInstructions[] = {{"f16", "u16", "f32", DType::kF16, 16},
                                         {"bf16", "u16", "f32", DType::kBF16, 16},
                                         {"i8", "i8", "i32", DType::kI8, 32},
                                         {"u8", "u8", "i32", DType::kU8, 32}};

// A matrix row by row, as numbers and as an operand's bytes.
struct Matrix {
  std::vector<int> values;
  std::vector<uint8_t> bytes;
};
Matrix Random(DType dtype, int elements, std::mt19937& rng) {
  Matrix m;
  for (int i = 0; i < elements; ++i) {
    const int value = static_cast<int>(rng() % 15) - (IsUnsigned(dtype) ? 0 : 7);
    const uint64_t bits = IsFloat(dtype) ? EncodeFloat(dtype, value) : value;
    m.values.push_back(value);
    for (int b = 0; b < DTypeBytes(dtype); ++b) m.bytes.push_back(bits >> (8 * b) & 0xff);
  }
  return m;
}

class MatricesTest : public KernelTest {
 protected:
  absl::Status FateOf(CudaFunction function, BufferArgument from) {
    Arguments arguments = {.b0 = from, .b1 = Upload(std::vector<float>(1024, 2)), .items = 1};
    EXPECT_EQ(Launch(function, arguments, 1, 128), kCudaSuccess);
    return Wait();
  }
  // Expects `body` to end with `text` in each order of threads.
  template <typename Matcher>
  void ExpectFault(absl::string_view body, const Matcher& text) {
    const std::string code = Code(BlockProgram(body));
    for (const char* order : kOrders) {
      setenv("ATHANOR_EMULATOR_ORDER", order, 1);
      Open();
      const absl::Status status = FateOf(LoadCode(code), Upload(std::vector<float>(1024, 1)));
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << order << ": " << body;
      EXPECT_THAT(std::string(status.message()), text) << order;
    }
  }
  void ExpectRuns(absl::string_view body) {
    const std::string code = Code(BlockProgram(body));
    for (const char* order : kOrders) {
      setenv("ATHANOR_EMULATOR_ORDER", order, 1);
      Open();
      const absl::Status status = FateOf(LoadCode(code), Upload(std::vector<float>(1024, 1)));
      EXPECT_TRUE(status.ok()) << order << ": " << status;
    }
  }
};

// Each wave has a left operand of its own; rows lie 16 bytes further apart than they are long.
// Thread t has in slot i the sum of row t / 4 + 8 * (i / 2), column 2 * (t % 4) + i % 2.
TEST_F(MatricesTest, ProductsAreThoseOfMatrices) {
  std::mt19937 rng(3);
  for (const Instruction& in : kInstructions) {
    for (const bool transposed : {false, true}) {
      const bool bytes = DTypeBytes(in.dtype) == 1;
      if (transposed && bytes) continue;  // such operands lie along the sums
      SCOPED_TRACE(absl::StrCat(in.name, transposed ? " transposed" : ""));
      const Matrix left = Random(in.dtype, 4 * 16 * in.k, rng);
      const Matrix right = Random(in.dtype, 8 * in.k, rng);  // n rows of k
      const std::string body = absl::StrReplaceAll(
          R"(
          constexpr i64 K = $K, P = 16 / sizeof($T), R = $SWAP ? 72 : K + P, C = $SWAP ? 16 : K + P;
          for (i64 i = lane; i < 64 * K; i += 128)
            store<$T>(s, $SWAP ? i % K * R + i / K : i / K * R + i % K, load<$T>(a.b0, i));
          for (i64 i = lane; i < 8 * K; i += 128)
            store<$T>(t, $SWAP ? i % K * C + i / K : i / K * C + i % K, load<$T>(a.b0, 64 * K + i));
          barrier<128>();
          const i64 wave = lane / 32;
          const Left x = $LEFT<$T>(s, wave * 16 * ($SWAP ? 1 : R), R);
          const Right y = $RIGHT<$T>(t, 0, C);
          Sums<$S> sums = {{1, 2, 3, 4}};
          sums = multiply_$NAME(x, y, sums);
          sums = multiply_$NAME(x, y, sums);
          for (i64 i = 0; i < 4; ++i) store<$S>(a.b1, i * 128 + lane, sums.x[i]);)",
          {{"$K", absl::StrCat(in.k)},
           {"$T", in.element},
           {"$SWAP", transposed ? "1" : "0"},
           {"$LEFT", transposed ? "load_left_transposed" : "load_left"},
           {"$RIGHT", transposed ? "load_right" : "load_right_transposed"},
           {"$S", in.sum},
           {"$NAME", in.name}});
      const std::string code = Code(BlockProgram(body));
      std::vector<uint8_t> given = left.bytes;
      given.insert(given.end(), right.bytes.begin(), right.bytes.end());
      for (const char* order : kOrders) {
        setenv("ATHANOR_EMULATOR_ORDER", order, 1);
        Open();
        const BufferArgument out = Allocate(4 * 128 * 4);
        ASSERT_EQ(Launch(LoadCode(code), {.b0 = Upload(given), .b1 = out, .items = 1}, 1, 128),
                  kCudaSuccess);
        ASSERT_TRUE(Wait().ok()) << Wait();
        const std::vector<float> floats = Download<float>(out);
        const std::vector<int32_t> integers = Download<int32_t>(out);
        for (int i = 0; i < 4 * 128; ++i) {
          const int slot = i / 128, wave = i % 128 / 32, thread = i % 32;
          const int row = thread / 4 + slot / 2 * 8, column = thread % 4 * 2 + slot % 2;
          int want = 1 + slot;
          for (int k = 0; k < in.k; ++k) {
            want += 2 * left.values[(wave * 16 + row) * in.k + k] * right.values[column * in.k + k];
          }
          const double got = IsFloat(in.dtype) ? floats[i] : integers[i];
          ASSERT_EQ(got, want) << order << " wave " << wave << " thread " << thread << " slot "
                               << slot;
        }
      }
    }
  }
}

TEST_F(MatricesTest, FloatSumsRoundOnceAndKeepNan) {
  // 1 + 2^-24 twice: each is lost alone, not both together.
  const float tiny = 0.000244140625f;  // 2^-12
  const uint16_t bits = static_cast<uint16_t>(EncodeFloat(DType::kF16, tiny));
  const std::string body = R"(
      for (i64 i = lane; i < 16 * 24; i += 128) store<u16>(s, i, i % 24 < 2 ? load<u16>(a.b0, 0) : 0);
      barrier<128>();
      const Left x = load_left<u16>(s, 0, 24);
      const Right y = load_right_transposed<u16>(s, 0, 24);
      Sums<f32> sums = {{1, as<f32>(0x7fc00000u), 0, 0}};
      sums = multiply_f16(x, y, sums);
      for (i64 i = 0; i < 4; ++i) store<f32>(a.b1, i * 128 + lane, sums.x[i]);)";
  const BufferArgument out = Allocate(4 * 128 * 4);
  ASSERT_EQ(Launch(Load(BlockProgram(body)),
                   {.b0 = Upload(std::vector<uint16_t>(64, bits)), .b1 = out, .items = 1}, 1, 128),
            kCudaSuccess);
  const std::vector<float> got = Download<float>(out);
  EXPECT_EQ(got[0], 1 + 2 * tiny * tiny);
  EXPECT_NE(got[128], got[128]);
  EXPECT_EQ(got[256], 2 * tiny * tiny);
}

constexpr char kCopy[] = "copy<f32, 4>(s, 4 * lane, a.b0, 4 * lane, 1);\n";

// Two stages, one ahead; zeros where a thread is not active.
TEST_F(MatricesTest, CopiesLandAtTheirWait) {
  const std::string body = R"(
      copy<f32, 4>(s, 4 * lane, a.b0, 4 * lane, lane % 2 == 0);
      commit_copies();
      copy<f32, 4>(t, 4 * lane, a.b0, 512 + 4 * lane, 1);
      commit_copies();
      wait_copies<1>();
      barrier<128>();
      for (i64 i = 0; i < 4; ++i) store<f32>(a.b1, i * 128 + lane, load<f32>(s, i * 128 + lane));
      wait_copies<0>();
      barrier<128>();
      for (i64 i = 0; i < 4; ++i)
        store<f32>(a.b1, 512 + i * 128 + lane, load<f32>(t, i * 128 + lane));)";
  std::vector<float> from(1025);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
  const std::string code = Code(BlockProgram(body));
  for (const char* order : kOrders) {
    // At an odd place the threads move the elements themselves.
    for (const int odd : {0, 1}) {
      setenv("ATHANOR_EMULATOR_ORDER", order, 1);
      Open();
      BufferArgument source = Upload(from);
      source.data += 4 * odd;
      source.bytes = 4096;
      const BufferArgument out = Allocate(4096);
      ASSERT_EQ(Launch(LoadCode(code), {.b0 = source, .b1 = out, .items = 1}, 1, 128),
                kCudaSuccess);
      ASSERT_TRUE(Wait().ok()) << Wait();
      const std::vector<float> got = Download<float>(out);
      for (int i = 0; i < 1024; ++i) {
        const bool zero = i < 512 && i / 4 % 2 == 1;
        ASSERT_EQ(got[i], zero ? 0 : i + 1 + odd) << order << " " << i;
      }
    }
  }
}

TEST_F(MatricesTest, UsedBeforeTheCopysWait) {
  const std::string ready = absl::StrCat(kCopy, "commit_copies();\n");
  const std::string use = "barrier<128>(); store<f32>(a.b1, lane, load<f32>(s, 4 * lane));\n";
  const std::string end = "wait_copies<0>();\n";
  ExpectRuns(absl::StrCat(ready, "wait_copies<0>();", use, end));
  const auto under_way = HasSubstr("to which a copy is under way: no wait for it came before");
  ExpectFault(absl::StrCat(ready, use, end), under_way);
  // The thread's own elements, without a barrier.
  ExpectFault(absl::StrCat(ready, "store<f32>(a.b1, lane, load<f32>(s, 4 * lane));", end),
              under_way);
  // A wait for the group before; a copy that is in no group.
  ExpectFault(absl::StrCat(ready, "wait_copies<1>();", use, end), under_way);
  ExpectFault(absl::StrCat(kCopy, "wait_copies<0>();", use, end), under_way);
  // As a fragment, and overwritten.
  ExpectFault(absl::StrCat(ready, "barrier<128>(); const Left x = load_left<u16>(s, 0, 24);", end),
              under_way);
  ExpectFault(absl::StrCat(ready, "store<f32>(s, 4 * lane, 1.0f);", end), under_way);
  ExpectFault(absl::StrCat(ready, kCopy, end), under_way);
}

TEST_F(MatricesTest, NoBarrierBehindTheWait) {
  const std::string fill =
      "for (i64 i = lane; i < 512; i += 128) store<f32>(s, i, 1.0f);\nbarrier<128>();\n";
  const std::string copy = absl::StrCat(kCopy, "commit_copies(); wait_copies<0>();\n");
  const std::string use = "store<f32>(a.b1, lane, load<f32>(s, 4 * (127 - lane)));";
  ExpectRuns(absl::StrCat(fill, copy, "barrier<128>();", use));
  ExpectFault(absl::StrCat(fill, copy, use), HasSubstr("a barrier is missing"));
}

TEST_F(MatricesTest, AStageIsReleasedEarly) {
  const std::string step =
      absl::StrCat(kCopy, "commit_copies(); wait_copies<0>(); barrier<128>();\n");
  const std::string use = "const Left x = load_left<u16>(s, 0, 24);\n";
  const std::string again = absl::StrCat(kCopy, "commit_copies(); wait_copies<0>();\n");
  ExpectRuns(absl::StrCat(step, use, "barrier<128>();", again));
  ExpectFault(absl::StrCat(step, use, again), HasSubstr("since the last barrier"));
}

TEST_F(MatricesTest, CopiesAreWaitedFor) {
  ExpectFault(absl::StrCat(kCopy, "commit_copies();"),
              HasSubstr("ends while copies are under way"));
}

TEST_F(MatricesTest, CopiesStayInside) {
  ExpectFault("copy<f32, 4>(s, 4 * lane + 520, a.b0, 0, 1); commit_copies(); wait_copies<0>();",
              HasSubstr("of the team's shared memory"));
  ExpectFault(
      "copy<f32, 4>(s, 4 * lane, a.b0, 1020 + 4 * lane, 1); commit_copies();"
      "wait_copies<0>();",
      HasSubstr("into an argument of 4096"));
  ExpectFault("copy<f32, 4>(s, 2 + 4 * (lane % 100), a.b0, 0, 1);",
              HasSubstr("at an address that they do not divide"));
  ExpectFault("copy<f32, 4>(a.b1, 4 * lane, a.b0, 0, 1);",
              HasSubstr("which is not the team's shared memory"));
  // Nothing inactive is read.
  ExpectRuns("copy<f32, 4>(s, 4 * lane, a.b0, 1 << 20, 0); commit_copies(); wait_copies<0>();");
}

TEST_F(MatricesTest, FragmentsAreOfOneMatrixInSharedMemory) {
  const std::string fill =
      "for (i64 i = lane; i < 1024; i += 128) { store<f32>(s, i, 1.0f); store<f32>(t, i, 1.0f); }\n"
      "barrier<128>();\n";
  ExpectRuns(absl::StrCat(fill, "const Left x = load_left<u16>(s, 8 * (lane / 32), 24);"));
  ExpectFault(absl::StrCat(fill, "const Left x = load_left<u16>(s, 8 * (lane / 16), 24);"),
              HasSubstr("names another matrix than the first thread of its wave"));
  ExpectFault(absl::StrCat(fill, "const Left x = load_left<u16>(s, 4, 24);"),
              HasSubstr("at an address that they do not divide"));
  ExpectFault(absl::StrCat(fill, "const Right x = load_right<u16>(s, 0, 20);"),
              HasSubstr("at an address that they do not divide"));
  ExpectFault("const Left x = load_left<u16>(a.b0, 0, 24);",
              HasSubstr("which is not the team's shared memory"));
  ExpectFault("const Left x = load_left<u16>(s, 0, 24);",
              HasSubstr("which no thread of the team has written"));
  // Waves that multiply in another place than others of theirs.
  ExpectFault(absl::StrCat(fill,
                           "const Left x = load_left<u16>(s, 0, 24);\n"
                           "const Right y = load_right<u16>(s, 0, 24);\n"
                           "Sums<f32> sums = {};\n"
                           "if (lane < 7) { sums = multiply_f16(x, y, sums); } else {\n"
                           "sums = multiply_f16(x, y, sums); }"),
              HasSubstr("a product of matrices"));
}

// Rows that lie 16 bytes further apart than a multiple of 128 are in banks of their own.
TEST_F(MatricesTest, CountsConflictsOfLoadedRows) {
  for (const auto& [stride, conflicts] : {std::pair(40, 0), std::pair(64, 4 * 12)}) {
    setenv("ATHANOR_EMULATOR_COUNTS", "1", 1);
    Open();
    const CudaFunction function = Load(BlockProgram(
        absl::StrCat("if (lane == 0) for (i64 i = 0; i < 1024; ++i) store<f32>(s, i, 1.0f);\n"
                     "barrier<128>();\n"
                     "const Left x = load_left<u16>(s, 0, ",
                     stride,
                     ");\n"
                     "Sums<f32> sums = multiply_f16(x, Right{}, Sums<f32>{});\n")));
    ASSERT_TRUE(FateOf(function, Upload(std::vector<float>(1024, 1))).ok());
    unsetenv("ATHANOR_EMULATOR_COUNTS");
    const auto read = reinterpret_cast<void (*)(emulator::Counters*)>(
        dlsym(dlopen(library_.c_str(), RTLD_NOW), "athanor_emulator_counters"));
    emulator::Counters counters;
    read(&counters);
    EXPECT_EQ(counters.shared.bank_conflicts, conflicts) << stride;
    EXPECT_EQ(counters.shared.bytes, 4096 + 4 * 512) << stride;
    EXPECT_EQ(counters.products, 4);
  }
}

}  // namespace
}  // namespace athanor
