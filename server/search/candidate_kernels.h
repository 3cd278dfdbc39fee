// Tries the kernels of a search's step: answers from the cache what earlier searches found out, and
// asks the child once for the others (TunerProcess::Try), which compiles, measures and checks them.
//
//   CandidateKernels kernels(maker, &tuner, machine, &memory, &limits, &steps, &record);
//   kernels.Begin();                                        // after steps.Ask
//   while (!kernels.empty()) kernels.Try(activation_bytes);  // a status
//
// Outcomes are kept as they come, so a child that is lost costs the kernel it was working on. Those
// that it did not come to are asked for again with the next call, with the objects that they have
// by then.
#ifndef ATHANOR_SERVER_SEARCH_CANDIDATE_KERNELS_H_
#define ATHANOR_SERVER_SEARCH_CANDIDATE_KERNELS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"
#include "server/search/candidate_memory.h"
#include "server/search/kernel_maker.h"
#include "server/search/machine_limits.h"
#include "server/search/search_record.h"
#include "server/search/search_steps.h"

namespace athanor {

// Borrows all but the maker; used by one thread at a time.
class CandidateKernels {
 public:
  CandidateKernels(KernelMaker maker, TunerProcess* tuner, const internal::TargetReply& machine,
                   const CandidateMemory* memory, MachineLimits* limits, SearchSteps* steps,
                   SearchRecord* record)
      : maker_(maker),
        tuner_(*tuner),
        machine_(machine),
        memory_(*memory),
        limits_(*limits),
        steps_(*steps),
        record_(*record) {}

  // A step has been asked for: all its kernels are to be tried.
  void Begin();
  bool empty() const { return trials_.empty() && next_ == steps_.step().kernels_size(); }
  // Tries the next few, among `activation_bytes`. At least one of them comes further unless the
  // error is CANCELLED or ABORTED (there was no time).
  // `end`: the search's.
  absl::Status Try(absl::Span<const int64_t> activation_bytes, SearchSteps::Time end);
  // There is no time for the others.
  void Leave();

 private:
  // A kernel without a verdict.
  struct Trial {
    int index;  // in the step
    CandidateMemory::Kernel of;
    internal::CheckRequest check;  // with the objects known so far
    bool compiled = false;         // all objects are known
    bool lost_before = false;      // a child was lost behind it and it was worth another try
    bool checking = false;         // the child that is asked now has measured it
    bool ended = false;
    absl::Status left = {};  // ABORTED: the child that is asked now did not come to it
  };

  const internal::SearchKernel& kernel(int index) const { return steps_.step().kernels(index); }
  // Records what is known of the kernel; else begins a trial.
  void Prepare(int index, absl::Span<const int64_t> activation_bytes);
  void PrepareNext(absl::Span<const int64_t> activation_bytes);
  internal::TryRequest RequestFor(absl::Span<const int64_t> activation_bytes,
                                  SearchSteps::Time end);
  // Has the objects of the kernel that this one races with at hand.
  absl::Status FindBest(const internal::SearchKernel& asked);
  void TakePart(internal::TryOutcome part);
  void TakeCompiled(Trial& trial, internal::TryOutcome& part);
  void TakeRight(Trial& trial, const internal::TryOutcome& part);
  // Ends the trial, unless the child left it.
  void TakeVerdict(Trial& trial, const internal::TryOutcome& part);
  void TakeTimes(Trial& trial, const internal::TryOutcome& part);
  // The child was lost, or refused the request: the kernel that it was working on has failed, or is
  // tried once more.
  void TakeLoss(const absl::Status& why);
  void Fail(Trial& trial, const absl::Status& status, std::optional<FailureKind> kind);
  void Show(int index, const absl::Status& status, bool from_cache);
  // Has the limits measured again where the kernel was faster than they allow.
  void NoteReached(const Trial& trial, absl::Span<const double> seconds);

  KernelMaker maker_;
  TunerProcess& tuner_;
  const internal::TargetReply& machine_;
  const CandidateMemory& memory_;
  MachineLimits& limits_;
  SearchSteps& steps_;
  SearchRecord& record_;
  int next_ = 0;                // of the step: the first without a trial
  std::set<std::string> kept_;  // hashes of the step's sources whose objects were compiled
  // By plan: objects of the kernels that the step's race with.
  std::map<std::string, std::vector<std::string>> best_;
  std::vector<Trial> trials_;  // asked for at once
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_CANDIDATE_KERNELS_H_
