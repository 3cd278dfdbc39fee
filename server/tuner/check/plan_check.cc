#include "server/tuner/check/plan_check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/sample/widen.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/check/plan_errors.h"
#include "server/tuner/check/plan_runs.h"
#include "server/tuner/check/plan_samples.h"
#include "server/tuner/check/plan_subjects.h"
#include "server/tuner/check/roundings.h"
#include "server/tuner/check/state_outputs.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/scratch.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Multiple of the floors within which a candidate must be if the baseline replaces f64:
// plan_errors.h.
constexpr double kUntrusted = 3;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class PlanCheck {
 public:
  PlanCheck(const internal::PlanCheckRequest& request, const IsolationLimits& limits)
      : request_(request), limits_(limits) {}

  absl::StatusOr<internal::PlanCheckReply> Run();

 private:
  absl::Status Validate();
  absl::Status RunReferences();
  absl::Status RunCandidate();
  absl::StatusOr<std::vector<int64_t>> OutputBytes(const Graph& types, const PlanRun& run) const;
  absl::Status ChooseRuns(bool with_exact);
  // Sees to it that planned runs have memory for outputs; what there is stays.
  absl::Status AllocateOutputs(PlanSubject* subject) const;
  // Puts what references have written where the candidate's process cannot write.
  absl::Status TakeReferences();

  // Runs the subjects in an isolated process of that name; `references` determine which optional
  // runs are made.
  absl::Status RunPlans(absl::string_view what, const std::vector<PlanSubject*>& subjects,
                        const std::vector<PlanMark>* references) const;

  absl::Status Compare();
  absl::Status CompareOutput(int output);
  // Returns groups of runs: the usual runs of a size, or one run of special values.
  std::vector<std::vector<int>> Groups() const;

  const internal::PlanCheckRequest& request_;
  const IsolationLimits limits_;
  Graph graph_, twin_;
  std::optional<PlanRuns> runs_;
  PlanSubject candidate_, baseline_, exact_;
  std::vector<bool> planned_;  // by run: there is memory for its outputs
  bool exact_ran_ = false;
  std::vector<PlanMark> ran_, exact_marks_;  // by run: marks of the references
  internal::PlanCheckReply reply_;
};

absl::Status PlanCheck::Validate() {
  ASSIGN_OR_RETURN(Graph graph, ParseGraph(request_.graph_text(), AcceptedLimits()));
  RETURN_IF_ERROR(Verify(graph, AcceptedLimits()));
  graph_ = WithStatesWritten(std::move(graph));
  ASSIGN_OR_RETURN(twin_, WidenToF64(graph_));
  candidate_ = {&request_.candidate(), &graph_, {}, {}};
  baseline_ = {&request_.baseline(), &graph_, {}, {}};
  exact_ = {&request_.exact(), &twin_, {}, {}};
  for (const PlanSubject* s : {&candidate_, &baseline_, &exact_}) {
    if (s->plan->objects_size() == s->plan->plan().kernels_size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("check of a plan: ", s->plan->objects_size(),
                                                   " objects for ", s->plan->plan().kernels_size(),
                                                   " kernels"));
  }
  if (request_.sizes().empty()) return absl::InvalidArgumentError("check of a plan: no sizes");
  std::vector<Expr::Env> sizes;
  const v1::Plan& plan = request_.candidate().plan();
  for (const internal::Sizes& set : request_.sizes()) {
    if (set.values_size() != plan.dims_size()) {
      return absl::InvalidArgumentError(absl::StrCat("check of a plan: ", set.values_size(),
                                                     " sizes for ", plan.dims_size(), " dims"));
    }
    Expr::Env env;
    for (int d = 0; d < plan.dims_size(); ++d) env[plan.dims(d).name()] = set.values(d);
    sizes.push_back(std::move(env));
  }
  ASSIGN_OR_RETURN(PlanRuns runs, PlanRuns::Create(graph_, sizes, request_.seed()));
  runs_.emplace(std::move(runs));
  for (const std::string& why : runs_->left_out()) reply_.add_left_out(why);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> PlanCheck::OutputBytes(const Graph& types,
                                                            const PlanRun& run) const {
  std::vector<int64_t> sizes;
  for (const Output& output : types.outputs) {
    const TensorType& type = types.node(output.node).type;
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ConcreteShape(type.shape, run.dims));
    int64_t bytes = DTypeBytes(type.dtype);
    bool fits = true;
    for (int64_t size : shape) fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
    if (!fits || bytes > limits_.memory_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("output \"", output.name, "\" at ", run.text, ", ", TypeToString(type),
                       ", needs more memory than a check of a plan may have"));
    }
    sizes.push_back(bytes);
  }
  return sizes;
}

