#include "compiler/egraph/graph/refusal.h"

#include "absl/strings/str_cat.h"

namespace athanor::egraph {

absl::Status Refusals::Add(Refusal::Kind kind, Cause cause, ClassId a, ClassId b,
                           const absl::Status& why) {
  ++counts_[cause];
  const std::string message(why.message());
  if (first_.size() < kMost) first_.push_back({kind, cause, a, b, message});
  if (!b.valid()) return why;
  return absl::FailedPreconditionError(
      absl::StrCat("classes ", a.value, " and ", b.value, " stay apart: ", message));
}

uint64_t Refusals::Count(Cause cause) const {
  const auto it = counts_.find(cause);
  return it == counts_.end() ? 0 : it->second;
}

}  // namespace athanor::egraph
