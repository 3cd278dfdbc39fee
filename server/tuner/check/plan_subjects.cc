#include "server/tuner/check/plan_subjects.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor/executor.h"
#include "runtime/memory/prepared_pool.h"
#include "server/tuner/check/state_outputs.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/scratch.h"
#include "server/tuner/run/scratch_states.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/run/weight_turns.h"

namespace athanor {
namespace {

// Optional runs begin as long as the references have used less than this. It is processor time of
// all threads, so that a busy machine checks as much as an idle one.
constexpr double kOptionalSeconds = 1.0;
constexpr unsigned char kNoise = 0x5a;

double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

class SubjectRunner {
 public:
  SubjectRunner(const Graph& graph, const PlanRuns& runs, int threads,
                const std::vector<bool>& planned, const std::vector<PlanMark>* references,
                const SharedMemory* window)
      : graph_(graph),
        runs_(runs),
        threads_(threads),
        planned_(planned),
        references_(references),
        window_(window) {}

  absl::Status RunAll(const std::vector<PlanSubject*>& subjects) const;

 private:
  absl::Status RunSet(Device* device, const std::vector<PlanSubject*>& subjects, int set) const;
  struct Loaded {
    std::unique_ptr<ScratchStates> states;
    std::shared_ptr<const Executable> plan;
    std::unique_ptr<Executable::Context> context;
  };

  // The run's sizes in the order of the plan's dims.
  static absl::StatusOr<std::vector<int64_t>> DimsOf(const Executable& plan, const PlanRun& run);
  absl::StatusOr<Loaded> Load(const internal::MeasuredPlan& measured,
                              const std::vector<ParameterView>& parameters,
                              const LoadOptions& options, Device* device) const;
  absl::Status RunOne(const PlanSubject& subject, const Loaded& loaded, int run) const;

