#include "server/tuner/kernel_trials.h"

#include <malloc.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/child/search_kernel.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/check/check.h"
#include "server/tuner/compile.h"
#include "server/tuner/measure/measure.h"
#include "server/tuner/measure/yardstick.h"
#include "server/tuner/run/scratch.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/told_times.h"

namespace athanor {
namespace {

using Stage = internal::TryOutcome::Stage;

// Kernels of a race, each with prepared weights of its own.
constexpr size_t kMostRaced = 4;

void AddTime(const char* on, std::chrono::duration<double> took, internal::TryOutcome* outcome) {
  v1::SearchTime& time = *outcome->add_spent();
  time.set_on(on);
  time.set_calls(1);
  time.set_seconds(took.count());
}

// Adds the time until its end to what outcomes say of `on`, in equal parts.
class Spent {
 public:
  Spent(const char* on, std::vector<internal::TryOutcome*> outcomes)
      : on_(on), outcomes_(std::move(outcomes)) {}
  ~Spent() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    const auto parts = static_cast<double>(outcomes_.size());
    for (internal::TryOutcome* outcome : outcomes_) AddTime(on_, took / parts, outcome);
  }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;

 private:
  const char* const on_;
  const std::vector<internal::TryOutcome*> outcomes_;
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
  const internal::SearchKernel& kernel() const { return tried.kernel(); }
  const std::string& source(int i) const { return kernel().check().plan().kernels(i).source(); }
  bool IsCall(int i) const { return kernel().check().plan().kernels(i).library_call(); }
  bool Has(absl::string_view source) const {
    return absl::c_any_of(kernel().check().plan().kernels(),
                          [&](const v1::Kernel& k) { return k.source() == source; });
  }
  std::vector<double> Seconds() const {
    std::vector<double> seconds;
    for (const internal::SizeTimes& size : outcome.times()) seconds.push_back(size.seconds());
    return seconds;
  }
};

namespace {

void AddPlan(const v1::Plan& plan, const google::protobuf::RepeatedPtrField<std::string>& objects,
             internal::MeasureRequest* request) {
  internal::MeasuredPlan* measured = request->add_plans();
  *measured->mutable_plan() = plan;
  *measured->mutable_objects() = objects;
}

// Returns the time of the best that a kernel was asked for beside; 0: there is none.
double BestOf(const internal::SearchKernel& asked) {
  return WeightedSeconds(asked.best_seconds(), asked);
}

}  // namespace

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
    const internal::MeasuredPlan& of = tried.kernel().best();
    if (tried.kernel().has_best() != (best != 0) || of.objects_size() != of.plan().kernels_size()) {
      return absl::InvalidArgumentError(absl::StrCat("try: ", best, " best times, of a best with ",
                                                     of.objects_size(), " objects for ",
                                                     of.plan().kernels_size(), " kernels"));
    }
  }
  return absl::OkStatus();
}

