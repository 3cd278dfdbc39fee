#include "server/describe/repository_index.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/public_status.h"
#include "server/repository/repository.h"

namespace athanor {
namespace {

constexpr char kReady[] = "READY", kLoading[] = "LOADING", kUnavailable[] = "UNAVAILABLE";

// Returns a version's state as Triton names it, and why it does not serve.
std::pair<const char*, std::string> StateOf(const ModelVersion& version) {
  if (absl::Status s = version.unusable(); !s.ok()) {
    const absl::Status told = PublicStatus(s);
    return {kUnavailable, std::string(told.message())};
  }
  if (version.plan() != nullptr) return {kReady, ""};
  const PlanSlot::View view = version.plans().full().view();
  if (!view.settled()) return {kLoading, "its baseline plan is being compiled"};
  return {kUnavailable, "it has no plan: see its compile job"};
}

}  // namespace

void FillRepositoryIndex(ServerCore& core, bool ready, const Caller& caller,
                         inference::RepositoryIndexResponse* index) {
  for (const auto& version : core.registry().versions().List("")) {
    if (!caller.Sees(version->name())) continue;
    auto [state, reason] = StateOf(*version);
    if (ready && state != kReady) continue;
    auto* model = index->add_models();
    model->set_name(version->name());
    model->set_version(absl::StrCat(version->version()));
    model->set_state(state);
    model->set_reason(std::move(reason));
  }
  if (ready || core.repository() == nullptr) return;
  for (UnavailableModel& each : core.repository()->unavailable()) {
    if (!caller.Sees(each.name)) continue;
    auto* model = index->add_models();
    model->set_name(std::move(each.name));
    model->set_version(std::move(each.version));
    model->set_state(kUnavailable);
    model->set_reason(std::move(each.reason));
  }
}

}  // namespace athanor
