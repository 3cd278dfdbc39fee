#include "server/plans/plan_way.h"

#include "absl/strings/str_cat.h"

namespace athanor {

bool IsWrong(const absl::Status& verdict) {
  return absl::IsDataLoss(verdict) || absl::IsInternal(verdict);
}

bool PlanWay::TurnPlain(const absl::Status& error) {
  if (plain() || !IsWrong(error)) return false;
  usual_ = error;
  return true;
}

absl::Status PlanWay::Explained(const absl::Status& error) const {
  if (!plain() || !IsWrong(error)) return error;
  return absl::UnimplementedError(
      absl::StrCat("no plan can be made, nor a plain one: ", usual_.message()));
}

}  // namespace athanor
