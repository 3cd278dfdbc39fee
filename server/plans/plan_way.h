// Decides how a baseline is made: the usual way, and once more the plain way (compiler/pipeline)
// where that goes wrong: what was accepted is served, by slower kernels if need be.
//
//   PlanWay way;
//   auto made = Make(way.plain());
//   if (way.TurnPlain(made.status())) made = Make(way.plain());
//   return made.ok() ? made : way.Explained(made.status());
#ifndef ATHANOR_SERVER_PLANS_PLAN_WAY_H_
#define ATHANOR_SERVER_PLANS_PLAN_WAY_H_

#include "absl/status/status.h"

namespace athanor {

// Reports whether a verdict is about the plan: a value is wrong, or a kernel ended its process or
// its compiler. Another one, that there was no time, no memory or no child, says nothing of the
// next time.
bool IsWrong(const absl::Status& verdict);

// Used by one thread at a time.
class PlanWay {
 public:
  bool plain() const { return !usual_.ok(); }
  // Reports whether `error`, from a plan made this way, is a reason to make the plan plain; if so,
  // switches to the plain way.
  bool TurnPlain(const absl::Status& error);
  // Returns `error`, or UNIMPLEMENTED if the plain plan is wrong as well.
  absl::Status Explained(const absl::Status& error) const;

 private:
  absl::Status usual_;  // error of the usual way
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLAN_WAY_H_