absl::Status KernelTrials::Compile(const internal::TryRequest& request, const Setting& setting,
                                   Send send, absl::Span<Trial> trials) {
  // Objects of this request, given or made; and the sources that have none, by their first use:
  // those of code, and library calls.
  std::map<absl::string_view, std::string> objects;
  std::vector<absl::string_view> sources, calls;
  const auto given = [](const Trial& trial, int i) { return !trial.tried.objects(i).empty(); };
  for (const Trial& trial : trials) {
    for (int i = 0; i < trial.tried.objects_size(); ++i) {
      if (given(trial, i)) objects[trial.source(i)] = trial.tried.objects(i);
    }
  }
  std::set<absl::string_view> lacking;
  for (const Trial& trial : trials) {
    for (int i = 0; i < trial.tried.objects_size(); ++i) {
      if (objects.contains(trial.source(i)) || !lacking.insert(trial.source(i)).second) continue;
      (trial.IsCall(i) ? calls : sources).push_back(trial.source(i));
    }
  }
  std::map<absl::string_view, absl::Status> failed;
  // Sends what a trial lacked once all of it is there, or the first failure.
  std::vector<bool> sent(trials.size());
  const auto tell = [&](size_t t) -> absl::Status {
    Trial& trial = trials[t];
    internal::TryOutcome& outcome = trial.outcome;
    bool lacks = false;
    for (int i = 0; i < trial.tried.objects_size(); ++i) {
      if (const auto error = failed.find(trial.source(i)); error != failed.end()) {
        Fail(error->second, internal::TryOutcome::COMPILE, &outcome);
        outcome.set_failed_kernel(static_cast<uint32_t>(i));
        outcome.set_ended(true);
        sent[t] = true;
        return send(outcome);
      }
      if (!objects.contains(trial.source(i))) return absl::OkStatus();
      lacks |= !given(trial, i);
    }
    for (int i = 0; i < trial.tried.objects_size(); ++i) {
      const std::string& object = objects[trial.source(i)];
      trial.check().add_objects(given(trial, i) ? trial.tried.objects(i) : object);
      if (lacks) outcome.add_objects(given(trial, i) ? "" : object);
    }
    sent[t] = true;
    return lacks ? send(outcome) : absl::OkStatus();
  };
  absl::Status status;
  const auto tell_all = [&] {
    for (size_t t = 0; t < trials.size() && status.ok(); ++t) {
      if (!sent[t]) status = tell(t);
    }
    return status.ok();
  };
  const Clock::time_point phase = PhaseEnd(request, setting);
  if (tell_all() && Clock::now() < setting.end) {
    const CompileSetting how{.cpu_seconds = setting.compile_seconds,
                             .poor = Poor::kIsRefused,
                             .work = [&](absl::FunctionRef<void()> work) { setting.work(1, work); },
                             // The second takes the core of requests: not beside any.
                             .both = setting.quiet};
    Clock::time_point last = Clock::now();
    const auto take = [&](absl::string_view source, absl::StatusOr<std::string> made) {
      if (made.ok()) {
        objects[source] = *std::move(made);
      } else {
        failed[source] = made.status();
      }
      const Clock::time_point now = Clock::now();
      for (Trial& trial : trials) {
        if (trial.outcome.ended() || !trial.Has(source)) continue;
        AddTime("compile", now - std::exchange(last, now), &trial.outcome);
        break;
      }
      return tell_all() && now < phase;
    };
    // The worker's socket is this process's alone. A call costs the worker at most, so the first
    // without an object is still who ends this process.
    bool going_on = true;
    for (size_t i = 0; i < calls.size() && going_on; ++i) {
      absl::StatusOr<std::string> made = absl::UnknownError("not proposed");
      setting.work(1, [&] {
        const auto compile = [&] {
          return CompileCall(calls[i], request.target(), setting.limits, Poor::kIsRefused);
        };
        made = compile();
        // A process that was lost once may have been lost for something else.
        if (WorthRetrying(made.status())) made = compile();
      });
      going_on = take(calls[i], std::move(made));
    }
    if (going_on) {
      CompileSources(sources, request.target(), how,
                     [&](size_t i, absl::StatusOr<std::string> made) {
                       return take(sources[i], std::move(made));
                     });
    }
  }
  for (size_t t = 0; t < trials.size() && status.ok(); ++t) {
    if (sent[t]) continue;
    Leave(&trials[t].outcome);
    trials[t].outcome.set_ended(true);
    status = send(trials[t].outcome);
  }
  return status;
}

