// Library calls on the emulated GPU: products as the library proposes them, plans with calls, and
// how each fails.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/dialect.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/cuda/device.h"
#include "runtime/device/forwarding_device.h"
#include "runtime/executor/executor.h"
#include "server/tuner/check/canaries.h"
#include "tests/emulator/testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kVersion[] = "cuBLASLt 13.1.0";
constexpr int64_t kMostWorkspace = 1 << 20;

std::unique_ptr<CudaDevice> MakeDevice(const std::string& folder = emulator::kLibraryFolder) {
  return CudaDevice::Create(*emulator::NewDevice().value(), {.library_folder = folder}).value();
}

// Reads and writes small whole numbers as elements of a dtype.
int64_t BytesOf(const std::string& dtype) {
  return dtype == "f64" ? 8 : dtype == "f32" || dtype == "i32" ? 4 : dtype == "i8" ? 1 : 2;
}
template <typename T>
void Put(std::string& data, int64_t i, T value) {
  std::memcpy(data.data() + i * sizeof(value), &value, sizeof(value));
}
template <typename T>
T Get(const std::string& data, int64_t i) {
  T value;
  std::memcpy(&value, data.data() + i * sizeof(value), sizeof(value));
  return value;
}
void Write(std::string& data, const std::string& dtype, int64_t i, int value) {
  const auto f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  if (dtype == "f64") return Put<double>(data, i, value);
  if (dtype == "f32") return Put<float>(data, i, f);
  if (dtype == "i32") return Put<int32_t>(data, i, value);
  if (dtype == "i8") return Put<int8_t>(data, i, static_cast<int8_t>(value));
  if (dtype == "bf16") return Put<uint16_t>(data, i, bits >> 16);
  return Put<_Float16>(data, i, static_cast<_Float16>(f));
}
double Read(const std::string& data, const std::string& dtype, int64_t i) {
  if (dtype == "f64") return Get<double>(data, i);
  if (dtype == "f32") return Get<float>(data, i);
  if (dtype == "i32") return Get<int32_t>(data, i);
  if (dtype == "i8") return Get<int8_t>(data, i);
  if (dtype == "f16") return static_cast<double>(Get<_Float16>(data, i));
  const uint32_t bits = uint32_t{Get<uint16_t>(data, i)} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

int64_t Place(const LibraryCall::Matrix& m, int64_t batch, int64_t i, int64_t j) {
  return m.offset + batch * m.batch_stride + (m.transposed ? j * m.stride + i : i * m.stride + j);
}

// Runs products on one device, and compares all bytes of the result's buffer.
class ProductTest : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 2048;

  std::unique_ptr<DeviceMemory> Upload(const std::string& data) {
    auto memory = device_->Allocate(MemoryKind::kArena, data.size()).value();
    EXPECT_TRUE(queue_->Copy(memory->data(), data.data(), data.size(), CopyKind::kToDevice).ok());
    EXPECT_TRUE(queue_->Wait().ok());
    return memory;
  }
  static std::string Numbers(const std::string& dtype, int seed) {
    std::string data(kElements * BytesOf(dtype), '\0');
    for (int64_t i = 0; i < kElements; ++i) {
      Write(data, dtype, i, static_cast<int>((i * 7 + seed) % 5) - 2);
    }
    return data;
  }
  static std::string Expected(const LibraryCall& c, const std::string& left,
                              const std::string& right, const std::string& bias,
                              std::string result) {
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t i = 0; i < c.rows; ++i) {
        for (int64_t j = 0; j < c.columns; ++j) {
          double sum = c.bias ? Read(bias, c.result_dtype, j) : 0;
          for (int64_t k = 0; k < c.sums; ++k) {
            sum += Read(left, c.dtype, Place(c.left, b, i, k)) *
                   Read(right, c.dtype, Place(c.right, b, k, j));
          }
          Write(result, c.result_dtype, Place(c.result, b, i, j), static_cast<int>(sum));
        }
      }
    }
    return result;
  }

  // Computes `call` in each way that the library proposes; returns how many.
  size_t Run(const LibraryCall& call) {
    EXPECT_TRUE(device_->Enter().ok());
    const auto calls = device_->library().value()->Propose(call, 8, kMostWorkspace);
    EXPECT_TRUE(calls.ok()) << calls.status();
    if (!calls.ok()) return 0;
    const std::string left = Numbers(call.dtype, 1), right = Numbers(call.dtype, 3);
    const std::string bias = Numbers(call.result_dtype, 4), was = Numbers(call.result_dtype, 2);
    const std::string expected = Expected(call, left, right, bias, was);
    const auto on_left = Upload(left), on_right = Upload(right), on_bias = Upload(bias);
    const auto workspace = device_->Allocate(MemoryKind::kArena, kMostWorkspace).value();
    for (const LibraryCall& proposed : *calls) {
      EXPECT_EQ(proposed.library, kVersion);
      EXPECT_TRUE(device_->CheckCall(proposed).ok()) << device_->CheckCall(proposed);
      const auto result = Upload(was);
      const LibraryBuffers buffers = {result->data(), on_left->data(), on_right->data(),
                                      call.bias ? on_bias->data() : nullptr,
                                      proposed.workspace_bytes > 0 ? workspace->data() : nullptr};
      const auto recording = queue_->Record({{.call = &proposed, .call_buffers = buffers}});
      EXPECT_TRUE(recording.ok()) << recording.status();
      if (!recording.ok()) return 0;
      std::string got(was.size(), '?');
      const auto fetch = [&] {
        EXPECT_TRUE(queue_->Copy(got.data(), result->data(), got.size(), CopyKind::kToHost).ok());
        const absl::Status waited = queue_->Wait();
        EXPECT_TRUE(waited.ok()) << waited;
      };
      fetch();
      EXPECT_EQ(got, was) << "recording runs nothing";
      for (int replay = 0; replay < 2; ++replay) EXPECT_TRUE(queue_->Replay(**recording).ok());
      fetch();
      EXPECT_EQ(got, expected) << call.dtype << " to " << call.result_dtype;
    }
    return calls->size();
  }

  const std::unique_ptr<CudaDevice> device_ = MakeDevice();
  const std::unique_ptr<DeviceQueue> queue_ = device_->NewQueue(0).value();
};

