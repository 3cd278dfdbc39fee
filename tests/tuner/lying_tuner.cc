// A tuner whose searches find wrong plans; it leaves all else to the real tuner. Tests use it to
// see that the server notices (plan_verify_test.cc).
//
// Graphs hold the factor 2.0. It finds these plans in this order, one after each outcome:
//   p-scaled   of the graph with 2.002 instead
//   p-special  right, but executes an illegal instruction if an input is NaN
//   p-lost     right, but the process ends when asked to check it
//   p-right    right
// The search of a graph "near" asks for nothing: it is near its roofline until the limits rise. The
// kernels of a baseline are checked between its lowering and the next search or measurement. Those
// of a graph "wrong" are wrong; those of "wrong unless plain" are wrong except in the plain plan;
// the first check of "late and wrong" has no time left.
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_channel.h"
#include "server/child/tuner_process.h"

namespace athanor {
namespace {

constexpr const char* kPlans[] = {"p-scaled", "p-special", "p-lost", "p-right"};

template <typename T>
absl::Status Put(absl::StatusOr<T> value, T* reply) {
  if (value.ok()) *reply = *std::move(value);
  return value.status();
}

class LyingTuner {
 public:
  explicit LyingTuner(TunerProcess* real) : real_(*real) {}

  absl::Status Serve(const internal::TunerRequest& request, internal::TunerReply* reply) {
    switch (request.kind_case()) {
      case internal::TunerRequest::kTarget:
        return Put(real_.Target(), reply->mutable_target());
      case internal::TunerRequest::kLower:
        return Lower(request.lower(), reply->mutable_lower());
      case internal::TunerRequest::kCompile:
        return Put(real_.Compile(request.compile().source(), request.compile().target()),
                   reply->mutable_compile()->mutable_object());
      case internal::TunerRequest::kCheck:
        if (!verdict_.ok()) return std::exchange(verdict_, absl::DataLossError("y is wrong"));
        return Put(real_.CheckReport(request.check()), reply->mutable_check());
      case internal::TunerRequest::kMeasure:
        verdict_ = absl::OkStatus();
        return Put(real_.Measure(request.measure()), reply->mutable_measure());
      case internal::TunerRequest::kPlanCheck:
        if (request.plan_check().candidate().plan().plan_id() == "p-lost") _exit(0);
        return Put(real_.CheckPlan(request.plan_check()), reply->mutable_plan_check());
      case internal::TunerRequest::kSearch:
        verdict_ = absl::OkStatus();
        return Search(request.search(), reply->mutable_search());
      case internal::TunerRequest::kMachine:
        return Put(real_.Machine(request.machine().target(), request.machine().threads()),
                   reply->mutable_machine());
      default:
        return absl::UnimplementedError("not in this test");
    }
  }

 private:
  absl::Status Lower(const internal::LowerRequest& request, internal::LowerReply* reply) {
    const Graph graph = *ParseGraph(request.graph_text());
    verdict_ = absl::OkStatus();
    if (graph.name == "wrong" || (graph.name == "wrong unless plain" && !request.plain())) {
      verdict_ = absl::DataLossError("y is wrong");
    }
    if (graph.name == "late and wrong") verdict_ = absl::AbortedError("no time is left");
    return Put(real_.Lower(graph, request.target(), request.exact(), request.plain()), reply);
  }

  absl::Status Search(const internal::SearchRequest& request, internal::SearchReply* reply) {
    if (request.start().name_regions()) return absl::OkStatus();
    if (request.has_start()) {
      start_ = request.start();
      told_.clear();
    }
    if (ParseGraph(start_.graph_text())->name == "near") {
      constexpr int kSteps = 5;
      const bool raised = request.limits_size() == 1 && request.limits(0).steps() == kSteps;
      reply->set_done(true);
      reply->set_steps(kSteps);
      reply->set_stop(raised ? "exhausted" : "roofline");
      return absl::OkStatus();
    }
    for (const internal::PlanOutcome& outcome : request.plans()) told_.insert(outcome.plan_id());
    if (told_.size() == std::size(kPlans)) {
      reply->set_done(true);
      reply->set_stop("exhausted");
      return absl::OkStatus();
    }
    return Plan(kPlans[told_.size()], reply->mutable_plan());
  }

  absl::Status Plan(const std::string& id, internal::SearchPlan* found) {
    std::string text = start_.graph_text();
    if (id == "p-scaled") text = absl::StrReplaceAll(text, {{"2.0", "2.002"}});
    auto lowered = real_.Lower(*ParseGraph(text), start_.target());
    if (!lowered.ok()) return lowered.status();
    *found->mutable_plan() = std::move(*lowered->mutable_plan());
    *found->mutable_checks() = std::move(*lowered->mutable_checks());
    found->mutable_plan()->set_plan_id(id);
    found->set_about("form 7: a_rule");
    for (int64_t size : {1, 40}) found->add_sizes()->add_values(size);
    if (id != "p-special") return absl::OkStatus();
    v1::Kernel* kernel = found->mutable_plan()->mutable_kernels(0);
    kernel->set_source(absl::StrCat(
        absl::StrReplaceAll(kernel->source(),
                            {{"void athanor_kernel(", "static void right_kernel("}}),
        "\nvoid athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end,"
        " void* scratch, struct KernelError* error) {"
        " for (i64 i = 0; i < 32; ++i) { f32 x = ((const f32*)buffers[1])[i];"
        " if (x != x) __builtin_trap(); }"
        " right_kernel(buffers, sizes, begin, end, scratch, error); }\n"));
    return absl::OkStatus();
  }

  TunerProcess& real_;
  absl::Status verdict_;  // the next check's verdict, if it differs from the real one
  internal::SearchStart start_;
  std::set<std::string> told_;
};

int Run() {
  TunerOptions options;
  options.binary = "server/athanor-tuner";
  auto real = TunerProcess::Start(options);
  if (!real.ok()) return 1;
  LyingTuner tuner(real->get());
  for (;;) {
    absl::StatusOr<std::string> bytes = ReadFrame(kTunerFd, kMaxTunerFrame, {});
    if (!bytes.ok()) return 0;
    internal::TunerRequest request;
    internal::TunerReply reply;
    const absl::Status status = request.ParseFromString(*bytes)
                                    ? tuner.Serve(request, &reply)
                                    : absl::InvalidArgumentError("no request");
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(std::string(status.message()));
    if (!WriteFrame(kTunerFd, reply, {}).ok()) return 1;
  }
}

}  // namespace
}  // namespace athanor

int main() { return athanor::Run(); }