absl::Status KernelTrials::Measure(const internal::TryRequest& request, const Setting& setting,
                                   bool confirm, absl::Span<Trial* const> trials) {
  std::vector<internal::TryOutcome*> outcomes;
  for (Trial* trial : trials) outcomes.push_back(&trial->outcome);
  const Spent spent("measure", std::move(outcomes));
  const internal::SearchKernel& kernel = trials.front()->kernel();
  internal::MeasureRequest measure;
  measure.set_race(true);
  measure.set_confirm(confirm);
  if (kernel.has_best()) AddPlan(kernel.best().plan(), kernel.best().objects(), &measure);
  for (const Trial* trial : trials)
    AddPlan(trial->check().plan(), trial->check().objects(), &measure);
  measure.set_graph_text(kernel.check().graph_text());
  *measure.mutable_sizes() = kernel.sizes();
  measure.set_seed(kernel.check().seed() + 1);
  measure.set_weight_bytes(kernel.weight_bytes());
  *measure.mutable_activation_bytes() = request.activation_bytes();
  *measure.mutable_give_up_seconds() = kernel.give_up_seconds();
  *measure.mutable_size_weights() = kernel.size_weights();
  measure.set_threads(HostThreads(request.target(), request.target().threads()));
  if (!kernel.has_best()) {
    if (yardstick_.empty() && RunsOnHost(request.target())) {
      // Without one, times are told as they are.
      setting.work(1, [&] { yardstick_ = Yardstick::Compile(request.target()).value_or(""); });
    }
    measure.set_yardstick(yardstick_);
    measure.set_vector_bytes(request.target().vector_bytes());
    if (request.f32_flops_per_second() > 0) flops_ = request.f32_flops_per_second();
    measure.set_f32_flops_per_second(flops_);
  }
  absl::StatusOr<internal::MeasureReply> times = absl::UnknownError("not measured");
  setting.work(HostThreads(request.target(), request.target().threads()), [&] {
    times = MeasurePlans(measure, setting.limits, *setting.traffic, &inputs_, setting.end);
  });
  if (!times.ok()) return times.status();
  if (flops_ <= 0 && times->f32_flops_per_second() > 0) {
    flops_ = std::max(times->f32_flops_per_second(), request.reached_flops_per_second());
  }
  // The first kernel takes the place of a best, if there is none.
  const bool has_best = kernel.has_best();
  for (size_t i = 0; i < trials.size(); ++i) {
    internal::TryOutcome& outcome = trials[i]->outcome;
    outcome.clear_times();
    outcome.set_f32_flops_per_second(has_best ? 0 : flops_);
    for (int s = 0; s < kernel.sizes_size(); ++s) {
      const internal::SizeTimes& raced = times->plans(static_cast<int>(i) + has_best).sizes(s);
      const double seconds = has_best ? kernel.best_seconds(s) : times->plans(0).sizes(s).seconds();
      const bool is_first = !has_best && i == 0;
      *outcome.add_times() = is_first ? raced : RelativeTo(seconds, raced);
    }
    if (!has_best && i > 0) {
      TellSurely(WeightedSeconds(trials[0]->Seconds(), kernel), kernel, &outcome);
    }
  }
  return absl::OkStatus();
}

void KernelTrials::MeasureAll(const internal::TryRequest& request, const Setting& setting,
                              absl::Span<Trial* const> trials) {
  absl::Status status = Measure(request, setting, /*confirm=*/false, trials);
  if (status.ok()) return;
  const bool gaps = absl::IsAborted(status);
  for (size_t i = 0; i < trials.size(); ++i) {
    Trial* trial = trials[i];
    // Requests that leave no gaps for all of them may leave some for one.
    const bool again = trials.size() > 1 && Clock::now() < setting.end && (!gaps || i == 0);
    if (again) status = Measure(request, setting, /*confirm=*/false, {&trial, 1});
    if (!status.ok()) Fail(status, internal::TryOutcome::MEASURE, &trial->outcome);
    if (gaps) status = absl::AbortedError("not measured: requests left no gaps for a race");
  }
}

