#include "server/models/publisher.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"

namespace athanor {
namespace {

absl::Status NotServed(const ModelVersion& version) {
  return absl::AbortedError(
      absl::StrCat(version.Describe(), " was deleted or pinned while the plan was loaded"));
}

bool HasStates(const v1::Plan& plan) {
  return std::any_of(plan.buffers().begin(), plan.buffers().end(),
                     [](const v1::Buffer& b) { return b.kind() == v1::Buffer::STATE; });
}

}  // namespace

void Publisher::SetHook(ServingHook hook) {
  MutexLock lock(hook_mu_);
  hook_ = std::move(hook);
}

void Publisher::Tell(const std::string& name) {
  MutexLock told(hook_mu_);
  if (hook_) hook_(name);
}

absl::Status Publisher::CheckHeld(const ModelVersion& version, const ServedPlan& plan) const {
  for (const TensorRow& tensor : version.row().tensors) {
    const std::optional<std::string> damage = tensors_.Damage(tensor.hash);
    if (damage.has_value()) return version.Damaged(tensor.hash, *damage);
  }
  if (plan.withdrawals == version.withdrawals()) return CheckSignature(version, plan);
  return absl::AbortedError(absl::StrCat(
      version.Describe(), ": its weights were found damaged while the plan was loaded"));
}

absl::Status Publisher::CheckSignature(const ModelVersion& version, const ServedPlan& plan) {
  const v1::Plan& added = plan.compiled->plan;
  if (added.signature().empty()) {
    if (!HasStates(added)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(version.Describe(), ": plan ", Quoted(plan.id()),
                     " has states and no signature, so it may sum in another order than others"));
  }
  for (const PlanBook& book : version.plans().view().books) {
    if (book.serving == nullptr) continue;
    const v1::Plan& serves = book.serving->compiled->plan;
    if (serves.signature().empty() || serves.signature() == added.signature() ||
        serves.target().SerializeAsString() != added.target().SerializeAsString()) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(version.Describe(), ": plan ", Quoted(plan.id()), " has signature ",
                     Quoted(added.signature()), ", and plan ", Quoted(book.serving->id()),
                     ", which serves, ", Quoted(serves.signature()),
                     ": it sums in another order, and would change what sequences under way give"));
  }
  return absl::OkStatus();
}

void Publisher::Withdraw(const std::string& hash, const std::string& damage) {
  std::set<std::string> names;
  {
    MutexLock lock(mu_);
    const VersionList versions =
        versions_.With([&](const std::string& tensor) { return tensor == hash; });
    LogError(
        "stored weights are damaged",
        {{"tensor", absl::BytesToHexString(hash)}, {"why", damage}, {"versions", versions.size()}});
    for (const auto& version : versions) {
      version->Withdraw(version->Damaged(hash, damage));
      names.insert(version->name());
    }
  }
  for (const std::string& name : names) Tell(name);
}

absl::Status Publisher::Change(absl::FunctionRef<absl::Status()> change) {
  MutexLock lock(mu_);
  return change();
}

absl::Status Publisher::Retire(const std::string& name, const VersionList& versions) {
  std::vector<int64_t> numbers;
  for (const auto& version : versions) numbers.push_back(version->version());
  MutexLock lock(mu_);
  RETURN_IF_ERROR(db_.DeleteVersions(name, numbers));
  const std::optional<NameRow> successor = versions_.Remove(name, versions);
  if (successor.has_value()) StoreServing(*successor);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ModelVersion>> Publisher::Rollback(const std::string& name,
                                                                  const std::string& version) {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const NameRow row, versions_.RolledBack(name, version));
  RETURN_IF_ERROR(db_.SetServing(row));
  versions_.SetServing(row);
  return versions_.Find(name, absl::StrCat(row.serving));
}

absl::Status Publisher::CheckThere(const ModelVersion& version) const {
  if (versions_.Holds(version)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(version.Describe(), " was deleted"));
}

absl::Status Publisher::SetBuckets(const ModelVersion& version, const BucketGrid::Ranges& buckets) {
  MutexLock lock(mu_);
  RETURN_IF_ERROR(CheckThere(version));
  v1::UploadHeader stored;
  *stored.mutable_buckets() = buckets;
  return db_.SetBuckets(version.name(), version.version(), stored.SerializeAsString());
}

