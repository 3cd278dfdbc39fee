#include "server/generate/plan_step_runner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

template <typename Item>
int IndexOf(absl::Span<const Item> items, std::string_view name) {
  const auto at =
      std::find_if(items.begin(), items.end(), [&](const Item& item) { return item.name == name; });
  return static_cast<int>(at - items.begin());
}

std::string_view BytesOf(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)};
}

}  // namespace

PlanStepRunner::PlanStepRunner(Plans* plans, const Graph& graph, const PlanStepOptions& options)
    : plans_(*plans), options_(options), dims_(graph.dims.size()) {
  std::vector<Node> inputs;
  for (NodeId id : graph.InputIds()) inputs.push_back(graph.node(id));
  constexpr std::string_view kInputNames[] = {"ids", "sequence", "position", "table", "wanted"};
  constexpr std::string_view kSizeNames[] = {"T", "R", "S", "B", "N"};
  for (int i = 0; i < kInputs; ++i) input_at_[i] = IndexOf<Node>(inputs, kInputNames[i]);
  for (int i = 0; i < kSizes; ++i) size_at_[i] = IndexOf<Dim>(graph.dims, kSizeNames[i]);
}

PlanStepRunner::~PlanStepRunner() = default;

absl::StatusOr<absl::Span<const float>> PlanStepRunner::Run(
    const Step& step, absl::Span<const absl::Span<const int32_t>> tables) {
  RETURN_IF_ERROR(AwaitStates());
  Fill(step, tables);
  std::shared_ptr<const ServedPlan> plan;
  while ((plan = plans_.For(dims_)) == nullptr) RETURN_IF_ERROR(AwaitPlan());
  ASSIGN_OR_RETURN(RunContext* const context, ContextOf(plan));
  const size_t wanted = values_[kWanted].size() * options_.vocabulary;
  if (logits_.size() < wanted) logits_.resize(wanted);
  std::array<std::string_view, kInputs> inputs;
  for (int i = 0; i < kInputs; ++i) inputs[input_at_[i]] = BytesOf(values_[i]);
  const RunOutput output{0, logits_.data(), static_cast<int64_t>(wanted * sizeof(float))};
  RETURN_IF_ERROR(plan->runner->Run(*context, dims_, inputs, {output}, {}));
  plan_id_ = plan->id();
  return absl::MakeConstSpan(logits_.data(), wanted);
}

void PlanStepRunner::Fill(const Step& step, absl::Span<const absl::Span<const int32_t>> tables) {
  for (std::vector<int32_t>& values : values_) values.clear();
  for (const Row& row : step.rows) {
    if (row.wanted) values_[kWanted].push_back(static_cast<int32_t>(values_[kIds].size()));
    values_[kIds].push_back(row.token);
    values_[kSequence].push_back(row.sequence);
    values_[kPosition].push_back(row.position);
  }
  size_t longest = 1;
  for (const absl::Span<const int32_t> table : tables) longest = std::max(longest, table.size());
  const int64_t width =
      std::min(static_cast<int64_t>(std::bit_ceil(longest)), options_.table_blocks);
  values_[kTable].resize(tables.size() * width);  // block 0
  const auto stride = static_cast<int32_t>(states_->stride());
  for (size_t i = 0; i < tables.size(); ++i) {
    std::transform(tables[i].begin(), tables[i].end(),
                   values_[kTable].begin() + static_cast<int64_t>(i) * width,
                   [&](int32_t block) { return block * stride; });
  }
  dims_[size_at_[kT]] = static_cast<int64_t>(step.rows.size());
  dims_[size_at_[kR]] = static_cast<int64_t>(values_[kWanted].size());
  dims_[size_at_[kS]] = static_cast<int64_t>(tables.size());
  dims_[size_at_[kB]] = width;
  dims_[size_at_[kN]] = options_.blocks * stride;
}

absl::Status PlanStepRunner::AwaitPlan() {
  contexts_.clear();  // of plans that serve no more
  struct Verdict {
    Mutex mu;
    CondVar known;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mu);
  };
  const auto verdict = std::make_shared<Verdict>();
  const uint64_t waiter = plans_.full().WhenReady([verdict](absl::Status status) {
    MutexLock lock(verdict->mu);
    verdict->status = std::move(status);
    verdict->known.NotifyAll();
  });
  if (states_ != nullptr && waiter != 0 && plans_.full().StopWaiting(waiter)) {
    return absl::UnavailableError(
        "the model's plan was withdrawn while the sequence was under way, and another is being "
        "made; send the request again");
  }
  MutexLock lock(verdict->mu);
  while (!verdict->status.has_value()) verdict->known.Wait(lock);
  return OwnCopy(*verdict->status);
}

absl::Status PlanStepRunner::AwaitStates() {
  if (states_ != nullptr) return absl::OkStatus();
  std::shared_ptr<const ServedPlan> plan;
  while ((plan = plans_.full().plan()) == nullptr) RETURN_IF_ERROR(AwaitPlan());
  ASSIGN_OR_RETURN(
      std::unique_ptr<StateMemory> states,
      plan->runner->NewStates(options_.blocks * options_.block, options_.block, options_.order));
  RETURN_IF_ERROR(states->Commit(0));
  states_ = std::move(states);
  return absl::OkStatus();
}

absl::StatusOr<RunContext*> PlanStepRunner::ContextOf(
    const std::shared_ptr<const ServedPlan>& plan) {
  for (const Context& held : contexts_) {
    if (held.plan == plan) return held.context.get();
  }
  Trim();  // a plan is new here: another may serve no more
  ASSIGN_OR_RETURN(std::unique_ptr<RunContext> context, plan->runner->NewContextOver(*states_));
  return contexts_.emplace_back(plan, std::move(context)).context.get();
}

bool PlanStepRunner::Trim() {
  if (contexts_.empty()) return false;
  const Plans::View view = plans_.view();
  std::erase_if(contexts_, [&](const Context& held) {
    return std::none_of(view.books.begin(), view.books.end(),
                        [&](const PlanBook& book) { return book.serving == held.plan; });
  });
  return !contexts_.empty();
}

std::string PlanStepRunner::signature() {
  if (const std::shared_ptr<const ServedPlan> plan = plans_.full().plan()) {
    signature_ = absl::StrCat(plan->compiled->plan.signature(), "/", plan->withdrawals);
  }
  return signature_;
}

absl::Status PlanStepRunner::Commit(int32_t block) {
  RETURN_IF_ERROR(AwaitStates());
  return states_->Commit(block);
}

void PlanStepRunner::Decommit(int32_t block) {
  if (states_ != nullptr) states_->Decommit(block);
}

int64_t PlanStepRunner::committed_bytes() const {
  return states_ == nullptr ? 0 : states_->charged_bytes();
}

}  // namespace athanor