  const Graph& graph_;
  const PlanRuns& runs_;
  const int threads_;
  const std::vector<bool>& planned_;
  // A device worker has done other jobs before.
  const double began_ = ProcessorSeconds();
  const std::vector<PlanMark>* const references_;
  const SharedMemory* const window_;
};

absl::StatusOr<std::vector<int64_t>> SubjectRunner::DimsOf(const Executable& plan,
                                                           const PlanRun& run) {
  std::vector<int64_t> dims;
  for (const SizeDim& dim : plan.dims()) {
    auto size = run.dims.find(dim.name);
    if (size == run.dims.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan's dim \"", dim.name, "\" is none of the candidate's"));
    }
    dims.push_back(size->second);
  }
  RETURN_IF_ERROR(plan.CheckDims(dims));
  return dims;
}

absl::Status SubjectRunner::RunOne(const PlanSubject& subject, const Loaded& loaded, int r) const {
  const PlanRun& run = runs_.runs()[r];
  const Executable& plan = *loaded.plan;
  ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(plan, run));
  const std::vector<NodeId> ids = graph_.InputIds();
  std::vector<absl::string_view> inputs;
  for (int i = 0; i < plan.inputs(); ++i) {
    auto id = std::find_if(ids.begin(), ids.end(), [&](NodeId n) {
      return absl::string_view(graph_.node(n).name) == plan.input_name(i);
    });
    if (id == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan's input \"", plan.input_name(i), "\" is none of the graph's"));
    }
    inputs.push_back(run.inputs[id - ids.begin()]);
  }
  std::vector<absl::Span<char>> outputs;
  for (int i = 0; i < plan.outputs(); ++i) {
    auto output = std::find_if(graph_.outputs.begin(), graph_.outputs.end(), [&](const Output& o) {
      return absl::string_view(o.name) == plan.output_name(i);
    });
    if (output == graph_.outputs.end() || plan.outputs() != PlanOutputsOf(graph_)) {
      return absl::InvalidArgumentError(absl::StrCat("the plan's output \"", plan.output_name(i),
                                                     "\" is none of the graph's, "
                                                     "or it lacks one of them"));
    }
    const GuardedBytes& memory = subject.outputs[r][output - graph_.outputs.begin()];
    std::memset(memory.data(), kNoise, memory.bytes());
    outputs.push_back(absl::MakeSpan(memory.data(), memory.bytes()));
  }
  RETURN_IF_ERROR(FillStates(graph_, run.states, dims, loaded.states.get()));
  const absl::Status status = plan.Run(loaded.context.get(), dims, inputs, outputs, {});
  subject.marks[r].refused = IsIndexError(status);
  subject.marks[r].ran = true;
  if (!status.ok()) return subject.marks[r].refused ? absl::OkStatus() : status;
  std::vector<absl::Span<char>> all;
  for (const GuardedBytes& memory : subject.outputs[r]) {
    all.push_back(absl::MakeSpan(memory.data(), memory.bytes()));
  }
  return ReadStates(graph_, dims, *loaded.states, all);
}

absl::StatusOr<SubjectRunner::Loaded> SubjectRunner::Load(
    const internal::MeasuredPlan& measured, const std::vector<ParameterView>& parameters,
    const LoadOptions& options, Device* device) const {
  const std::vector<absl::string_view> objects(measured.objects().begin(),
                                               measured.objects().end());
  Loaded loaded;
  ASSIGN_OR_RETURN(loaded.plan,
                   Executable::Load(measured.plan(), objects, parameters, device, options));
  std::vector<std::vector<int64_t>> sizes;
  for (const PlanRun& run : runs_.runs()) {
    ASSIGN_OR_RETURN(sizes.emplace_back(), DimsOf(*loaded.plan, run));
  }
  ASSIGN_OR_RETURN(loaded.states, ScratchStates::Create(measured.plan(), sizes, device));
  ASSIGN_OR_RETURN(loaded.context, loaded.plan->NewContext(loaded.states->memory()));
  return loaded;
}

absl::Status SubjectRunner::RunSet(Device* device, const std::vector<PlanSubject*>& subjects,
                                   int set) const {
  std::vector<ParameterView> parameters;
  const std::vector<NodeId> ids = graph_.ParameterIds();
  const bool shared = AreShared(runs_.turns());
  for (size_t i = 0; i < ids.size(); ++i) {
    parameters.push_back({graph_.node(ids[i]).name, runs_.weights(set)[i], nullptr,
                          shared ? WeightName(set, runs_.turns()[i]) : ""});
  }
  std::optional<ScratchDevice> large;
  if (window_ != nullptr) large.emplace(device, window_->data(), window_->bytes());
  PreparedPool pool(device, nullptr, large.has_value() ? &*large : nullptr);
  const LoadOptions options{.pool = shared || large.has_value() ? &pool : nullptr, .poison = true};
  std::vector<Loaded> plans;
  for (bool required : {true, false}) {
    for (size_t r = 0; r < runs_.runs().size(); ++r) {
      const PlanRun& run = runs_.runs()[r];
      if (run.weights != set || run.required != required || !planned_[r]) continue;
      if (references_ == nullptr && !required && ProcessorSeconds() - began_ > kOptionalSeconds) {
        continue;
      }
      if (references_ != nullptr && !(*references_)[r].ran) continue;
      for (size_t s = 0; s < subjects.size(); ++s) {
        if (plans.size() == s) {
          ASSIGN_OR_RETURN(Loaded loaded, Load(*subjects[s]->plan, parameters, options, device));
          plans.push_back(std::move(loaded));
        }
        absl::Status status = RunOne(*subjects[s], plans[s], static_cast<int>(r));
        if (status.ok()) continue;
        return absl::Status(status.code(), absl::StrCat("at ", run.text, ": ", status.message()));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status SubjectRunner::RunAll(const std::vector<PlanSubject*>& subjects) const {
  if (subjects.empty()) return absl::OkStatus();
  const auto run = [&](Device* device) {
    absl::Status status;
    for (int set = 0; set < runs_.weight_sets() && status.ok(); ++set) {
      status = RunSet(device, subjects, set);
    }
    return status;
  };
  return RunOnDevice(subjects.front()->plan->plan().target(), threads_, run);
}

}  // namespace

absl::Status RunSubjects(const Graph& graph, const PlanRuns& runs, int threads,
                         const std::vector<PlanSubject*>& subjects,
                         const std::vector<bool>& planned, const std::vector<PlanMark>* references,
                         const SharedMemory* window) {
  return SubjectRunner(graph, runs, threads, planned, references, window).RunAll(subjects);
}

void PlanSubject::Mark(SharedMemory memory, size_t runs) {
  marks_memory = std::move(memory);
  marks = new (marks_memory->data()) PlanMark[runs];
}

internal::PlanJob PlanJobOf(internal::PlanJob::PlanInputs inputs, int threads,
                            const std::vector<PlanSubject*>& subjects,
                            const std::vector<bool>& planned,
                            const std::vector<PlanMark>* references) {
  internal::PlanJob job;
  *job.mutable_inputs() = std::move(inputs);
  job.set_threads(threads);
  job.mutable_planned()->Assign(planned.begin(), planned.end());
  if (references != nullptr) {
    for (const PlanMark& mark : *references) job.add_made(mark.ran);
  }
  for (const PlanSubject* subject : subjects) {
    internal::PlanJob::Subject& message = *job.add_subjects();
    *message.mutable_plan() = *subject->plan;
    *message.mutable_marks() = ToMessage(*subject->marks_memory);
    for (const std::vector<GuardedBytes>& run : subject->outputs) {
      internal::PlanJob::Outputs& outputs = *message.add_runs();
      for (const GuardedBytes& output : run) *outputs.add_outputs() = ToMessage(output);
    }
  }
  return job;
}

absl::Status PlanJobs::Draw(const internal::PlanJob::PlanInputs& inputs) {
  std::string key = inputs.SerializeAsString();
  if (runs_.has_value() && key_ == key) return absl::OkStatus();
  runs_.reset();
  ASSIGN_OR_RETURN(Graph graph, ParseGraph(inputs.graph_text(), AcceptedLimits()));
  graph_ = WithStatesWritten(std::move(graph));
  std::vector<Expr::Env> sizes;
  for (const internal::Sizes& set : inputs.sizes()) {
    if (set.values_size() != inputs.dims_size()) {
      return absl::InvalidArgumentError("a job with sizes of other dims");
    }
    Expr::Env& env = sizes.emplace_back();
    for (int d = 0; d < inputs.dims_size(); ++d) env[inputs.dims(d)] = set.values(d);
  }
  ASSIGN_OR_RETURN(PlanRuns runs, PlanRuns::Create(graph_, sizes, inputs.seed()));
  runs_.emplace(std::move(runs));
  key_ = std::move(key);
  return absl::OkStatus();
}

absl::Status PlanJobs::Serve(const internal::PlanJob& job, absl::FunctionRef<void()> drawn) {
  RETURN_IF_ERROR(Draw(job.inputs()));
  drawn();
  const int runs = static_cast<int>(runs_->runs().size());
  bool fits = job.planned_size() == runs && (job.made().empty() || job.made_size() == runs);
  std::vector<PlanSubject> subjects;
  subjects.reserve(job.subjects_size());
  std::vector<PlanSubject*> pointers;
  for (const internal::PlanJob::Subject& message : job.subjects()) {
    PlanSubject& subject = subjects.emplace_back(PlanSubject{&message.plan(), &graph_, {}, {}});
    pointers.push_back(&subject);
    fits = fits && message.runs_size() == runs &&
           message.marks().bytes() >= static_cast<int64_t>(runs * sizeof(PlanMark));
    if (!fits) break;
    ASSIGN_OR_RETURN(SharedMemory marks, SharedFrom(message.marks()));
    subject.Mark(std::move(marks), runs);
    for (int r = 0; r < runs; ++r) {
      const auto& outputs = message.runs(r).outputs();
      fits = fits && (!job.planned(r) || outputs.size() == std::ssize(graph_.outputs));
      std::vector<GuardedBytes>& memory = subject.outputs.emplace_back();
      for (const internal::SharedBytes& output : outputs) {
        ASSIGN_OR_RETURN(GuardedBytes bytes, GuardedFrom(output));
        memory.push_back(std::move(bytes));
      }
    }
  }
  if (!fits) return absl::InvalidArgumentError("a job whose runs do not fit its inputs");
  const std::vector<bool> planned(job.planned().begin(), job.planned().end());
  std::vector<PlanMark> references;
  for (const bool made : job.made()) references.push_back({.ran = made});
  return RunSubjects(graph_, *runs_, job.threads(), pointers, planned,
                     references.empty() ? nullptr : &references, nullptr);
}

int64_t WindowBytes(const Graph& graph, const PlanRuns& runs,
                    const std::vector<PlanSubject*>& subjects) {
  ParameterHashes hashes;
  const std::vector<NodeId> ids = graph.ParameterIds();
  for (size_t i = 0; i < ids.size() && AreShared(runs.turns()); ++i) {
    hashes[graph.node(ids[i]).name] = WeightName(0, runs.turns()[i]);
  }
  int64_t bytes = 0;
  for (const PlanSubject* s : subjects) bytes += LargePreparedBytes(s->plan->plan(), hashes);
  return bytes;
}

}  // namespace athanor