LibraryCall Plain(const std::string& dtype, const std::string& result) {
  return {.dtype = dtype,
          .result_dtype = result,
          .rows = 4,
          .columns = 8,
          .sums = 12,
          .left = {.stride = 12},
          .right = {.stride = 8},
          .result = {.stride = 8}};
}

TEST_F(ProductTest, EveryTypeInEveryWay) {
  for (const auto& [dtype, result] :
       {std::pair("f32", "f32"), std::pair("f64", "f64"), std::pair("f16", "f16"),
        std::pair("f16", "f32"), std::pair("bf16", "bf16"), std::pair("bf16", "f32")}) {
    EXPECT_EQ(Run(Plain(dtype, result)), 4u) << dtype;
  }
}

TEST_F(ProductTest, MatricesLieAsTheyLie) {
  LibraryCall call = Plain("f32", "f32");
  for (bool left : {false, true}) {
    for (bool right : {false, true}) {
      call.left = {.offset = 16, .stride = left ? 4 : 12, .transposed = left};
      call.right = {.offset = 4, .stride = right ? 13 : 9, .transposed = right};
      call.result = {.offset = 8, .stride = 11};
      EXPECT_EQ(Run(call), 4u);
    }
  }
}

TEST_F(ProductTest, BatchesAndBias) {
  LibraryCall call = Plain("bf16", "bf16");
  call.batch = 3;
  call.left.batch_stride = 64;
  call.result.batch_stride = 48;
  EXPECT_EQ(Run(call), 3u) << "the right matrix is the same for all; one way has no batch";
  call.bias = true;
  EXPECT_EQ(Run(call), 3u);
  call = Plain("f64", "f64");
  call.bias = true;
  EXPECT_EQ(Run(call), 4u);
}

TEST_F(ProductTest, AlignmentFollowsOffsets) {
  LibraryCall call = Plain("f32", "f32");
  call.left.offset = 4;  // 16 bytes
  EXPECT_EQ(Run(call), 4u);
  call.left.offset = 1;
  EXPECT_EQ(Run(call), 2u) << "two of the ways want whole 16 bytes";
  call.left.offset = 0;
  call.batch = 2;
  call.left.batch_stride = 50;
  call.result.batch_stride = 64;
  EXPECT_EQ(Run(call), 1u) << "without those that want 16 bytes, and that without batch";
}

TEST_F(ProductTest, I8WhereTheLibraryHasIt) {
  LibraryCall call = Plain("i8", "i32");
  EXPECT_EQ(Run(call), 0u) << "the right matrix is not transposed";
  call.right = {.stride = 16, .transposed = true};
  EXPECT_EQ(Run(call), 4u);
  call.sums = 11;
  EXPECT_EQ(Run(call), 0u);
}

