// Kernel objects and their checks: out of the cache where it has them, else through a tuner
// process, and then into the cache.
//
//   KernelMaker maker(&cache, &tuner, target, compiler_version);
//   KernelObject object = maker.Compile(plan.kernels(0)).value();
//   absl::Status passed = maker.Check(request, plan.kernels(0));
//
// Borrows everything; used by one thread at a time.
#ifndef ATHANOR_SERVER_SEARCH_KERNEL_MAKER_H_
#define ATHANOR_SERVER_SEARCH_KERNEL_MAKER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"
#include "server/plans/compile_backend.h"

namespace athanor {

// Raised when checks find more than they did: those passed before are run again.
inline constexpr int64_t kCheckVersion = 1;

// Names the kernel in an error. INTERNAL where the caller is not to blame: the graph was accepted,
// so a kernel that does not compile or check is our fault. FAILED_PRECONDITION stays: this machine
// lacks what compiles it, or runs it safely, which says nothing of the kernel.
absl::Status NamedKernel(const v1::Kernel& kernel, const absl::Status& status);

class KernelMaker {
 public:
  // `compiled` counts the kernels compiled for the device, if it is not null.
  KernelMaker(Cache* cache, TunerProcess* tuner, const internal::TargetReply& machine,
              std::atomic<int64_t>* compiled = nullptr)
      : cache_(*cache), tuner_(*tuner), machine_(machine), compiled_(compiled) {}

  // A crash of the compiler costs one more try. Errors name the kernel.
  absl::StatusOr<KernelObject> Compile(const v1::Kernel& kernel);
  // The object that the cache has; nullopt: it has to be compiled.
  std::optional<std::string> Find(const v1::Kernel& kernel);
  // Keeps what a child has compiled.
  void Put(const v1::Kernel& kernel, const std::string& object);
  // Runs `request`, objects included, unless it is known to have passed; `about` is the kernel it
  // is for. DATA_LOSS: a value is wrong.
  absl::Status Check(const internal::CheckRequest& request, const v1::Kernel& about);
  // Reports whether the check, objects included, has passed before.
  bool HasPassed(const internal::CheckRequest& request) const;
  // Remembers that it has, and logs what `report` says was left out.
  void PutPassed(const internal::CheckRequest& request, const internal::CheckReply& report,
                 const v1::Kernel& about);
  // Adds the objects of the request's plan.
  absl::Status AddObjects(internal::CheckRequest* request);
  Cache* cache() const { return &cache_; }
  // A search has tried a kernel or a plan.
  void CountCandidate() { ++cache_.work().candidates_measured; }

 private:
  Cache& cache_;
  TunerProcess& tuner_;
  const internal::TargetReply& machine_;
  std::atomic<int64_t>* compiled_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_KERNEL_MAKER_H_
