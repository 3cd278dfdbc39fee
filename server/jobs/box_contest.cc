#include "server/jobs/box_contest.h"

#include "absl/strings/str_format.h"

namespace athanor {

BoxContest::BoxContest(const ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
                       int bucket)
    : grid_(grid), bucket_(bucket) {
  const std::shared_ptr<const ServedPlan> full = version.plan();
  const Plans::View view = version.plans().view();
  std::shared_ptr<const ServedPlan> own;
  if (view.grid == grid) own = view.box(bucket).serving;
  if (full != nullptr) full_ = full->compiled;
  if (own != nullptr) own_ = own->compiled;
  own_leads_ = own_ != nullptr && (full_ == nullptr || own_->searched() || !full_->searched());
  // Two baselines are the same program, one of them with narrower bounds.
  const bool found = own_ != nullptr && full_ != nullptr && (own_->searched() || full_->searched());
  open_ = found && own_->id() != full_->id();
}

bool BoxContest::Settle(const v1::PlanComparison& leader_by_rival, double* share) {
  open_ = false;
  const double ratio = leader_by_rival.ratio();
  share_ = own_leads_ ? 1 / ratio : ratio;
  if (share != nullptr) *share = share_;
  if (leader_by_rival.low() <= 1) return false;
  own_leads_ = !own_leads_;
  return true;
}

bool BoxContest::Serve(ModelVersion& version) const {
  if (own_leads_) {
    version.plans().SetBeside(grid_, bucket_, full_->id());
    return version.plan() != nullptr;
  }
  return version.plans().Set(
      grid_, bucket_, nullptr,
      absl::StrFormat("the full range's plan takes %.1f %% of the time of its own", 100 * share_));
}

}  // namespace athanor