TEST_F(ProductTest, ProposalsAreLimited) {
  ASSERT_TRUE(device_->Enter().ok());
  const CudaLibrary* const library = device_->library().value();
  const LibraryCall call = Plain("f32", "f32");
  EXPECT_EQ(library->Propose(call, 3, kMostWorkspace)->size(), 3u);
  const auto without = library->Propose(call, 8, /*most_workspace=*/0).value();
  EXPECT_EQ(without.size(), 2u);
  for (const LibraryCall& proposed : without) EXPECT_EQ(proposed.workspace_bytes, 0);
  EXPECT_EQ(library->Propose(Plain("u8", "i32"), 8, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ProductTest, CallsThatTheLibraryDoesNotKnowAreRefused) {
  ASSERT_TRUE(device_->Enter().ok());
  const LibraryCall good =
      device_->library().value()->Propose(Plain("f32", "f32"), 1, kMostWorkspace).value()[0];
  ASSERT_TRUE(device_->CheckCall(good).ok());
  ASSERT_GT(good.workspace_bytes, 0);
  const auto refused = [&](const LibraryCall& call, absl::StatusCode code, const char* says) {
    const absl::Status status = device_->CheckCall(call);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  LibraryCall call = good;
  call.library = "cuBLASLt 12.9.1";
  refused(call, absl::StatusCode::kFailedPrecondition,
          "calls cuBLASLt 12.9.1, and this machine has cuBLASLt 13.1.0");
  call = good;
  call.algorithm[0] ^= 1;
  refused(call, absl::StatusCode::kInvalidArgument, "CUBLAS_STATUS_NOT_SUPPORTED");
  call = good;
  call.algorithm += "?";
  refused(call, absl::StatusCode::kInvalidArgument, "64 bytes, not 65");
  call = good;
  call.left.offset = 1;
  refused(call, absl::StatusCode::kInvalidArgument,
          "wants the left matrix at multiples of 16 bytes; the plan has it at multiples of 4");
  call = good;
  call.right.offset = 2;
  refused(call, absl::StatusCode::kInvalidArgument,
          "wants the right matrix at multiples of 16 bytes");
  call = good;
  call.batch = 2;
  call.result.batch_stride = 50;
  call.workspace_bytes *= 2;
  refused(call, absl::StatusCode::kInvalidArgument,
          "wants the result at multiples of 16 bytes; the plan has it at multiples of 8");
  call = good;
  call.rows = 400;  // of a larger product, which takes more
  refused(call, absl::StatusCode::kInvalidArgument, "the plan gives it 256");
  call = good;
  call.workspace_bytes -= 1;
  refused(call, absl::StatusCode::kInvalidArgument, "takes 256 bytes of workspace");
}

TEST_F(ProductTest, ARecordingThatFailsLeavesTheQueueUsable) {
  ASSERT_TRUE(device_->Enter().ok());
  LibraryCall call =
      device_->library().value()->Propose(Plain("f32", "f32"), 1, kMostWorkspace).value()[0];
  call.algorithm[0] ^= 1;
  const absl::Status status = queue_->Record({{.call = &call, .label = "x w"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 'x w': cublasLtMatmul"));
  EXPECT_EQ(Run(Plain("f32", "f32")), 4u) << "the stream is captured no longer";
}

TEST_F(ProductTest, AWorkspaceThatIsNotAlignedIsRefused) {
  ASSERT_TRUE(device_->Enter().ok());
  const LibraryCall call =
      device_->library().value()->Propose(Plain("f32", "f32"), 1, kMostWorkspace).value()[0];
  const auto memory = Upload(std::string(4096, '\0'));
  LibraryBuffers buffers = {memory->data(), memory->data(), memory->data(), nullptr,
                            static_cast<char*>(memory->data()) + 1024};
  EXPECT_TRUE(queue_->Record({{.call = &call, .call_buffers = buffers}}).ok());
  buffers.workspace = static_cast<char*>(buffers.workspace) + 64;
  const absl::Status status = queue_->Record({{.call = &call, .call_buffers = buffers}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(ProductTest, AFaultOfACallLosesTheDevice) {
  ASSERT_TRUE(device_->Enter().ok());
  const LibraryCall call =
      device_->library().value()->Propose(Plain("f32", "f32"), 1, kMostWorkspace).value()[0];
  auto memory = Upload(std::string(4096, '\0'));
  // The workspace lies nowhere.
  const auto recording = queue_->Record(
      {{.call = &call, .call_buffers = {memory->data(), memory->data(), memory->data()}}});
  ASSERT_TRUE(recording.ok()) << recording.status();
  ASSERT_TRUE(queue_->Replay(**recording).ok());
  const absl::Status status = queue_->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(device_->CheckCall(call).code(), absl::StatusCode::kUnavailable);
}

TEST(LibraryTest, AnAbsentLibraryIsNamedWhenItIsWanted) {
  const auto device = MakeDevice("/no/such/folder");
  const absl::Status status = device->CheckCall(Plain("f32", "f32"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no cuBLASLt"), HasSubstr("/no/such/folder")));
}

// rows of x go through  t = x * w (library),  u = 2 * t (kernel),  y = u * v + b (library).
class PlanTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 4, kInner = 8, kColumns = 12;

  void SetUp() override {
    unsetenv("ATHANOR_EMULATOR_CUBLASLT");
    unsetenv("ATHANOR_EMULATOR_BYTES");
    const absl::StatusOr<Cubin> cubin = emulator::Compiler().value()->Compile(
        CudaSourceOf("#include \"athanor/device.h\"\n"
                     "struct Arguments {\n"
                     "  Buffer b0, b1;\n"
                     "  i64 items;\n"
                     "  u8* workspace;\n"
                     "  i64 stride;\n"
                     "  ErrorSlot* error;\n"
                     "};\n"
                     "KERNEL(athanor_kernel) {\n"
                     "  for (i64 g = first(a); g < a.items; g += teams(a)) {\n"
                     "    store<f32>(a.b0, g, 2 * load<f32>(a.b1, g));\n"
                     "  }\n"
                     "}\n",
                     "sm_80"));
    ASSERT_TRUE(cubin.ok()) << cubin.status();
    twice_ = cubin->code;
    for (std::vector<float>* weights : {&w_, &v_, &b_}) {
      for (size_t i = 0; i < weights->size(); ++i) (*weights)[i] = static_cast<float>(i % 5) - 2;
    }
  }

  // Makes the plan with the ways `first` and `second` of the library of `device`. With `turns`, all
  // of it is a loop.
  v1::Plan MakePlan(const CudaDevice& device, int first, int second, int turns = 0) {
    const auto bytes = [](int64_t floats) {
      return absl::StrCat("dtype: 'f32' bytes { terms { coefficient: ", 4 * floats, " } } ");
    };
    const auto call = [](int64_t sums, int64_t columns, const char* rest) {
      return absl::StrCat("grid { terms { coefficient: 1 } } library_call { rows { terms { ",
                          "coefficient: ", kRows, " } } columns: ", columns, " sums: ", sums,
                          " batch: 1 left { stride: ", sums, " } right { stride: ", columns,
                          " } result { stride: ", columns, " } ", rest, "} ");
    };
    const std::string text = absl::StrCat(
        "format: 3 plan_id: 'p-0' target { device: 'cuda' } kernels { name: 'twice' } ",
        "kernels { name: 'x w' library_call: true } kernels { name: 'u v' library_call: true } ",
        "buffers { kind: INPUT name: 'x' ", bytes(kRows * kInner),
        "} buffers { kind: PARAMETER name: 'w' ", bytes(kInner * kInner),
        "} buffers { kind: PARAMETER name: 'v' ", bytes(kInner * kColumns),
        "} buffers { kind: PARAMETER name: 'b' ", bytes(kColumns),
        "} buffers { kind: ARENA arena_offset: 0 ", bytes(kRows * kInner),
        "} buffers { kind: ARENA arena_offset: 1024 ", bytes(kRows * kInner),
        "} buffers { kind: OUTPUT name: 'y' ", bytes(kRows * kColumns),
        "} buffers { kind: ARENA arena_offset: 2048 ", bytes(1 << 15),
        "} outputs { name: 'y' buffer: 6 } arena_bytes: ", 2048 + (4 << 15),
        " run { label: 'first' kernel: 1 buffers: [4, 0, 1] ", call(kInner, kInner, ""),
        "} run { label: 'twice' kernel: 0 buffers: [5, 4] grid { terms { coefficient: ",
        kRows * kInner, " } } } run { label: 'second' kernel: 2 buffers: [6, 5, 2, 3] ",
        call(kInner, kColumns, "bias: true "), "} ");
    v1::Plan plan;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &plan));
    if (turns > 0) {
      v1::Loop* loop = plan.add_loops();
      loop->set_steps(3);
      loop->mutable_count()->add_terms()->set_coefficient(turns);
    }
    objects_ = {twice_, "", ""};
    Choose(device, first, plan.mutable_run(0));
    Choose(device, second, plan.mutable_run(2));
    return plan;
  }
  void Choose(const CudaDevice& device, int way, v1::Step* step) {
    v1::LibraryCall& to = *step->mutable_library_call();
    LibraryCall call = {.dtype = "f32",
                        .result_dtype = "f32",
                        .rows = kRows,
                        .columns = to.columns(),
                        .sums = to.sums(),
                        .left = {.stride = to.left().stride()},
                        .right = {.stride = to.right().stride()},
                        .result = {.stride = to.result().stride()},
                        .bias = to.bias()};
    EXPECT_TRUE(device.Enter().ok());
    call = device.library().value()->Propose(call, 8, kMostWorkspace).value()[way];
    SetWays({call}, step);
    if (call.workspace_bytes > 0) step->add_buffers(7);
  }
  // Sets the ways of the step's call, and the object of its kernel.
  void SetWays(const std::vector<LibraryCall>& calls, v1::Step* step) {
    v1::LibraryObject object;
    step->mutable_library_call()->clear_ways();
    for (const LibraryCall& call : calls) {
      v1::LibraryCall::Way* way = step->mutable_library_call()->add_ways();
      way->set_rows(call.rows);
      way->set_workspace_bytes(call.workspace_bytes);
      object.set_library(call.library);
      object.add_algorithms(call.algorithm);
    }
    objects_[step->kernel()] = object.SerializeAsString();
  }

  absl::StatusOr<std::shared_ptr<const Executable>> Load(const v1::Plan& plan, Device* device,
                                                         const LoadOptions& options = {}) const {
    const auto view = [](const std::vector<float>& v) {
      return absl::string_view(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
    };
    const ParameterView parameters[] = {
        {"w", view(w_), nullptr}, {"v", view(v_), nullptr}, {"b", view(b_), nullptr}};
    const std::vector<absl::string_view> objects(objects_.begin(), objects_.end());
    return Executable::Load(plan, objects, parameters, device, options);
  }
  // Runs once with x = seed, seed + 1, ... and compares.
  void Run(const Executable& plan, Executable::Context* context, int seed,
           const RunOptions& options = {}) const {
    Compare(plan, context, {}, kRows, seed, options);
  }
  void RunRows(const Executable& plan, Executable::Context* context, int64_t rows, int seed) const {
    Compare(plan, context, {rows}, rows, seed, {});
  }
  void Compare(const Executable& plan, Executable::Context* context,
               const std::vector<int64_t>& dims, int64_t rows, int seed,
               const RunOptions& options) const {
    std::vector<float> x(rows * kInner), y(rows * kColumns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((seed + i) % 7);
    const absl::string_view in(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
    const absl::Span<char> out(reinterpret_cast<char*>(y.data()), y.size() * sizeof(float));
    const absl::Status status = plan.Run(context, dims, {in}, {out}, options);
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        float want = b_[c];
        for (int64_t k = 0; k < kInner; ++k) {
          float t = 0;
          for (int64_t i = 0; i < kInner; ++i) t += x[r * kInner + i] * w_[i * kInner + k];
          want += 2 * t * v_[k * kColumns + c];
        }
        ASSERT_EQ(y[r * kColumns + c], want) << r << " " << c;
      }
    }
  }

  std::string twice_;
  std::vector<std::string> objects_;  // of the plan that was made last
  std::vector<float> w_ = std::vector<float>(kInner * kInner),
                     v_ = std::vector<float>(kInner * kColumns), b_ = std::vector<float>(kColumns);
};

TEST_F(PlanTest, CallsAreLinksOfTheChain) {
  const auto device = MakeDevice();
  for (int way : {0, 1, 2, 3}) {
    const auto plan = Load(MakePlan(*device, way, 3 - way), device.get(), {.poison = true}).value();
    const auto context = plan->NewContext().value();
    for (int seed : {0, 1, 2}) Run(*plan, context.get(), seed);
    // A second context has recordings of its own.
    const auto other = plan->NewContext().value();
    Run(*plan, other.get(), 3);
    context->Trim();
    Run(*plan, context.get(), 4);
  }
}

TEST_F(PlanTest, CallsBesideKernelsThatAreChecked) {
  const auto device = MakeDevice();
  CanaryDevice guarded(device.get());
  const auto plan = Load(MakePlan(*device, 0, 1), &guarded, {.poison = true}).value();
  const auto context = plan->NewContext().value();
  for (int seed : {0, 1}) Run(*plan, context.get(), seed);
}

TEST_F(PlanTest, CallsInALoop) {
  const auto device = MakeDevice();
  const auto plan = Load(MakePlan(*device, 0, 1, /*turns=*/3), device.get()).value();
  const auto context = plan->NewContext().value();
  for (int seed : {0, 1}) Run(*plan, context.get(), seed);
}

TEST_F(PlanTest, StepByStep) {
  const auto device = MakeDevice();
  const auto plan = Load(MakePlan(*device, 0, 1), device.get()).value();
  const auto context = plan->NewContext().value();
  std::vector<std::string> labels;
  const std::function<absl::Status(const StepView&)> check = [&](const StepView& view) {
    labels.push_back(absl::StrCat(view.label, " of ", view.buffers.size()));
    return absl::OkStatus();
  };
  std::vector<int64_t> nanoseconds(3);
  RunOptions options;
  options.check = &check;
  options.step_nanoseconds = absl::MakeSpan(nanoseconds);
  Run(*plan, context.get(), 0, options);
  EXPECT_THAT(labels, ElementsAre("first of 4", "twice of 2", "second of 4"));
  for (const int64_t time : nanoseconds) EXPECT_GT(time, 0);
}

TEST_F(PlanTest, APlanOutlivesItsProcessButNotItsLibrary) {
  const v1::Plan plan = MakePlan(*MakeDevice(), 0, 1);
  {
    const auto again = MakeDevice();
    const auto loaded = Load(plan, again.get()).value();
    Run(*loaded, loaded->NewContext().value().get(), 5);
  }
  setenv("ATHANOR_EMULATOR_CUBLASLT", "130201", 1);
  const auto device = MakeDevice();
  const absl::Status status = Load(plan, device.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 'first'"), HasSubstr("cuBLASLt 13.1.0"),
                    HasSubstr("cuBLASLt 13.2.1"), HasSubstr("search again")));
}

TEST_F(PlanTest, LoadingNamesTheStep) {
  const auto device = MakeDevice();
  v1::Plan plan = MakePlan(*device, 0, 1);
  v1::LibraryObject object;
  ASSERT_TRUE(object.ParseFromString(objects_[2]));
  (*object.mutable_algorithms(0))[3] ^= 1;
  objects_[2] = object.SerializeAsString();
  EXPECT_THAT(std::string(Load(plan, device.get()).status().message()),
              AllOf(HasSubstr("step 'second': kernel 2 'u v': "), HasSubstr("NOT_SUPPORTED")));
  const auto without = MakeDevice("/no/such/folder");
  EXPECT_THAT(std::string(Load(MakePlan(*device, 0, 1), without.get()).status().message()),
              AllOf(HasSubstr("step 'first'"), HasSubstr("this machine has no cuBLASLt")));
}

// Takes every call.
class CredulousDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::Status CheckCall(const LibraryCall&) override { return absl::OkStatus(); }
};

TEST_F(PlanTest, MatricesThatAnAlgorithmWantsAlignedAreRefusedByTheStep) {
  const auto device = MakeDevice();
  v1::Plan plan = MakePlan(*device, 0, 1);
  plan.mutable_run(2)->mutable_library_call()->mutable_left()->set_offset(1);
  plan.mutable_buffers(5)->mutable_bytes()->mutable_terms(0)->set_coefficient(4 *
                                                                              (kRows * kInner + 1));
  EXPECT_THAT(std::string(Load(plan, device.get()).status().message()),
              AllOf(HasSubstr("step 'second': kernel 2 'u v': "), HasSubstr("the left matrix")));
  // So are those of which the library did not tell.
  CredulousDevice credulous(device.get());
  const auto loaded = Load(plan, &credulous);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(std::string((*loaded)->NewContext().status().message()),
              HasSubstr("step 'second': cublasLtMatmul"));
}

// The same plan for 0 to 64 rows, whose calls round them up to `ways`.
class RowsTest : public PlanTest {
 protected:
  v1::Plan RowsPlan(const CudaDevice& device, const std::vector<int64_t>& ways) {
    v1::Plan plan = MakePlan(device, 0, 1);
    v1::DimRange* dim = plan.add_dims();
    dim->set_name("n");
    dim->set_max(kMostRows);
    const auto by_rows = [](v1::SizeExpr* size) {
      v1::SizeExpr::Term* term = size->mutable_terms(0);
      term->set_coefficient(term->coefficient() / kRows);
      term->add_factors()->set_symbol("n");
    };
    for (int b : {0, 4, 5, 6}) by_rows(plan.mutable_buffers(b)->mutable_bytes());
    by_rows(plan.mutable_run(1)->mutable_grid());
    // Each in granules of its own, so that what is not committed is known.
    plan.mutable_buffers(5)->set_arena_offset(kGranule);
    plan.mutable_buffers(7)->set_arena_offset(2 * kGranule);
    plan.set_arena_bytes(3 * kGranule);
    for (int s : {0, 2}) {
      v1::Step* step = plan.mutable_run(s);
      v1::LibraryCall* to = step->mutable_library_call();
      by_rows(to->mutable_rows());
      std::vector<LibraryCall> calls;
      bool workspace = false;
      for (const int64_t rows : ways) {
        const LibraryCall call = {.dtype = "f32",
                                  .result_dtype = "f32",
                                  .rows = rows,
                                  .columns = to->columns(),
                                  .sums = to->sums(),
                                  .left = {.stride = to->left().stride()},
                                  .right = {.stride = to->right().stride()},
                                  .result = {.stride = to->result().stride()},
                                  .bias = to->bias()};
        // Some with a workspace, some without.
        calls.push_back(
            device.library().value()->Propose(call, 8, kMostWorkspace).value()[rows % 2]);
        workspace |= calls.back().workspace_bytes > 0;
      }
      SetWays(calls, step);
      step->mutable_buffers()->Truncate(s == 0 ? 3 : 4);
      if (workspace) step->add_buffers(7);
    }
    return plan;
  }
  static constexpr int64_t kMostRows = 64, kGranule = 2 << 20;
};

TEST_F(RowsTest, CallsOfEverySizeOfTheBucket) {
  const auto device = MakeDevice();
  for (const std::vector<int64_t>& ways :
       {std::vector<int64_t>{64}, {1, 7, 64}, {1, 2, 3, 4, 8, 16, 33, 64}}) {
    const auto loaded = Load(RowsPlan(*device, ways), device.get(), {.poison = true});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto context = (*loaded)->NewContext().value();
    for (int64_t rows : {64, 0, 1, 2, 5, 7, 8, 32, 33, 63, 64, 3}) {
      RunRows(**loaded, context.get(), rows, static_cast<int>(rows));
    }
  }
}

// Counts the recordings of another device's queues.
class RecordCounter : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, device_.NewQueue(scratch_bytes));
    return std::make_unique<Queue>(&records, std::move(queue));
  }
  int records = 0;

 private:
  struct Queue : DeviceQueue {
    Queue(int* records, std::unique_ptr<DeviceQueue> queue)
        : records(*records), queue(std::move(queue)) {}
    absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
        absl::Span<const RecordedLaunch> launches) override {
      ++records;
      return queue->Record(launches);
    }
    absl::Status Replay(const DeviceRecording& recording) override {
      return queue->Replay(recording);
    }
    Workspace workspace() const override { return queue->workspace(); }
    absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
      return queue->Copy(to, from, bytes, kind);
    }
    absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
      return queue->Fill(to, byte, bytes);
    }
    absl::Status Wait() override { return queue->Wait(); }

    int& records;
    const std::unique_ptr<DeviceQueue> queue;
  };
};

// Replays what was recorded once at each size's level: all steps, some, and each.
TEST_F(RowsTest, ResidentRunsReplayTheRecordingsOfTheirLevel) {
  const auto device = MakeDevice();
  RecordCounter counter(device.get());
  const auto plan = Load(RowsPlan(*device, {1, 7, 64}), &counter).value();
  const auto context = plan->NewContext().value();
  EXPECT_EQ(counter.records, 3) << "one a level";
  std::vector<int64_t> nanoseconds(3);
  std::vector<std::vector<RunOptions>> ways(3);
  ways[0] = {{.resident = true}};
  ways[1] = {{.steps = 2, .resident = true}, {.first_step = 2, .resident = true}};
  ways[2] = {{.step_nanoseconds = absl::MakeSpan(nanoseconds), .resident = true}};
  for (const auto& way : ways) {
    for (const RunOptions& options : way) ASSERT_TRUE(plan->Record(context.get(), options).ok());
  }
  // Two spans of three levels; a step that is no call has one level, and one call is a span's.
  EXPECT_EQ(counter.records, 3 + 2 * 3 + 3 + 1);
  counter.records = 0;
  for (const int64_t rows : {64, 1, 7, 8, 5, 0, 63}) {
    for (const auto& way : ways) {
      // Brings other inputs each time, and computes nothing.
      const int seed = static_cast<int>(rows + 3 * (&way - ways.data()));
      std::vector<float> x(rows * kInner), y(rows * kColumns);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((seed + i) % 7);
      const absl::string_view in(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
      const absl::Span<char> out(reinterpret_cast<char*>(y.data()), y.size() * sizeof(float));
      ASSERT_TRUE(plan->Run(context.get(), {rows}, {in}, {out}, {.steps = 0}).ok());
      for (const RunOptions& options : way) {
        ASSERT_TRUE(plan->Run(context.get(), {rows}, {in}, {out}, options).ok());
      }
      Compare(*plan, context.get(), {rows}, rows, seed, {.steps = 0});
    }
    if (rows == 8) context->Trim();
  }
  EXPECT_EQ(counter.records, 0);
}

// A row of the result has 768 KiB: two fit a granule, and three do not.
TEST_F(RowsTest, MemoryIsThereForRowsThatAreRoundedUp) {
  constexpr int64_t kWide = 192 << 10;
  const auto device = MakeDevice();
  v1::Plan plan = RowsPlan(*device, {1, 3});
  plan.mutable_dims(0)->set_max(3);
  plan.mutable_run()->DeleteSubrange(1, 2);
  v1::Step* step = plan.mutable_run(0);
  step->mutable_buffers()->Truncate(3);
  step->set_buffers(0, 6);
  v1::LibraryCall& to = *step->mutable_library_call();
  to.set_columns(kWide);
  to.set_sums(1);
  to.mutable_left()->set_stride(1);
  to.mutable_right()->set_stride(kWide);
  to.mutable_result()->set_stride(kWide);
  std::vector<LibraryCall> calls;
  for (const int64_t rows : {1, 3}) {
    const LibraryCall call = {.dtype = "f32",
                              .result_dtype = "f32",
                              .rows = rows,
                              .columns = kWide,
                              .sums = 1,
                              .left = {.stride = 1},
                              .right = {.stride = kWide},
                              .result = {.stride = kWide}};
    calls.push_back(device->library().value()->Propose(call, 8, /*most_workspace=*/0).value()[0]);
  }
  SetWays(calls, step);
  const auto size = [&](int b, int64_t bytes) {
    plan.mutable_buffers(b)->mutable_bytes()->mutable_terms(0)->set_coefficient(bytes);
  };
  size(0, sizeof(float));  // of a row
  size(6, sizeof(float) * kWide);
  size(1, sizeof(float) * kWide);
  w_.assign(kWide, 3);
  const auto loaded = Load(plan, device.get());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto context = (*loaded)->NewContext().value();
  for (const int64_t rows : {1, 2}) {
    const std::vector<float> x(rows, 2);
    std::vector<float> y(rows * kWide);
    const absl::string_view in(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
    const absl::Span<char> out(reinterpret_cast<char*>(y.data()), y.size() * sizeof(float));
    const absl::Status status = (*loaded)->Run(context.get(), {rows}, {in}, {out}, {});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(y, ::testing::Each(6.0f));
    // Two rows are computed as three, one is not; three granules are of other buffers.
    EXPECT_EQ(context->charged_bytes(), (3 + rows) * kGranule);
  }
}

TEST_F(PlanTest, AWorkspaceThatNoMemoryHoldsCostsTheContext) {
  v1::Plan plan = MakePlan(*MakeDevice(), 0, 1);
  plan.mutable_buffers(7)->mutable_bytes()->mutable_terms(0)->set_coefficient(64 << 20);
  plan.set_arena_bytes(2048 + (64 << 20));
  setenv("ATHANOR_EMULATOR_BYTES", "33554432", 1);
  setenv("ATHANOR_EMULATOR_VIRTUAL", "0", 1);
  const auto device = MakeDevice();
  unsetenv("ATHANOR_EMULATOR_VIRTUAL");
  const auto loaded = Load(plan, device.get());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::Status status = (*loaded)->NewContext().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(device->loss().ok());
}

}  // namespace
}  // namespace athanor
