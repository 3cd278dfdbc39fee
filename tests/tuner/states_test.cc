// Checks and measures graphs with states with a real tuner process: kernels and whole plans of a
// paged decoder pass, those that write another slot, another value or one row less do not.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/rows/paged_sizes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tuner/paged_decoder.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

// Writes rows of two heads.
constexpr char kWrites[] = R"(graph "g" { dim T in [1, 64] dim N in [8, 64]
  %0 = Input "u" : f32[T, 2, 4] %1 = Input "i" : i32[T]
  %2 = StateRead "s" {role="keys"} : f32[16*N, 2, 4] %3 = Exp(%0)
  %4 = StateWrite(%2, %1, %3) %5 = Exp(%3) output "y" = %5 update %4 })";

class StatesTest : public TunerTest {
 protected:
  void Compile(const v1::Plan& plan, google::protobuf::RepeatedPtrField<std::string>* objects) {
    for (const v1::Kernel& kernel : plan.kernels()) {
      std::string& object = objects_[kernel.source()];
      if (object.empty()) {
        auto compiled = tuner_->Compile(kernel.source(), target_);
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        object = *std::move(compiled);
      }
      objects->Add(std::string(object));
    }
  }

  internal::LowerReply Lower(const std::string& text, bool exact = false, bool plain = false) {
    auto lowered = tuner_->Lower(ParseGraph(text).value(), target_, exact, plain);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return lowered.ok() ? *std::move(lowered) : internal::LowerReply();
  }

  internal::MeasuredPlan PlanOf(const std::string& text, bool exact = false, bool plain = false) {
    internal::MeasuredPlan plan;
    *plan.mutable_plan() = Lower(text, exact, plain).plan();
    Compile(plan.plan(), plan.mutable_objects());
    return plan;
  }

  // The checks of kernels that write a state.
  std::vector<internal::CheckRequest> WritesOf(const std::string& text) {
    std::vector<internal::CheckRequest> writes;
    internal::LowerReply lowered = Lower(text);
    for (internal::KernelCheck& check : *lowered.mutable_checks()) {
      if (check.request().graph_text().find("update") == std::string::npos) continue;
      writes.push_back(std::move(*check.mutable_request()));
      Compile(writes.back().plan(), writes.back().mutable_objects());
    }
    return writes;
  }

  // Reports what the check says of a right kernel whose graph is told to be another.
  absl::Status CheckedAs(internal::CheckRequest request, const std::string& is,
                         const std::string& becomes) {
    EXPECT_THAT(request.graph_text(), HasSubstr(is));
    request.set_graph_text(absl::StrReplaceAll(request.graph_text(), {{is, becomes}}));
    return tuner_->Check(request);
  }

  std::map<std::string, std::string> objects_;  // by source
};

TEST_F(StatesTest, KernelsOfADecoderPass) {
  for (bool plain : {false, true}) {
    internal::LowerReply lowered = Lower(kPagedDecoder, /*exact=*/false, plain);
    int writes = 0, empty = 0;
    for (internal::KernelCheck& check : *lowered.mutable_checks()) {
      internal::CheckRequest& request = *check.mutable_request();
      Compile(request.plan(), request.mutable_objects());
      const absl::Status passed = tuner_->Check(request);
      EXPECT_TRUE(passed.ok()) << passed << "\n" << request.graph_text();
      writes += request.graph_text().find("update") != std::string::npos ? 1 : 0;
      for (const auto& sizes : request.sizes()) {
        for (int d = 0; d < request.plan().dims_size(); ++d) {
          if (request.plan().dims(d).max() == 64 && request.plan().dims(d).min() == 0) {
            empty += sizes.values(d) == 0 ? 1 : 0;
          }
        }
      }
    }
    EXPECT_GT(writes, 0);
    EXPECT_GT(empty, 0) << "no kernel was checked with no wanted row";
  }
}

TEST_F(StatesTest, WrongWritesAreFound) {
  const std::vector<internal::CheckRequest> writes = WritesOf(kWrites);
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(tuner_->Check(writes[0]), absl::OkStatus());
  internal::CheckRequest sampled = writes[0];
  for (auto& sizes : *sampled.mutable_sizes()) sizes.set_sampled(true);
  EXPECT_EQ(tuner_->Check(sampled), absl::OkStatus());
  for (const internal::CheckRequest& request : {writes[0], sampled}) {
    const std::string& text = request.graph_text();
    const size_t at = text.find(" = StateWrite(");
    const std::string write =
        text.substr(at, text.find(')', at) + 1 - at);  // " = StateWrite(%a, .."
    std::vector<std::string> operands;
    for (size_t i = write.find('%'); i != std::string::npos; i = write.find('%', i + 1)) {
      operands.push_back(write.substr(i, write.find_first_of(",)", i) - i));
    }
    ASSERT_EQ(operands.size(), 3u) << write;
    const auto becomes = [&](const std::string& added, const std::string& index,
                             const std::string& update) {
      const std::string root = text.substr(text.rfind('%', at), at - text.rfind('%', at));
      const std::string is = root + write;
      return CheckedAs(request, is,
                       absl::StrCat(added, "\n  ", root, " = StateWrite(", operands[0], ", ", index,
                                    ", ", update, ")"));
    };
    const std::string t = text.substr(text.find("i32[") + 4, 2);  // the dim of rows
    // Another value, another slot of each row, and one element of each row.
    for (const absl::Status& status :
         {becomes(absl::StrCat("%90 = Add(", operands[2], ", ", operands[2], ")"), operands[1],
                  "%90"),
          becomes(absl::StrCat("%90 = IndexMap(", operands[1], ") {map=map[", t, "](", t,
                               " - $0 - 1)}"),
                  "%90", operands[2]),
          becomes(absl::StrCat("%90 = IndexMap(", operands[2], ") {map=map[", t,
                               ", 2, 4]($0, 1 - $1, $2)}"),
                  operands[1], "%90")}) {
      EXPECT_EQ(status.code(), Code::kDataLoss) << status << "\n" << text;
    }
  }
}