absl::Status KernelTrials::Check(const Setting& setting, Trial* trial) {
  const Spent spent("check", {&trial->outcome});
  const auto check = [&] {
    absl::StatusOr<internal::CheckReply> report = absl::UnknownError("not checked");
    setting.work(1, [&] { report = CheckKernels(trial->check(), setting.limits, &references_); });
    // Each check may take all of it: nothing of the one before lives.
    ClearTaken(setting.limits);
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
                                 Send send, absl::Span<Trial* const> trials) {
  MeasureAll(request, setting, trials);
  // The best of the task, as far as it is known to be right.
  internal::SearchKernel best = trials.front()->kernel();
  std::vector<std::pair<double, size_t>> in_order;  // the fastest first, then what failed
  for (size_t i = 0; i < trials.size(); ++i) {
    const bool failed = trials[i]->outcome.code() != 0;
    in_order.emplace_back(failed ? std::numeric_limits<double>::infinity()
                                 : WeightedSeconds(trials[i]->Seconds(), best),
                          i);
  }
  absl::c_sort(in_order);
  for (const auto& [sum, i] : in_order) {
    Trial* trial = trials[i];
    internal::TryOutcome& outcome = trial->outcome;
    // Only what may be chosen has to be right: one that is no better than the best never is.
    const bool any = best.best_seconds().empty();
    const double limit = any ? std::numeric_limits<double>::infinity()
                             : (1 - kLeastKernelGain) * WeightedSeconds(best.best_seconds(), best);
    if (outcome.code() == 0 && (sum < limit || !trial->kernel().has_best())) {
      if (absl::Status s = Confirm(request, setting, send, trial); !s.ok()) return s;
    }
    if (outcome.checked() && outcome.code() == 0) {
      const std::vector<double> seconds = trial->Seconds();
      if (any || FasterThanBest(seconds, best)) {
        best.mutable_best_seconds()->Assign(seconds.begin(), seconds.end());
      }
    } else if (outcome.code() == 0) {  // nothing unchecked becomes the best
      TellAtLeast(BestOf(trial->kernel()), trial->kernel(), &outcome);
    }
    outcome.set_ended(true);
    if (absl::Status s = send(outcome); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Checks a kernel that may serve, and measures it again.
absl::Status KernelTrials::Confirm(const internal::TryRequest& request, const Setting& setting,
                                   Send send, Trial* trial) {
  internal::TryOutcome& outcome = trial->outcome;
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
  if (!trial->kernel().has_best()) return absl::OkStatus();
  // The fastest of several was lucky, too: what wins is measured again, and that time counts.
  if (absl::Status s = Measure(request, setting, /*confirm=*/true, {&trial, 1}); !s.ok()) {
    Fail(s, internal::TryOutcome::MEASURE, &outcome);
    return absl::OkStatus();
  }
  TellSurely(BestOf(trial->kernel()), trial->kernel(), &outcome);
  return absl::OkStatus();
}

KernelTrials::Clock::time_point KernelTrials::PhaseEnd(const internal::TryRequest& request,
                                                       const Setting& setting) {
  if (request.enough_us() <= 0) return setting.end;
  return std::min(setting.end, Clock::now() + std::chrono::microseconds(request.enough_us()));
}

absl::Status KernelTrials::Try(internal::TryRequest request, const Setting& setting, Send send) {
  if (absl::Status s = Validate(request); !s.ok()) return s;
  std::vector<Trial> trials;
  trials.reserve(request.kernels_size());
  for (internal::TriedKernel& tried : *request.mutable_kernels()) {
    Trial& trial = trials.emplace_back(Trial{tried, {}});
    trial.outcome.set_kernel(static_cast<uint32_t>(trials.size() - 1));
  }
  if (absl::Status s = Compile(request, setting, send, absl::MakeSpan(trials)); !s.ok()) return s;
  TrimHeap();
  const Clock::time_point phase = PhaseEnd(request, setting);
  bool first = true, left = false;
  for (size_t i = 0; i < trials.size();) {
    // Collects kernels of one task that follow each other.
    std::vector<Trial*> race;
    const uint32_t task = trials[i].kernel().task();
    for (; i < trials.size() && trials[i].kernel().task() == task && race.size() < kMostRaced;
         ++i) {
      Trial& trial = trials[i];
      if (trial.outcome.ended()) continue;
      trial.outcome.clear_objects();
      trial.outcome.clear_spent();
      race.push_back(&trial);
    }
    if (race.empty()) continue;
    left = left || Clock::now() >= (std::exchange(first, false) ? setting.end : phase);
    if (!left) {
      if (absl::Status s = Judge(request, setting, send, race); !s.ok()) return s;
      // The next would find no time to be measured either.
      left = absl::c_any_of(race, [](const Trial* trial) {
        return trial->outcome.code() == static_cast<int>(absl::StatusCode::kAborted);
      });
      continue;
    }
    for (Trial* trial : race) {
      Leave(&trial->outcome);
      trial->outcome.set_ended(true);
      if (absl::Status s = send(trial->outcome); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
