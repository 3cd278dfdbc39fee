// The parts of one job's search, in order: a plan of the full range, then one for each box of its
// version's dims, each with a share of the budget.
//
//   SearchParts parts(version, policy, [&](const Graph& graph) { return NotSearchedYet(graph); });
//   for (; !parts.empty(); parts.End(used, candidates)) {
//     Search(parts.graph(), parts.share());
//   }
//
// The remaining budget is divided evenly among the remaining parts, so later parts can use what
// earlier ones did not. Used by one thread; the version must outlive it.
#ifndef ATHANOR_SERVER_JOBS_SEARCH_PARTS_H_
#define ATHANOR_SERVER_JOBS_SEARCH_PARTS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "compiler/ir/graph/graph.h"
#include "server/base/search_policy.h"
#include "server/models/model_version.h"
#include "server/plans/bucket_grid.h"

namespace athanor {

class SearchParts {
 public:
  // Takes the parts whose graphs are `due`; the full range if none is. A search that only compares
  // has the full range as its only part.
  SearchParts(const ModelVersion& version, const SearchPolicy& policy,
              absl::FunctionRef<bool(const Graph&)> due);

  bool empty() const { return left_.empty(); }
  // The bucket of the current part. REQUIRES: not empty().
  int bucket() const { return left_.front(); }
  bool full_range() const { return bucket() == BucketGrid::kFullRange; }
  const std::shared_ptr<const BucketGrid>& grid() const { return grid_; }
  const Graph& graph() const { return narrowed_.has_value() ? *narrowed_ : version_->graph(); }
  std::string Text() const { return full_range() ? "" : grid_->Text(bucket()); }
  SearchBudget share() const;
  // Ends the current part, which has used this much, and begins the next.
  void End(std::chrono::steady_clock::duration used, int64_t candidates);

  int total() const { return total_; }
  int ended() const { return total_ - static_cast<int>(left_.size()); }

 private:
  void Narrow();

  const ModelVersion* version_;
  std::shared_ptr<const BucketGrid> grid_;
  SearchBudget budget_;  // remaining budget
  std::deque<int> left_;
  int total_ = 0;
  std::optional<Graph> narrowed_;  // set for a box
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_SEARCH_PARTS_H_
