#include "server/tuner/kernel_trials.h"

#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/child/search_kernel.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/check/check.h"
#include "server/tuner/compile.h"
#include "server/tuner/measure/measure.h"
#include "server/tuner/run/scratch.h"

namespace athanor {
namespace {

using Stage = internal::TryOutcome::Stage;

// Adds the time until its end to what an outcome says of `on`.
class Spent {
 public:
  Spent(const char* on, internal::TryOutcome* outcome) : time_(*outcome->add_spent()) {
    time_.set_on(on);
    time_.set_calls(1);
  }
  ~Spent() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    time_.set_seconds(took.count());
  }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;

 private:
  v1::SearchTime& time_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void Fail(const absl::Status& status, Stage stage, internal::TryOutcome* outcome) {
  outcome->set_code(static_cast<int>(status.code()));
  outcome->set_message(std::string(status.message()));
  outcome->set_failed_at(stage);
}

// There is no time for it, or none to go on with it.
void Leave(internal::TryOutcome* outcome) {
  Fail(absl::AbortedError("the time is up"), internal::TryOutcome::NONE, outcome);
}

}  // namespace

void TrimHeap() {
  constexpr size_t kWorthIt = size_t{32} << 20;
  if (mallinfo2().fordblks > kWorthIt) malloc_trim(0);
}

// A kernel on its way: `outcome` is what is still to be sent.
struct KernelTrials::Trial {
  internal::TriedKernel& tried;
  internal::TryOutcome outcome;

  internal::CheckRequest& check() const { return *tried.mutable_kernel()->mutable_check(); }
};

absl::Status KernelTrials::Validate(const internal::TryRequest& request) {
  for (const internal::TriedKernel& tried : request.kernels()) {
    const v1::Plan& plan = tried.kernel().check().plan();
    if (tried.objects_size() != plan.kernels_size() || plan.kernels().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("try: ", tried.objects_size(), " objects for ",
                                                     plan.kernels_size(), " kernels"));
    }
    const int best = tried.kernel().best_seconds_size();
    if (best != 0 && best != tried.kernel().sizes_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("try: ", best, " best times for ", tried.kernel().sizes_size(), " sizes"));
    }
  }
  return absl::OkStatus();
}

bool KernelTrials::Compile(const Setting& setting, const v1::Target& target, Objects* made,
                           Trial* trial) {
  internal::CheckRequest& check = trial->check();
  const Spent spent("compile", &trial->outcome);
  bool lacked = false;
  std::vector<bool> given;
  for (int i = 0; i < trial->tried.objects_size(); ++i) {
    const std::string& source = check.plan().kernels(i).source();
    std::string* object = check.add_objects();
    *object = std::move(*trial->tried.mutable_objects(i));
    given.push_back(!object->empty());
    const std::string*& known = made->try_emplace(source, nullptr).first->second;
    if (object->empty()) {
      lacked = true;
      absl::StatusOr<std::string> now = absl::UnknownError("not compiled");
      if (known != nullptr) {
        now = *known;
      } else {
        setting.work(1, [&] { now = CompileKernel(source, target, setting.compile_seconds); });
      }
      if (!now.ok()) {
        Fail(now.status(), internal::TryOutcome::COMPILE, &trial->outcome);
        trial->outcome.set_failed_kernel(i);
        return false;
      }
      *object = *std::move(now);
    }
    known = object;
  }
  for (int i = 0; lacked && i < check.objects_size(); ++i) {
    trial->outcome.add_objects(given[i] ? "" : check.objects(i));
  }
  return true;
}

absl::Status KernelTrials::Measure(const internal::TryRequest& request, const Setting& setting,
                                   Trial* trial) {
  const internal::SearchKernel& kernel = trial->tried.kernel();
  const Spent spent("measure", &trial->outcome);
  internal::MeasureRequest measure;
  internal::MeasuredPlan* plan = measure.add_plans();
  *plan->mutable_plan() = kernel.check().plan();
  *plan->mutable_objects() = kernel.check().objects();
  measure.set_graph_text(kernel.check().graph_text());
  *measure.mutable_sizes() = kernel.sizes();
  measure.set_seed(kernel.check().seed() + 1);
  measure.set_weight_bytes(kernel.weight_bytes());
  *measure.mutable_activation_bytes() = request.activation_bytes();
  *measure.mutable_give_up_seconds() = kernel.give_up_seconds();
  *measure.mutable_best_seconds() = kernel.best_seconds();
  if (!kernel.best_seconds().empty()) *measure.mutable_size_weights() = kernel.size_weights();
  measure.set_threads(request.target().threads());
  absl::StatusOr<internal::MeasureReply> times = absl::UnknownError("not measured");
  setting.work(request.target().threads(), [&] {
    times = MeasurePlans(measure, setting.limits, *setting.traffic, &inputs_, setting.end);
  });
  if (!times.ok()) return times.status();
  *trial->outcome.mutable_times() = times->plans(0).sizes();
  return absl::OkStatus();
}