absl::Status Publisher::StorePlans(const ModelVersion& version, const std::string& pinned) {
  RETURN_IF_ERROR(CheckThere(version));
  std::vector<VersionPlanRow> rows;
  bool named = pinned.empty();
  const Plans::View plans = version.plans().view();
  for (const KeptPlan& kept : plans.full().kept) {
    const std::string& id = kept.plan->id();
    named |= id == pinned;
    rows.push_back({.plan_id = id,
                    .first = kept.first,
                    .served = kept.served,
                    .pinned = id == pinned,
                    .info = PlanInfoOf(*kept.plan).SerializeAsString()});
  }
  // A pin stays also where its plan could not be restored, with what a later start needs to find
  // it.
  if (!named) {
    VersionPlanRow row{.plan_id = pinned};
    for (const VersionPlanRow& stored : version.row().plans) {
      if (stored.plan_id == pinned) row = stored;
    }
    row.pinned = true;
    rows.push_back(row);
  }
  return db_.SetPlans(version.name(), version.version(), rows);
}

void Publisher::NotePlans(const ModelVersion& version) {
  if (!versions_.Holds(version)) return;
  if (absl::Status s = StorePlans(version, version.pinned_plan()); !s.ok()) {
    LogError("which plans a version has could not be stored",
             {{"model", version.name()}, {"version", version.version()}, {"error", s.message()}});
  }
}

std::optional<NameRow> Publisher::TakeOver(const ModelVersion& version) {
  std::optional<NameRow> row = versions_.TakenOverBy(version);
  if (row.has_value()) StoreServing(*row);
  return row;
}

void Publisher::StoreServing(const NameRow& row) {
  if (absl::Status s = db_.SetServing(row); !s.ok()) {
    LogError("which version serves could not be stored",
             {{"model", row.name}, {"error", s.message()}});
  }
}

absl::Status Publisher::Publish(const std::shared_ptr<ModelVersion>& version,
                                std::shared_ptr<const ServedPlan> plan) {
  {
    MutexLock lock(mu_);
    if (!version->pinned_plan().empty() && version->plan() != nullptr) return NotServed(*version);
    RETURN_IF_ERROR(CheckHeld(*version, *plan));
    const std::optional<NameRow> changed = TakeOver(*version);
    if (!version->plans().Publish(std::move(plan))) return NotServed(*version);
    version->metrics().cells.Count(Metric::kPlanSwaps);
    if (changed.has_value()) versions_.SetServing(*changed);
    NotePlans(*version);
  }
  Tell(version->name());
  return absl::OkStatus();
}

absl::Status Publisher::PublishBox(ModelVersion& version,
                                   const std::shared_ptr<const BucketGrid>& grid, int bucket,
                                   std::shared_ptr<const ServedPlan> plan) {
  MutexLock lock(mu_);
  if (!version.pinned_plan().empty()) return NotServed(version);
  RETURN_IF_ERROR(CheckHeld(version, *plan));
  if (!version.plans().Set(grid, bucket, std::move(plan))) {
    return absl::AbortedError(
        absl::StrCat(version.Describe(), " was deleted, or has other buckets now"));
  }
  version.metrics().cells.Count(Metric::kPlanSwaps);
  return absl::OkStatus();
}

absl::Status Publisher::PublishBoxes(ModelVersion& version, std::shared_ptr<const BucketGrid> grid,
                                     std::vector<PlanBook> boxes) {
  MutexLock lock(mu_);
  for (PlanBook& box : boxes) {
    if (box.serving == nullptr) continue;
    // The full range's plan goes on to serve a box whose own sums in another order.
    if (absl::Status same = CheckSignature(version, *box.serving); !same.ok()) {
      box.reason = std::string(same.message());
      box.serving = nullptr;
      continue;
    }
    RETURN_IF_ERROR(CheckHeld(version, *box.serving));
  }
  if (version.plans().Replace(std::move(grid), std::move(boxes))) return absl::OkStatus();
  if (version.plan() == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      version.Describe(), ": a bucket that is none of those asked for was pinned meanwhile"));
}

absl::Status Publisher::Restore(const std::shared_ptr<ModelVersion>& version,
                                std::shared_ptr<const ServedPlan> plan,
                                std::vector<KeptPlan> kept) {
  {
    MutexLock lock(mu_);
    // It may have been deleted, or pinned to another plan, while this one was loaded.
    const std::string pinned = version->pinned_plan();
    if (!pinned.empty() && pinned != plan->id()) return NotServed(*version);
    RETURN_IF_ERROR(CheckHeld(*version, *plan));
    const std::optional<NameRow> changed = TakeOver(*version);
    if (!version->plans().Restore(std::move(plan), std::move(kept))) return NotServed(*version);
    if (changed.has_value()) versions_.SetServing(*changed);
  }
  Tell(version->name());
  return absl::OkStatus();
}