// Chooses the runs that there is memory for: half of the limit; the other half is the plans'.
absl::Status PlanCheck::ChooseRuns(bool with_exact) {
  planned_.assign(runs_->runs().size(), false);
  int64_t total = 0;
  for (bool required : {true, false}) {
    for (size_t r = 0; r < planned_.size(); ++r) {
      const PlanRun& run = runs_->runs()[r];
      if (run.required != required) continue;
      absl::StatusOr<std::vector<int64_t>> narrow = OutputBytes(graph_, run);
      absl::StatusOr<std::vector<int64_t>> wide = OutputBytes(twin_, run);
      if (!narrow.ok()) return narrow.status();
      if (!wide.ok()) return wide.status();
      int64_t bytes = 0;
      for (int64_t b : *narrow) bytes += 2 * b;
      for (int64_t b : *wide) bytes += with_exact ? b : 0;
      if (total + bytes <= limits_.memory_bytes / 2) {
        planned_[r] = true;
        total += bytes;
      } else if (required) {
        return absl::ResourceExhaustedError(
            absl::StrCat("outputs at ", run.text, " need more than the ", limits_.memory_bytes / 2,
                         " bytes a check of a plan may have for them"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::AllocateOutputs(PlanSubject* subject) const {
  subject->outputs.resize(planned_.size());
  for (size_t r = 0; r < planned_.size(); ++r) {
    if (!planned_[r]) subject->outputs[r].clear();
    if (!planned_[r] || !subject->outputs[r].empty()) continue;
    ASSIGN_OR_RETURN(std::vector<int64_t> sizes, OutputBytes(*subject->types, runs_->runs()[r]));
    for (int64_t bytes : sizes) {
      ASSIGN_OR_RETURN(GuardedBytes memory, TakeOrCreateGuarded(limits_, bytes));
      subject->outputs[r].push_back(std::move(memory));
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::RunPlans(absl::string_view what, const std::vector<PlanSubject*>& subjects,
                                 const std::vector<PlanMark>* references) const {
  IsolationLimits limits = limits_;
  limits.memory_bytes += runs_->bytes();  // repeated pages count as often as they are mapped
  if (limits.worker != nullptr) {
    internal::PlanJob::PlanInputs inputs;
    inputs.set_graph_text(request_.graph_text());
    for (const v1::DimRange& dim : request_.candidate().plan().dims()) inputs.add_dims(dim.name());
    *inputs.mutable_sizes() = request_.sizes();
    inputs.set_seed(request_.seed());
    internal::WorkerJob job;
    *job.mutable_plan() =
        PlanJobOf(std::move(inputs), request_.threads(), subjects, planned_, references);
    return limits.worker->Run(what, limits, &job).status();
  }
  std::optional<SharedMemory> window;
  if (limits_.scratch != nullptr) {
    window = limits_.scratch->Take(WindowBytes(graph_, *runs_, subjects));
  }
  return RunIsolated(what, limits, [&] {
    return RunSubjects(graph_, *runs_, request_.threads(), subjects, planned_, references,
                       window.has_value() ? &*window : nullptr);
  });
}

absl::Status PlanCheck::RunReferences() {
  std::string why = request_.no_exact();
  if (request_.has_exact()) {
    absl::Status status = ChooseRuns(/*with_exact=*/true);
    if (status.ok()) status = AllocateOutputs(&baseline_);
    if (status.ok()) status = AllocateOutputs(&exact_);
    if (status.ok()) {
      status = RunPlans("the plan in f64", {&baseline_, &exact_}, nullptr);
      // Nothing was said of the plans: a second try may say more than weaker evidence would.
      if (absl::IsUnavailable(status) && !IsShortOfMemory(status)) return status;
    }
    exact_ran_ = status.ok();
    why = std::string(status.message());
  }
  if (!exact_ran_) {
    reply_.add_left_out(absl::StrCat("comparison with the whole graph in f64: ", why));
    for (auto& run : exact_.outputs) {
      for (GuardedBytes& output : run) RETURN_IF_ERROR(output.Drop());
    }
    exact_.outputs.clear();
    std::fill_n(baseline_.marks, runs_->runs().size(), PlanMark());
    std::fill_n(exact_.marks, runs_->runs().size(), PlanMark());
    absl::Status status = ChooseRuns(/*with_exact=*/false);
    if (status.ok()) status = AllocateOutputs(&baseline_);
    if (status.ok()) {
      status = RunPlans("the baseline", {&baseline_}, nullptr);
    }
    if (absl::IsUnavailable(status)) return status;
    if (!status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("nothing to compare with: ", status.message()));
    }
  }
  return TakeReferences();
}

absl::Status PlanCheck::TakeReferences() {
  // Copies the marks: the candidate's process can write where they lie.
  ran_.assign(baseline_.marks, baseline_.marks + runs_->runs().size());
  exact_marks_.assign(exact_.marks, exact_.marks + runs_->runs().size());
  for (PlanSubject* subject : {&baseline_, &exact_}) {
    for (auto& run : subject->outputs) {
      for (GuardedBytes& output : run) {
        if (limits_.worker != nullptr) {
          // The worker may map all of what it shares, and lives on.
          ASSIGN_OR_RETURN(GuardedBytes own, GuardedBytes::Create(output.bytes()));
          std::memcpy(own.data(), output.data(), output.bytes());
          RETURN_IF_ERROR(output.Drop());
          output = std::move(own);
        }
        output.Freeze();
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::RunCandidate() {
  RETURN_IF_ERROR(AllocateOutputs(&candidate_));
  absl::Status status = RunPlans("the plan", {&candidate_}, &ran_);
  if (!status.ok()) return status;
  for (size_t r = 0; r < runs_->runs().size(); ++r) {
    if (!ran_[r].ran) continue;
    const std::string& text = runs_->runs()[r].text;
    if (ran_[r].refused != candidate_.marks[r].refused) {
      return absl::DataLossError(
          absl::StrCat("at ", text, ": ",
                       ran_[r].refused ? "an index out of range goes unnoticed"
                                       : "an index is refused that the baseline finds in range"));
    }
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      if (candidate_.outputs[r][o].MarginIntact()) continue;
      return absl::DataLossError(absl::StrCat("output \"", graph_.outputs[o].name, "\" at ", text,
                                              ": written before its beginning"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::vector<int>> PlanCheck::Groups() const {
  std::vector<std::vector<int>> groups;
  for (int r = 0; r < static_cast<int>(ran_.size()); ++r) {
    const PlanRun& run = runs_->runs()[r];
    if (!ran_[r].ran || ran_[r].refused || exact_marks_[r].refused) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<int>& g) {
      const PlanRun& other = runs_->runs()[g[0]];
      return other.size == run.size && other.special == run.special;
    });
    if (group == groups.end()) group = groups.emplace(groups.end());
    group->push_back(r);
  }
  return groups;
}

absl::Status PlanCheck::CompareOutput(int o) {
  const Output& output = graph_.outputs[o];
  const DType dtype = graph_.node(output.node).type.dtype;
  const DType exact_dtype = twin_.node(twin_.outputs[o].node).type.dtype;
  const std::vector<std::vector<int>> groups = Groups();
  // Uses one kind of reference for all groups, since their errors are compared with each other.
  std::vector<SampledOutput> sampled(groups.size());
  bool samples = !exact_ran_;
  for (size_t g = 0; g < groups.size() && samples; ++g) {
    samples = SampleInF64(twin_, *runs_, groups[g], o, request_.seed(), &sampled[g]);
  }
  const bool alone = !exact_ran_ && !samples;
  // In f64 the twin rounds as much as the baseline does, and so it does what states keep.
  const bool rounded = dtype == DType::kF64 || !StateOf(graph_, output).empty();
  double trust = alone || rounded ? kUntrusted : 1;
  if (request_.approximate() && IsFloat(dtype)) {
    trust *= std::max(1.0, UnitRoundoff(DType::kBF16) / UnitRoundoff(dtype));
  }
  OutputErrors errors(output.name, dtype, trust);
  for (size_t g = 0; g < groups.size(); ++g) {
    const PlanRun& about = runs_->runs()[groups[g][0]];
    // Integers and bools there may result from comparisons of rounded values.
    if (about.special == SpecialFloats::kEnds && !IsFloat(dtype)) continue;
    ASSIGN_OR_RETURN(std::vector<double> noise, RoundingNoise(graph_, about.dims));
    std::vector<ComparedTensor> tensors;
    std::vector<std::string> picked;
    picked.reserve(2 * groups[g].size());
    for (size_t i = 0; i < groups[g].size(); ++i) {
      const int r = groups[g][i];
      ComparedTensor& t = tensors.emplace_back();
      t.shape = ConcreteShape(graph_.node(output.node).type.shape, runs_->runs()[r].dims).value();
      t.candidate = candidate_.outputs[r][o].view();
      t.baseline = baseline_.outputs[r][o].view();
      t.exact_dtype = alone ? dtype : exact_dtype;
      t.exact = exact_ran_ ? exact_.outputs[r][o].view() : t.baseline;
      if (!samples) continue;
      t.positions = sampled[g].positions[i];
      t.exact = sampled[g].values[i].bytes;
      for (absl::string_view* bytes : {&t.candidate, &t.baseline}) {
        *bytes = picked.emplace_back(Picked(*bytes, sampled[g].positions[i], DTypeBytes(dtype)));
      }
    }
    errors.Add(about.text, tensors, noise[o],
               about.special == SpecialFloats::kNone   ? DrawnValues::kUsual
               : about.special == SpecialFloats::kEnds ? DrawnValues::kEnds
                                                       : DrawnValues::kSpecial);
  }
  if (alone) {
    reply_.set_compared_with("baseline");
    reply_.add_left_out(absl::StrCat("output \"", output.name,
                                     "\" in f64: its elements follow "
                                     "from too many others; compared with the baseline alone"));
  } else if (samples && reply_.compared_with() != "baseline") {
    reply_.set_compared_with("f64 samples");
  }
  const OutputErrors::Summary s = errors.Summarize();
  internal::PlanOutputError* told = reply_.add_outputs();
  told->set_name(output.name);
  told->set_candidate_largest(s.candidate[kLargest]);
  told->set_candidate_rms(s.candidate[kRootMeanSquare]);
  told->set_baseline_largest(s.baseline[kLargest]);
  told->set_baseline_rms(s.baseline[kRootMeanSquare]);
  told->set_baseline_unlike(s.unlike);
  reply_.set_worst_error(std::max(reply_.worst_error(), s.worst));
  reply_.set_elements(reply_.elements() + s.elements);
  return errors.Judge();
}

absl::Status PlanCheck::Compare() {
  reply_.set_compared_with("f64 plan");
  for (size_t r = 0; r < ran_.size(); ++r) {
    const PlanRun& run = runs_->runs()[r];
    reply_.set_runs(reply_.runs() + (ran_[r].ran ? 1 : 0));
    const char* why = !ran_[r].ran              ? "no time"
                      : ran_[r].refused         ? "an index is out of range"
                      : exact_marks_[r].refused ? "in f64 an index is out of range"
                                                : nullptr;
    // Missing optional runs of usual values need not be reported.
    if (why == nullptr || (!ran_[r].ran && run.special == SpecialFloats::kNone)) continue;
    reply_.add_left_out(absl::StrCat(run.text, ": ", why));
  }
  if (Groups().empty()) {
    return absl::FailedPreconditionError(
        "nothing to compare: in every run an index is out of range");
  }
  for (size_t o = 0; o < graph_.outputs.size(); ++o) {
    RETURN_IF_ERROR(CompareOutput(static_cast<int>(o)));
  }
  return absl::OkStatus();
}

absl::StatusOr<internal::PlanCheckReply> PlanCheck::Run() {
  const Clock::time_point start = Clock::now();
  RETURN_IF_ERROR(Validate());
  const size_t runs = runs_->runs().size();
  for (PlanSubject* subject : {&candidate_, &baseline_, &exact_}) {
    ASSIGN_OR_RETURN(SharedMemory memory, TakeOrCreate(limits_, runs * sizeof(PlanMark)));
    subject->Mark(std::move(memory), runs);
  }
  for (auto step : {&PlanCheck::RunReferences, &PlanCheck::RunCandidate, &PlanCheck::Compare}) {
    RETURN_IF_ERROR((this->*step)());
  }
  reply_.set_worst_error(std::min(reply_.worst_error(), 1.0));
  reply_.set_seconds(SecondsSince(start));
  return std::move(reply_);
}

}  // namespace

absl::StatusOr<internal::PlanCheckReply> CheckPlan(const internal::PlanCheckRequest& request,
                                                   const IsolationLimits& limits) {
  return PlanCheck(request, limits).Run();
}

}  // namespace athanor
