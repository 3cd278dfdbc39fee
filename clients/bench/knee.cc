#include "clients/bench/knee.h"

#include <algorithm>
#include <cmath>

namespace athanor::bench {

std::optional<double> Knee::Next() const {
  const bool none = met_ == 0 && missed_ <= first_ * kLeast;
  const bool all = met_ >= most_;
  const bool near = missed_ <= met_ * kApart;
  if (none || all || near) return std::nullopt;
  return next_;
}

void Knee::Tell(bool met) {
  (met ? met_ : missed_) = next_;
  if (std::isinf(missed_)) {
    next_ = std::min(2 * met_, most_);
  } else {
    next_ = (met_ + missed_) / 2;
  }
}

}  // namespace athanor::bench
