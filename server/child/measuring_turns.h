// Turns of the child processes at work in the background: many may work at once, but one that
// measures has nobody beside it, because what it timed would be the others' work, too.
//
//   const MeasuringTurns::Turn turn = turns.Take(MeasuringTurns::Kind::kMeasures, interrupted);
//   if (!turn) return absl::CancelledError(...);
#ifndef ATHANOR_SERVER_CHILD_MEASURING_TURNS_H_
#define ATHANOR_SERVER_CHILD_MEASURING_TURNS_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/functional/function_ref.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// Thread-safe. First come, first served: neither kind starves the other.
class MeasuringTurns {
 public:
  enum class Kind : uint8_t { kWorks, kMeasures };
  // Given back when it ends; null: none. Its MeasuringTurns outlives it.
  struct GiveBack {
    Kind kind;
    void operator()(MeasuringTurns* turns) const { turns->Release(kind); }
  };
  using Turn = std::unique_ptr<MeasuringTurns, GiveBack>;

  // Waits until it is this caller's turn, or `stop` says that it need not be: asked again and
  // again, under a lock of this class.
  Turn Take(Kind kind, absl::FunctionRef<bool()> stop);

 private:
  void Release(Kind kind);

  Mutex mu_;
  CondVar changed_;
  std::list<uint64_t> waiting_ ABSL_GUARDED_BY(mu_);  // the first is the next
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  bool measuring_ ABSL_GUARDED_BY(mu_) = false;  // the one that runs
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_MEASURING_TURNS_H_