void Publisher::Keep(ModelVersion& version, std::shared_ptr<const CompiledPlan> plan) {
  MutexLock lock(mu_);
  version.plans().Keep(nullptr, BucketGrid::kFullRange, std::move(plan));
  NotePlans(version);
}

absl::Status Publisher::PinPlan(const std::shared_ptr<ModelVersion>& version,
                                const std::string& plan_id,
                                std::shared_ptr<const ServedPlan> plan) {
  MutexLock lock(mu_);
  const std::string has = plan == nullptr ? "" : plan->id();
  if (!plan_id.empty() && has != plan_id) {
    std::vector<std::string> ids;
    const v1::Model model = version->ToProto(true);
    for (const v1::PlanInfo& info : model.plans()) {
      ids.push_back(Quoted(info.plan_id()));
    }
    return absl::NotFoundError(absl::StrCat(version->Describe(), " has no plan ", Quoted(plan_id),
                                            "; it has ",
                                            ids.empty() ? "none yet" : absl::StrJoin(ids, ", ")));
  }
  if (plan != nullptr) {
    RETURN_IF_ERROR(CheckHeld(*version, *plan));
  }
  RETURN_IF_ERROR(StorePlans(*version, plan_id));
  version->plans().SetPinned(BucketGrid::kFullRange, plan_id);
  // Nothing that was published while `plan` was loaded is lost: it is the latest that is kept.
  if (plan == nullptr || plan == version->plan()) return absl::OkStatus();
  if (!version->serving().Set(std::move(plan))) {
    return absl::NotFoundError(absl::StrCat(version->Describe(), " was deleted"));
  }
  version->metrics().cells.Count(Metric::kPlanSwaps);
  return absl::OkStatus();
}

absl::Status Publisher::PinBox(ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
                               int bucket, std::shared_ptr<const ServedPlan> plan) {
  MutexLock lock(mu_);
  const auto others = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat(version.Describe(), " was deleted, or has other buckets now"));
  };
  RETURN_IF_ERROR(CheckHeld(version, *plan));
  const Plans::View view = version.plans().view();
  if (view.grid != grid) return others();
  std::vector<VersionPlanRow> rows;
  for (int b = 1; b < static_cast<int>(view.books.size()); ++b) {
    VersionPlanRow row{.plan_id = view.box(b).pinned, .pinned = true, .box = grid->Bytes(b)};
    if (b == bucket) {
      row.plan_id = plan->id();
      row.info = PlanInfoOf(*plan->compiled).SerializeAsString();
    } else if (row.plan_id.empty()) {
      continue;
    }
    // One that was not restored has the row it had.
    for (const VersionPlanRow& had : version.row().pinned_boxes) {
      if (b != bucket && had.plan_id == row.plan_id) row.info = had.info;
    }
    const KeptPlan* const kept = view.box(b).Find(row.plan_id);
    if (kept != nullptr) row.info = PlanInfoOf(*kept->plan).SerializeAsString();
    rows.push_back(std::move(row));
  }
  absl::Status stored = CheckThere(version);
  if (stored.ok()) stored = db_.SetPinnedBoxes(version.name(), version.version(), rows);
  if (!stored.ok()) return stored;
  if (!version.plans().Pin(grid, bucket, std::move(plan))) return others();
  version.metrics().cells.Count(Metric::kPlanSwaps);
  return absl::OkStatus();
}

absl::Status Publisher::UnpinBoxes(ModelVersion& version,
                                   std::vector<std::shared_ptr<const ServedPlan>> plans) {
  MutexLock lock(mu_);
  for (const std::shared_ptr<const ServedPlan>& plan : plans) {
    if (plan == nullptr) continue;
    RETURN_IF_ERROR(CheckHeld(version, *plan));
  }
  absl::Status stored = CheckThere(version);
  if (stored.ok()) stored = db_.SetPinnedBoxes(version.name(), version.version(), {});
  if (!stored.ok()) return stored;
  for (size_t bucket = 1; bucket < plans.size(); ++bucket) {
    version.plans().Unpin(static_cast<int>(bucket), std::move(plans[bucket]));
  }
  version.metrics().cells.Count(Metric::kPlanSwaps);
  return absl::OkStatus();
}

}  // namespace athanor
