#include "server/plans/tap_plans.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/frontend/names.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

std::vector<std::string> NamesOf(const Graph& graph, absl::Span<const NodeId> nodes) {
  std::vector<std::string> names;
  for (NodeId id : nodes) names.push_back(graph.node(id).name);
  return names;
}

std::vector<Output> OutputsAndTaps(const Graph& graph, absl::Span<const NodeId> taps) {
  std::vector<Output> outputs = graph.outputs;
  for (NodeId id : taps) outputs.push_back({graph.node(id).name, id});
  return outputs;
}

}  // namespace

TapPlan::TapPlan(const Graph& graph, std::vector<NodeId> tapped)
    : taps(std::move(tapped)),
      names(NamesOf(graph, taps)),
      shapes(graph, OutputsAndTaps(graph, taps)) {}

std::string TapPlan::Describe() const {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(Quoted(name));
  return Cat("plan with taps ",
             JoinNames(std::vector<std::string_view>(quoted.begin(), quoted.end())));
}

Graph WithTaps(const Graph& graph, absl::Span<const NodeId> taps) {
  absl::flat_hash_set<std::string> taken;
  for (const Output& output : graph.outputs) taken.insert(output.name);
  Graph tapped = graph;
  for (size_t i = 0; i < taps.size(); ++i) {
    // Replies name a tap by its node; names of nodes and of outputs may be equal, these may not.
    std::string name = Cat("tap", i);
    while (!taken.insert(name).second) name += "'";
    tapped.outputs.push_back({std::move(name), taps[i]});
  }
  return tapped;
}

absl::StatusOr<std::shared_ptr<TapPlan>> TapPlans::Get(std::vector<NodeId> taps, int64_t most,
                                                       Start start) {
  std::shared_ptr<TapPlan> dropped;  // goes without the lock
  MutexLock lock(mu_);
  if (!closed_.ok()) return OwnCopy(closed_);
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if ((*it)->taps != taps) continue;
    plans_.splice(plans_.begin(), plans_, it);
    return plans_.front();
  }
  auto oldest = plans_.end();
  if (static_cast<int64_t>(plans_.size()) >= most) {
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if ((*it)->plans.full().view().settled()) oldest = it;
    }
    if (oldest == plans_.end()) {
      return absl::ResourceExhaustedError(Cat("plans for ", plans_.size(),
                                              " other sets of taps are being compiled, the most "
                                              "allowed for one model version (--tap_plans)"));
    }
  }
  auto added = std::make_shared<TapPlan>(graph_, std::move(taps));
  RETURN_IF_ERROR(start(added));
  if (oldest != plans_.end()) {
    dropped = std::move(*oldest);
    plans_.erase(oldest);
  }
  plans_.push_front(added);
  return added;
}

void TapPlans::ForgetFailed() {
  MutexLock lock(mu_);
  plans_.remove_if([](const auto& plan) { return !plan->plans.full().view().error.ok(); });
}

void TapPlans::Withdraw(const absl::Status& status) {
  std::list<std::shared_ptr<TapPlan>> dropped;
  {
    MutexLock lock(mu_);
    dropped.swap(plans_);
  }
  for (const auto& plan : dropped) plan->plans.Close(status);
}

void TapPlans::Close(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    closed_ = OwnCopy(status);
  }
  Withdraw(status);
}

void TapPlans::AddMemory(PlanRunner::Prepared* prepared, int64_t* arenas) const {
  MutexLock lock(mu_);
  for (const auto& tapped : plans_) {
    const std::shared_ptr<const ServedPlan> plan = tapped->plans.full().plan();
    if (plan == nullptr) continue;
    plan->runner->AddPrepared(prepared);
    *arenas += plan->runner->arena_bytes();
  }
}

}  // namespace athanor