TEST_F(StatesTest, WholePlansAreComparedWithTheirStates) {
  internal::PlanCheckRequest request;
  request.set_graph_text(kPagedDecoder);
  request.set_seed(3);
  request.set_threads(2);
  *request.mutable_candidate() = PlanOf(kPagedDecoder);
  *request.mutable_baseline() = PlanOf(kPagedDecoder, /*exact=*/false, /*plain=*/true);
  *request.mutable_exact() = PlanOf(kPagedDecoder, /*exact=*/true);
  const PagedSizes paged = PagedSizes::Of(ParseGraph(kPagedDecoder).value()).value();
  std::vector<Dim> dims;
  for (const v1::DimRange& dim : request.candidate().plan().dims()) {
    dims.push_back({dim.name(), dim.min(), dim.max()});
  }
  std::vector<PagedCall> calls = paged.Compared();
  calls.push_back({.rows = 7, .sequences = 3, .wanted = 2, .context = 40});
  for (const PagedCall& call : calls) {
    const std::vector<int64_t> values = paged.At(call, dims);
    request.add_sizes()->mutable_values()->Assign(values.begin(), values.end());
  }
  const auto right = tuner_->CheckPlan(request);
  ASSERT_TRUE(right.ok()) << right.status();
  ASSERT_EQ(right->outputs_size(), 3);
  EXPECT_EQ(right->outputs(1).name(), "state k");
  EXPECT_EQ(right->outputs(2).name(), "state v");
  EXPECT_EQ(right->compared_with(), "f64 plan");
  // Values that nothing of this step shows: keys of no later row, and what is written a bit off.
  const std::string scaled = absl::StrReplaceAll(
      kPagedDecoder,
      {{"%33 = StateWrite \"write_v\"(%11, %31, %15)",
        "%60 = Constant {value=f32[] {1.001}} %61 = IndexMap(%60) {map=map[T, 2, 16]()} "
        "%62 = Mul(%15, %61) %33 = StateWrite \"write_v\"(%11, %31, %62)"}});
  *request.mutable_candidate() = PlanOf(scaled);
  const absl::Status wrong = tuner_->CheckPlan(request).status();
  EXPECT_EQ(wrong.code(), Code::kDataLoss) << wrong;
}

TEST_F(StatesTest, PlansAndKernelsAreMeasured) {
  internal::MeasureRequest request;
  request.set_graph_text(kPagedDecoder);
  request.set_threads(2);
  *request.add_plans() = PlanOf(kPagedDecoder);
  const PagedSizes paged = PagedSizes::Of(ParseGraph(kPagedDecoder).value()).value();
  std::vector<Dim> dims;
  for (const v1::DimRange& dim : request.plans(0).plan().dims()) {
    dims.push_back({dim.name(), dim.min(), dim.max()});
  }
  for (int64_t rows : {1, 32}) {
    const std::vector<int64_t> values = paged.At(PagedSizes::Usual(rows, 100), dims);
    request.add_sizes()->mutable_values()->Assign(values.begin(), values.end());
  }
  const auto times = tuner_->Measure(request);
  ASSERT_TRUE(times.ok()) << times.status();
  for (const internal::SizeTimes& size : times->plans(0).sizes()) EXPECT_GT(size.seconds(), 0);
  // Kernels as layers of a model, each with states of its own.
  for (const internal::CheckRequest& write : WritesOf(kWrites)) {
    internal::MeasureRequest alone;
    alone.set_graph_text(write.graph_text());
    alone.set_threads(2);
    *alone.add_plans()->mutable_plan() = write.plan();
    *alone.mutable_plans(0)->mutable_objects() = write.objects();
    for (const v1::DimRange& dim : write.plan().dims()) {
      if (alone.sizes().empty()) alone.add_sizes();
      alone.mutable_sizes(0)->add_values(dim.max());
    }
    alone.add_activation_bytes(1 << 20);
    const auto layers = tuner_->Measure(alone);
    ASSERT_TRUE(layers.ok()) << layers.status();
    EXPECT_GT(layers->plans(0).sizes(0).seconds(), 0);
    EXPECT_GT(layers->plans(0).sizes(0).layers(), 1);
  }
}

}  // namespace
}  // namespace athanor
