// Parts that tests of queues and of shared kernels have in common.
//
//   IdleBackend backend;                    // builds nothing
//   KernelWork work(lowered, NoCalls());    // tells nobody
#ifndef ATHANOR_SERVER_JOBS_IDLE_BACKEND_TESTING_H_
#define ATHANOR_SERVER_JOBS_IDLE_BACKEND_TESTING_H_

#include <memory>

#include "server/jobs/kernel_work.h"
#include "server/plans/compile_backend.h"

namespace athanor {

// Builds nothing, and counts how often it is interrupted.
class IdleBackend : public CompileBackend {
 public:
  absl::StatusOr<internal::TargetReply> Machine() override { return None(); }
  absl::StatusOr<internal::LowerReply> Lower(const Graph&, bool) override { return None(); }
  absl::StatusOr<KernelObject> CompileKernel(const v1::Plan&, int) override { return None(); }
  absl::Status CheckKernel(const v1::Plan&, const internal::KernelCheck&,
                           absl::Span<const KernelObject>) override {
    return None();
  }
  absl::Status Verify(const Graph&, const CompiledPlan&) override { return None(); }
  absl::StatusOr<std::unique_ptr<PlanSearch>> NewSearch(const Graph&, CompiledPlan,
                                                        const PlanSearchOptions&) override {
    return None();
  }
  size_t most_searches() const override { return 1; }
  void Interrupt() override { ++interrupts; }
  void ClearInterrupt() override {}

  int interrupts = 0;

 private:
  static absl::Status None() { return absl::UnimplementedError("an idle backend"); }
};

inline KernelWork::Calls NoCalls() {
  return {.stopped = [] { return absl::OkStatus(); },
          .compiled = [](int, const KernelObject&) {},
          .changed = [] {}};
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_IDLE_BACKEND_TESTING_H_
