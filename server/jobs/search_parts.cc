#include "server/jobs/search_parts.h"

#include <algorithm>

namespace athanor {

SearchParts::SearchParts(const ModelVersion& version, const SearchPolicy& policy,
                         absl::FunctionRef<bool(const Graph&)> due)
    : version_(&version), budget_(policy.budget) {
  const Plans::View view = version.plans().view();
  grid_ = view.grid;
  const bool boxes = policy.use != v1::SearchOptions::COMPARE;
  if (!boxes || due(version.graph())) left_.push_back(BucketGrid::kFullRange);
  for (int bucket = 1; boxes && bucket < grid_->size(); ++bucket) {
    if (!view.box(bucket).pinned.empty()) continue;
    if (due(NarrowedTo(version.graph(), grid_->box(bucket)))) left_.push_back(bucket);
  }
  if (left_.empty()) left_.push_back(BucketGrid::kFullRange);
  total_ = static_cast<int>(left_.size());
  Narrow();
}

SearchBudget SearchParts::share() const {
  SearchBudget share = budget_;
  const auto parts = static_cast<int64_t>(left_.size());
  // A time of 0 would mean no limit.
  if (share.time.count() > 0) {
    share.time = std::max(share.time / parts, std::chrono::milliseconds(1));
  }
  if (share.candidates > 0) share.candidates = std::max<int64_t>(share.candidates / parts, 1);
  return share;
}

void SearchParts::End(std::chrono::steady_clock::duration used, int64_t candidates) {
  if (budget_.time.count() > 0) {
    const auto rest = budget_.time - std::chrono::duration_cast<std::chrono::milliseconds>(used);
    budget_.time = std::max(rest, std::chrono::milliseconds(1));
  }
  if (budget_.candidates > 0) {
    budget_.candidates = std::max<int64_t>(budget_.candidates - candidates, 1);
  }
  left_.pop_front();
  Narrow();
}

void SearchParts::Narrow() {
  narrowed_.reset();
  if (empty() || full_range()) return;
  narrowed_ = NarrowedTo(version_->graph(), grid_->box(bucket()));
}

}  // namespace athanor