absl::Status KernelTrials::Check(const Setting& setting, Trial* trial) {
  const Spent spent("check", &trial->outcome);
  const auto check = [&] {
    absl::StatusOr<internal::CheckReply> report = absl::UnknownError("not checked");
    setting.work(1, [&] { report = CheckKernels(trial->check(), setting.limits, &references_); });
    // Each check may take all of it: nothing of the one before lives.
    if (setting.limits.scratch != nullptr) setting.limits.scratch->Clear();
    return report;
  };
  absl::StatusOr<internal::CheckReply> passed = check();
  // A process that was lost once may have been lost for something else.
  if (WorthRetrying(passed.status())) passed = check();
  if (!passed.ok()) return passed.status();
  trial->outcome.set_worst_error(passed->worst_error());
  *trial->outcome.mutable_left_out() = std::move(*passed->mutable_left_out());
  trial->outcome.set_sampled_elements(passed->sampled_elements());
  return absl::OkStatus();
}

absl::Status KernelTrials::Judge(const internal::TryRequest& request, const Setting& setting,
                                 Send send, Trial* trial) {
  internal::TryOutcome& outcome = trial->outcome;
  if (absl::Status s = Measure(request, setting, trial); !s.ok()) {
    Fail(s, internal::TryOutcome::MEASURE, &outcome);
    return absl::OkStatus();
  }
  const internal::SearchKernel& kernel = trial->tried.kernel();
  std::vector<double> seconds;
  for (const internal::SizeTimes& size : outcome.times()) seconds.push_back(size.seconds());
  const bool first = kernel.best_seconds().empty();
  // Only what may be chosen has to be right: one that is slower in the sum never is.
  if (!first && !FasterThanBest(seconds, kernel)) return absl::OkStatus();
  if (!trial->tried.passed()) {
    if (Clock::now() >= setting.end) {
      Leave(&outcome);
      return absl::OkStatus();
    }
    if (absl::Status s = send(outcome); !s.ok()) return s;
    outcome.clear_spent();
    if (absl::Status s = Check(setting, trial); !s.ok()) {
      Fail(s, internal::TryOutcome::CHECK, &outcome);
      return absl::OkStatus();
    }
    outcome.set_checked(true);
    // Tells it now, so that a later loss does not cost it.
    if (absl::Status s = send(outcome); !s.ok()) return s;
    outcome.clear_spent();
  }
  outcome.set_checked(true);
  if (first) return absl::OkStatus();
  // The least of many times is low by luck, too: what wins is measured again, and that time counts.
  if (absl::Status s = Measure(request, setting, trial); !s.ok()) {
    Fail(s, internal::TryOutcome::MEASURE, &outcome);
  }
  return absl::OkStatus();
}

absl::Status KernelTrials::Try(internal::TryRequest request, const Setting& setting, Send send) {
  if (absl::Status s = Validate(request); !s.ok()) return s;
  // No phase begins anything after this.
  const auto phase_end = [&] {
    if (request.enough_us() <= 0) return setting.end;
    return std::min(setting.end, Clock::now() + std::chrono::microseconds(request.enough_us()));
  };
  Clock::time_point phase = phase_end();
  Objects made;
  std::vector<Trial> trials;
  trials.reserve(request.kernels_size());
  for (int i = 0; i < request.kernels_size(); ++i) {
    Trial& trial = trials.emplace_back(Trial{*request.mutable_kernels(i), {}});
    internal::TryOutcome& outcome = trial.outcome;
    outcome.set_kernel(static_cast<uint32_t>(i));
    if (Clock::now() >= (i == 0 ? setting.end : phase)) {
      Leave(&outcome);
      outcome.set_ended(true);
    } else {
      outcome.set_ended(!Compile(setting, request.target(), &made, &trial));
      if (!outcome.ended() && outcome.objects().empty()) continue;  // it lacked none
    }
    if (absl::Status s = send(outcome); !s.ok()) return s;
  }
  TrimHeap();
  phase = phase_end();
  bool first = true, left = false;
  for (Trial& trial : trials) {
    internal::TryOutcome& outcome = trial.outcome;
    if (outcome.ended()) continue;
    outcome.clear_objects();
    outcome.clear_spent();
    left = left || Clock::now() >= (std::exchange(first, false) ? setting.end : phase);
    if (left) {
      Leave(&outcome);
    } else if (absl::Status s = Judge(request, setting, send, &trial); !s.ok()) {
      return s;
    }
    outcome.set_ended(true);
    if (absl::Status s = send(outcome); !s.ok()) return s;
    // The next would find no time to be measured either.
    left = outcome.code() == static_cast<int>(absl::StatusCode::kAborted);
  }
  return absl::OkStatus();
}

}  // namespace athanor
