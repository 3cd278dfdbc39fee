// Plans with library calls: what is refused, by the plan's checks and by devices without a library.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/program/checked_call.h"
#include "runtime/program/program.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// result[2, 4, 6] = left[2, 4, 8] * right[8, 6] + bias[6], all f32.
v1::Plan ProductPlan() {
  const auto bytes = [](int64_t n) {
    return absl::StrCat("bytes { terms { coefficient: ", n, "} } ");
  };
  v1::Plan plan;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("format: 3 plan_id: 'p-0' arena_bytes: 256 dims { name: 'n' min: 1 max: 9 } "
                   "kernels { name: 'x w' library_call: true launch_buffers: 1 } "
                   "buffers { kind: OUTPUT name: 'y' dtype: 'f32' ",
                   bytes(192), "} buffers { kind: INPUT name: 'x' dtype: 'f32' ", bytes(256),
                   "} buffers { kind: PARAMETER name: 'w' dtype: 'f32' ", bytes(192),
                   "} buffers { kind: PARAMETER name: 'b' dtype: 'f32' ", bytes(24),
                   "} buffers { kind: ARENA dtype: 'u8' ", bytes(256),
                   "} outputs { name: 'y' buffer: 0 } "
                   "run { label: 'product' buffers: [0, 1, 2, 3, 4] "
                   "grid { terms { coefficient: 1 } } library_call { rows { terms { coefficient: 4 "
                   "} } columns: 6 sums: 8 batch: 2 left { stride: 8 "
                   "batch_stride: 32 } "
                   "right { stride: 6 } result { stride: 6 batch_stride: 24 } bias: true "
                   "ways { rows: 4 workspace_bytes: 256 } } }"),
      &plan);
  EXPECT_TRUE(parsed);
  return plan;
}

v1::LibraryObject Object(int ways) {
  v1::LibraryObject object;
  object.set_library("cuBLASLt 13.1.0");
  for (int way = 0; way < ways; ++way)
    object.add_algorithms(std::string(64, static_cast<char>('a' + way)));
  return object;
}

v1::SizeExpr Number(int64_t number) {
  v1::SizeExpr size;
  size.add_terms()->set_coefficient(number);
  return size;
}

TEST(LibraryCallTest, AProgramHoldsTheCall) {
  const absl::StatusOr<Program> program = BuildProgram(ProductPlan());
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->calls.size(), 1u);
  ASSERT_EQ(program->calls[0].ways.size(), 1u);
  const LibraryCall& call = program->calls[0].ways[0];
  EXPECT_EQ(program->run[0].call, 0);
  EXPECT_EQ(program->run[0].kernel, 0);
  EXPECT_EQ(call.dtype, "f32");
  EXPECT_EQ(call.columns, 6);
  EXPECT_EQ(call.left.batch_stride, 32);
  EXPECT_EQ(call.library + call.algorithm, "") << "its kernel's object has them";
  EXPECT_EQ(call.rows, 4);
  EXPECT_EQ(program->levels, 1);
  std::vector<std::vector<int64_t>> touched;
  for (const Program::Buffer& buffer : program->buffers) touched.push_back(buffer.touched);
  EXPECT_THAT(touched, ElementsAre(ElementsAre(192), ElementsAre(256), ElementsAre(192),
                                   ElementsAre(24), ElementsAre(256)));
}

