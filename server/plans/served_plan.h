// A plan that serves, with the contexts its runs take turns in.
//
//   if (ContextPool::Lease lease = plan->contexts->TryAcquire()) { ... run ...; }
#ifndef ATHANOR_SERVER_PLANS_SERVED_PLAN_H_
#define ATHANOR_SERVER_PLANS_SERVED_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/compiled_plan.h"
#include "server/plans/plan_runner.h"

namespace athanor {

// At most `max` contexts of one runner, made when first needed. Who waits for one, and whose turn
// it is, the request queue knows (batch/request_queue.h). Held by shared_ptr, so that a lease may
// outlive the plan. Thread-safe.
class ContextPool : public std::enable_shared_from_this<ContextPool> {
 public:
  // A context for one run; goes back when destroyed, and so does its turn, if it has one that no
  // run has used.
  class Lease {
   public:
    Lease() = default;
    Lease(std::shared_ptr<ContextPool> pool, std::unique_ptr<RunContext> context)
        : pool_(std::move(pool)), context_(std::move(context)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept {
      Lease before(std::move(other));
      std::swap(pool_, before.pool_);
      std::swap(context_, before.context_);
      return *this;
    }
    ~Lease() {
      if (context_ != nullptr) pool_->Return(std::move(context_));
    }
    RunContext& operator*() const { return *context_; }
    explicit operator bool() const { return context_ != nullptr; }

   private:
    std::shared_ptr<ContextPool> pool_;
    std::unique_ptr<RunContext> context_;
  };

  ContextPool(std::shared_ptr<PlanRunner> runner, int64_t max)
      : runner_(std::move(runner)), max_(max) {}

  // The first context, so that one run can always take place.
  absl::Status MakeFirst();
  // An empty lease if none is free. A context is made if allowed and memory suffices.
  Lease TryAcquire();
  // As TryAcquire, for a run that begins at once: its turn on the device has begun. Returns an
  // empty lease also if others there go first or, with `alone`, have a context, and makes the first
  // context only: whoever queues then makes further ones, if there is a turn for them.
  Lease TryRun(bool alone = false);

 private:
  std::unique_ptr<RunContext> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Return(std::unique_ptr<RunContext> context);

  const std::shared_ptr<PlanRunner> runner_;
  const int64_t max_;
  Mutex mu_;
  std::vector<std::unique_ptr<RunContext>> free_ ABSL_GUARDED_BY(mu_);
  int64_t made_ ABSL_GUARDED_BY(mu_) = 0;
};

// A loaded plan. Immutable once it is shared, but for the contexts it makes.
struct ServedPlan {
  const std::string& id() const { return compiled->id(); }
  // Reports whether it serves these sizes, in the order of graph.dims.
  bool Holds(absl::Span<const int64_t> dims) const {
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (dims[d] < sizes[d].min || dims[d] > sizes[d].max) return false;
    }
    return true;
  }

  // The plan it was loaded from: a search goes on from it, and a pin loads it again. Never null.
  std::shared_ptr<const CompiledPlan> compiled = std::make_shared<CompiledPlan>();
  std::string bucket;  // "b=1..64 s=1..512"; empty without dims
  struct Range {
    int64_t min = 0, max = 0;  // both inside
  };
  std::vector<Range> sizes;  // by graph.dims; empty: it serves any
  std::shared_ptr<PlanRunner> runner;
  std::shared_ptr<ContextPool> contexts;
  // ModelVersion::withdrawals before its parameters were mapped.
  int64_t withdrawals = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_SERVED_PLAN_H_