TEST(LibraryCallTest, WrongCallsAreNamed) {
  using Change = std::function<void(v1::Plan&, v1::Step&, v1::LibraryCall&)>;
  const struct {
    const char* says;
    Change change;
  } kCases[] = {
      {"format: is 1", [](auto& p, auto&, auto&) { p.set_format(1); }},
      {"format: is 3", [](auto&, auto& s, auto&) { s.clear_library_call(); }},
      {"step 0 'product': has no library_call, and kernel 0 is one",
       [](auto& p, auto& s, auto&) {
         p.set_format(1);
         s.clear_library_call();
       }},
      {"step 0 'product': has a library_call, and kernel 0 is none",
       [](auto& p, auto&, auto&) { p.mutable_kernels(0)->clear_library_call(); }},
      {"kernel 1 of 1", [](auto&, auto& s, auto&) { s.set_kernel(1); }},
      {"sizes or scratch_bytes beside it",
       [](auto&, auto& s, auto&) { *s.add_sizes() = Number(1); }},
      {"sizes or scratch_bytes beside it", [](auto&, auto& s, auto&) { s.set_scratch_bytes(64); }},
      {"grid of 2 to 2", [](auto&, auto& s, auto&) { *s.mutable_grid() = Number(2); }},
      {"the step has 4 buffers; result, left, right, bias, workspace are 5",
       [](auto&, auto& s, auto&) { s.mutable_buffers()->RemoveLast(); }},
      {"result, left, right, workspace are 4", [](auto&, auto&, auto& c) { c.set_bias(false); }},
      {"no library multiplies i64 by f32 to f32",
       [](auto& p, auto&, auto&) { p.mutable_buffers(1)->set_dtype("i64"); }},
      {"ways.rows is 0; it must be from 1",
       [](auto&, auto&, auto& c) { c.mutable_ways(0)->set_rows(0); }},
      {"ways.rows is 2147483648",
       [](auto&, auto&, auto& c) { c.mutable_ways(0)->set_rows(int64_t{1} << 31); }},
      {"rows are up to 5, and the last way has 4",
       [](auto&, auto&, auto& c) { *c.mutable_rows() = Number(5); }},
      {"rows are down to -4", [](auto&, auto&, auto& c) { *c.mutable_rows() = Number(-4); }},
      {"rows: a size names dim 'z'",
       [](auto&, auto&, auto& c) {
         c.mutable_rows()->mutable_terms(0)->add_factors()->set_symbol("z");
       }},
      {"ways are 0; they must be 1 to 8",
       [](auto&, auto& s, auto& c) {
         s.mutable_buffers()->RemoveLast();
         c.clear_ways();
       }},
      {"ways are 9; they must be 1 to 8",
       [](auto&, auto&, auto& c) {
         for (int i = 0; i < 8; ++i) *c.add_ways() = c.ways(0);
       }},
      {"with several ways it must be 1", [](auto&, auto&, auto& c) { *c.add_ways() = c.ways(0); }},
      {"library_call.columns is -1", [](auto&, auto&, auto& c) { c.set_columns(-1); }},
      {"library_call.sums is 0", [](auto&, auto&, auto& c) { c.set_sums(0); }},
      {"library_call.batch is 0", [](auto&, auto&, auto& c) { c.set_batch(0); }},
      {"result is transposed",
       [](auto&, auto&, auto& c) { c.mutable_result()->set_transposed(true); }},
      {"left.stride is 7; it must be from 8",
       [](auto&, auto&, auto& c) { c.mutable_left()->set_stride(7); }},
      {"left.offset is -1", [](auto&, auto&, auto& c) { c.mutable_left()->set_offset(-1); }},
      {"left leaves its buffer, which has 256 bytes",
       [](auto&, auto&, auto& c) { c.mutable_left()->set_offset(1); }},
      {"left leaves its buffer",
       [](auto&, auto&, auto& c) { c.mutable_left()->set_batch_stride(int64_t{1} << 53); }},
      // Transposed, it has 8 columns of 4 rows each.
      {"left leaves its buffer",
       [](auto&, auto&, auto& c) { c.mutable_left()->set_transposed(true); }},
      {"right leaves its buffer", [](auto&, auto&, auto& c) { c.mutable_right()->set_stride(7); }},
      {"right leaves its buffer",
       [](auto&, auto&, auto& c) { c.mutable_right()->set_batch_stride(1); }},
      {"result.batch_stride is 23; results of 24 elements would overlap",
       [](auto&, auto&, auto& c) { c.mutable_result()->set_batch_stride(23); }},
      {"result leaves its buffer",
       [](auto&, auto&, auto& c) { c.mutable_result()->set_batch_stride(25); }},
      {"bias is of f64", [](auto& p, auto&, auto&) { p.mutable_buffers(3)->set_dtype("f64"); }},
      {"bias has 20 bytes for 6 columns",
       [](auto& p, auto&, auto&) { *p.mutable_buffers(3)->mutable_bytes() = Number(20); }},
      {"workspace_bytes is 257",
       [](auto&, auto&, auto& c) { c.mutable_ways(0)->set_workspace_bytes(257); }},
      {"workspace_bytes is -1",
       [](auto&, auto& s, auto& c) {
         s.mutable_buffers()->RemoveLast();
         c.mutable_ways(0)->set_workspace_bytes(-1);
       }},
      {"buffer 1 of kind INPUT as workspace", [](auto&, auto& s, auto&) { s.set_buffers(4, 1); }},
      {"buffer 4 of kind ARENA at 64 as workspace; that must be at a multiple of 256",
       [](auto& p, auto&, auto&) {
         p.set_arena_bytes(320);
         p.mutable_buffers(4)->set_arena_offset(64);
       }},
      {"buffer 1 of kind INPUT as result", [](auto&, auto& s, auto&) { s.set_buffers(0, 1); }},
      {"buffer 0 of kind OUTPUT twice, and writes it",
       [](auto& p, auto& s, auto&) {
         *p.mutable_buffers(0)->mutable_bytes() = Number(256);
         s.set_buffers(1, 0);
       }},
      {"buffer 4 of kind ARENA twice, and writes it",
       [](auto& p, auto& s, auto&) {
         p.mutable_buffers(4)->set_dtype("f32");
         s.set_buffers(1, 4);
       }},
      {"buffer 9 of 5", [](auto&, auto& s, auto&) { s.set_buffers(2, 9); }},
      {"only steps of `run` may have", [](auto& p, auto& s, auto&) { *p.add_prepare() = s; }},
      // The least size of the bucket has fewer bytes than the product.
      {"left leaves its buffer, which has 32 bytes",
       [](auto& p, auto&, auto&) {
         v1::SizeExpr* bytes = p.mutable_buffers(1)->mutable_bytes();
         bytes->mutable_terms(0)->set_coefficient(32);
         bytes->mutable_terms(0)->add_factors()->set_symbol("n");
       }},
  };
  for (const auto& [says, change] : kCases) {
    v1::Plan plan = ProductPlan();
    change(plan, *plan.mutable_run(0), *plan.mutable_run(0)->mutable_library_call());
    const absl::Status status = BuildProgram(plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

// rows n of x, from 0 to 9, in ways of 2, 4 and 9.
v1::Plan RowsPlan() {
  v1::Plan plan = ProductPlan();
  plan.mutable_dims(0)->set_min(0);
  const auto rows = [](int64_t bytes) {
    v1::SizeExpr size = Number(bytes);
    size.mutable_terms(0)->add_factors()->set_symbol("n");
    return size;
  };
  *plan.mutable_buffers(0)->mutable_bytes() = rows(24);
  *plan.mutable_buffers(1)->mutable_bytes() = rows(32);
  v1::LibraryCall& call = *plan.mutable_run(0)->mutable_library_call();
  call.set_batch(1);
  *call.mutable_rows() = rows(1);
  const v1::LibraryCall::Way way = call.ways(0);
  call.clear_ways();
  for (int64_t count : {2, 4, 9}) {
    *call.add_ways() = way;
    call.mutable_ways()->rbegin()->set_rows(count);
  }
  call.mutable_ways(1)->set_workspace_bytes(0);
  return plan;
}

TEST(LibraryCallTest, RowsAreRoundedUp) {
  const absl::StatusOr<Program> program = BuildProgram(RowsPlan());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->levels, 3);
  EXPECT_EQ(program->calls[0].at(1).rows, 4);
  EXPECT_THAT(program->buffers[0].touched, ElementsAre(48, 96, 216));
  EXPECT_THAT(program->buffers[1].touched, ElementsAre(64, 128, 288));
  EXPECT_THAT(program->buffers[4].touched, ElementsAre(256, 0, 256));
}

TEST(LibraryCallTest, WrongWaysAreNamed) {
  const auto refused = [](const std::function<void(v1::Plan&, v1::LibraryCall&)>& change,
                          const std::string& says) {
    v1::Plan plan = RowsPlan();
    change(plan, *plan.mutable_run(0)->mutable_library_call());
    const absl::Status status = BuildProgram(plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  refused([](auto&, auto& c) { c.mutable_ways(1)->set_rows(2); },
          "ways.rows is 2; it must be from 3");
  refused([](auto&, auto& c) { c.mutable_ways()->RemoveLast(); },
          "rows are up to 9, and the last way has 4");
  // Its place ends with the largest size's rows.
  refused([](auto&, auto& c) { c.mutable_ways(2)->set_rows(10); }, "result leaves its buffer");
  refused(
      [](auto& p, auto&) {
        p.mutable_buffers(0)->set_kind(v1::Buffer::ARENA);
        p.mutable_buffers(0)->set_arena_offset(64);
        p.mutable_outputs(0)->set_buffer(1);
      },
      "result leaves its buffer, which has 192 bytes");
  refused(
      [](auto& p, auto& c) {
        *p.add_run() = p.run(0);
        c.mutable_ways()->erase(c.mutable_ways()->begin());
      },
      "calls a library in 3 ways, an earlier step in 2");
}

TEST(LibraryCallTest, ObjectsCompleteTheWays) {
  Program program = BuildProgram(RowsPlan()).value();
  std::vector<LibraryCall>& ways = program.calls[0].ways;
  ASSERT_TRUE(CompleteCall(Object(3).SerializeAsString(), &ways).ok());
  EXPECT_EQ(ways[0].library, "cuBLASLt 13.1.0");
  EXPECT_EQ(ways[0].algorithm, std::string(64, 'a'));
  EXPECT_EQ(ways[2].algorithm, std::string(64, 'c'));
  const auto refused = [&](const std::string& object, const std::string& says) {
    const absl::Status status = CompleteCall(object, &ways);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_EQ(status.message(), says);
  };
  refused("\x7f", "the object of a library call is no LibraryObject");
  refused("", "the object of a library call is for no library; it names one and its version");
  refused(Object(2).SerializeAsString(),
          "the object has 2 algorithms for 3 ways of a library call");
  refused(Object(4).SerializeAsString(),
          "the object has 4 algorithms for 3 ways of a library call");
  v1::LibraryObject object = Object(3);
  object.mutable_algorithms(2)->pop_back();
  refused(object.SerializeAsString(), "the object has algorithm 2 of 63 bytes, not 64");
}

TEST(LibraryCallTest, SumsOfI8MustBeExact) {
  v1::Plan plan = ProductPlan();
  for (int b : {1, 2}) {
    plan.mutable_buffers(b)->set_dtype("i8");
    *plan.mutable_buffers(b)->mutable_bytes() = Number(1 << 21);
  }
  plan.mutable_buffers(0)->set_dtype("i32");
  v1::Step& step = *plan.mutable_run(0);
  step.mutable_buffers()->erase(step.mutable_buffers()->begin() + 3);
  v1::LibraryCall& call = *step.mutable_library_call();
  call.set_bias(false);
  call.set_sums(131071);
  call.mutable_left()->set_stride(131071);
  EXPECT_TRUE(BuildProgram(plan).ok()) << BuildProgram(plan).status();
  call.set_sums(131072);
  call.mutable_left()->set_stride(131072);
  EXPECT_THAT(std::string(BuildProgram(plan).status().message()), HasSubstr("from 1 to 131071"));
  call.set_sums(8);
  call.set_bias(true);
  plan.mutable_buffers(3)->set_dtype("i32");
  step.set_buffers(3, 3);
  step.add_buffers(4);
  EXPECT_THAT(std::string(BuildProgram(plan).status().message()), HasSubstr("and no i32"));
}

TEST(LibraryCallTest, AWindowMayNotMoveUnderACall) {
  v1::Plan plan = ProductPlan();
  const bool parsed = google::protobuf::TextFormat::MergeFromString(
      "buffers { kind: WINDOW dtype: 'f32' bytes { terms { coefficient: 256 } } } "
      "loops { steps: 1 count { terms { coefficient: 1 } } slices { buffer: 5 of: 1 } }",
      &plan);
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(BuildProgram(plan).ok()) << "a call may be in a loop";
  plan.mutable_run(0)->set_buffers(1, 5);
  EXPECT_THAT(std::string(BuildProgram(plan).status().message()),
              AllOf(HasSubstr("buffer 5 of kind WINDOW"), HasSubstr("a WINDOW moves")));
}

TEST(LibraryCallTest, DevicesWithoutALibraryRefuseThePlan) {
  const auto near = FunctionDevice::Make(1);
  FarDevice far(near.get());
  const std::string weights(192, 'w'), bias(24, 'b');
  const ParameterView parameters[] = {{"w", weights, nullptr}, {"b", bias, nullptr}};
  for (Device* device : {static_cast<Device*>(near.get()), static_cast<Device*>(&far)}) {
    const auto load = [&](const std::string& object) {
      return Executable::Load(ProductPlan(), {object}, parameters, device, {}).status();
    };
    const absl::Status status = load(Object(1).SerializeAsString());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(status.message(),
              "step 'product': kernel 0 'x w': device 'cpu' calls no library; cuBLASLt 13.1.0 is "
              "that of a GPU");
    EXPECT_EQ(load(Object(2).SerializeAsString()).message(),
              "step 'product': kernel 0 'x w': the object has 2 algorithms for 1 ways of a library "
              "call");
  }
}

}  // namespace
}  // namespace athanor
