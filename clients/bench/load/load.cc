#include "clients/bench/load/load.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/bench/load/infer_backend.h"
#include "clients/bench/load/sender.h"
#include "deploy/bazel/libs/mutex.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

// Pause of a closed-loop caller after a failure, so that a dead server is not called a million
// times.
constexpr auto kPauseAfterFailure = std::chrono::milliseconds(10);
// Calls due before the end may still be sent this long after it.
constexpr int64_t kEndGraceNs = 100'000'000;
// Many calls of a trace may be due at its beginning.
constexpr double kShortestRun = 1e-3;
constexpr int kMostConnections = 1024, kMostCallers = 100'000;
constexpr double kMostSeconds = 7 * 86'400.0;

int64_t ToNs(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

// Sends calls when they are due, independently of the answers.
class OpenLoop {
 public:
  OpenLoop(Sender* sender, int most_outstanding, int64_t most_calls)
      : sender_(sender), most_outstanding_(most_outstanding), most_calls_(most_calls) {}

  // Returns how many calls of each phase were not sent. `seconds` becomes how long calls were due.
  std::vector<int64_t> Run(Arrivals arrivals, absl::Span<const Phase> phases, double* seconds) {
    prctl(PR_SET_TIMERSLACK, 1);  // 1 ns; the default is 50 us
    std::vector<int64_t> not_sent(phases.size());
    *seconds = TotalSeconds(phases);
    const int64_t end_ns = ToNs(*seconds) + kEndGraceNs;
    for (int64_t calls = 0;; ++calls) {
      const std::optional<Arrivals::Due> due = arrivals.Next();
      if (!due.has_value()) break;
      if (calls == most_calls_) {
        *seconds = std::max(due->seconds, kShortestRun);
        break;
      }
      const int64_t due_ns = ToNs(due->seconds);
      std::this_thread::sleep_until(sender_->TimeOf(due_ns));
      Slot* slot = Acquire(end_ns);
      const Sender::Done done = [this](Slot* used, bool) { Release(used); };
      if (slot != nullptr && sender_->Send(slot, due_ns, due->phase, done)) continue;
      sender_->Skip();
      ++not_sent[due->phase];
      if (slot != nullptr) Release(slot);
    }
    MutexLock lock(mu_);
    while (out_ > 0) changed_.Wait(lock);
    return not_sent;
  }

 private:
  // Waits while the limit of outstanding calls is reached; null once it is `end_ns`.
  Slot* Acquire(int64_t end_ns) {
    MutexLock lock(mu_);
    while (out_ == most_outstanding_) {
      if (!changed_.WaitUntil(lock, sender_->TimeOf(end_ns)) && out_ == most_outstanding_) {
        return nullptr;
      }
    }
    if (sender_->Now() >= end_ns) return nullptr;
    ++out_;
    if (free_.empty()) return sender_->NewSlot();
    Slot* slot = free_.back();
    free_.pop_back();
    return slot;
  }

  void Release(Slot* slot) {
    MutexLock lock(mu_);
    free_.push_back(slot);
    --out_;
    changed_.NotifyOne();
  }

  Sender* const sender_;
  const int most_outstanding_;
  const int64_t most_calls_;
  Mutex mu_;
  CondVar changed_;
  int out_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mu_);
};

// `concurrency` callers, each with one call out.
class ClosedLoop {
 public:
  ClosedLoop(Sender* sender, int64_t most_calls, absl::Duration think = absl::ZeroDuration())
      : sender_(sender), most_calls_(most_calls), think_(absl::ToChronoNanoseconds(think)) {}

  // Returns false when it ended because of `most_calls`.
  bool Run(absl::Span<const Phase> phases) {
    double end = 0;
    for (size_t i = 0; i < phases.size(); ++i) {
      end += phases[i].seconds;
      BeginPhase(static_cast<int>(i), phases[i].concurrency);
      CallUntil(sender_->TimeOf(ToNs(end)));
    }
    MutexLock lock(mu_);
    const bool full = full_;
    stopped_ = true;
    EndPauses();
    while (running_ > 0) changed_.Wait(lock);
    return !full;
  }

 private:
  struct Caller {
    Slot* slot;
    bool running = false;
  };

  void BeginPhase(int phase, int concurrency) {
    std::vector<int> begin;
    {
      MutexLock lock(mu_);
      phase_ = phase;
      concurrency_ = concurrency;
      while (static_cast<int>(callers_.size()) < concurrency)
        callers_.push_back({sender_->NewSlot()});
      for (int i = 0; i < concurrency; ++i) {
        if (callers_[i].running) continue;
        callers_[i].running = true;
        ++running_;
        begin.push_back(i);
      }
    }
    for (int caller : begin) CallOrStop(caller);
  }

  // Wakes callers whose pause is over, until `end` or until no caller is left.
  void CallUntil(Clock::time_point end) {
    MutexLock lock(mu_);
    while (Clock::now() < end && !(full_ && running_ == 0)) {
      const auto first = pauses_.begin();
      const bool due = first != pauses_.end() && first->first <= Clock::now();
      if (!due) {
        changed_.WaitUntil(lock, first == pauses_.end() ? end : std::min(end, first->first));
        continue;
      }
      const int caller = first->second;
      pauses_.erase(first);
      lock.Unlock();
      CallOrStop(caller);
      lock.Lock();
    }
    EndPauses();
  }

  // Drops the pauses: the next phase starts its callers anew.
  void EndPauses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& [end, caller] : pauses_) Stop(caller);
    pauses_.clear();
  }

  // Sends the caller's next call, unless the phase is over or the limit is reached.
  void CallOrStop(int caller) {
    Slot* slot;
    int phase;
    {
      MutexLock lock(mu_);
      full_ = full_ || begun_ >= most_calls_;
      if (stopped_ || full_ || caller >= concurrency_) return Stop(caller);
      ++begun_;
      slot = callers_[caller].slot;
      phase = phase_;
    }
    const auto done = [this, caller](Slot*, bool answered) {
      const Clock::duration pause = answered ? think_ : kPauseAfterFailure;
      if (pause <= Clock::duration::zero()) return CallOrStop(caller);
      MutexLock lock(mu_);
      if (stopped_) return Stop(caller);
      pauses_.emplace(Clock::now() + pause, caller);
      changed_.NotifyOne();
    };
    sender_->SendNow(slot, phase, done);
  }

  void Stop(int caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    callers_[caller].running = false;
    --running_;
    changed_.NotifyOne();
  }

  Sender* const sender_;
  const int64_t most_calls_;
  const Clock::duration think_;
  Mutex mu_;
  CondVar changed_;
  int phase_ ABSL_GUARDED_BY(mu_) = 0;
  int concurrency_ ABSL_GUARDED_BY(mu_) = 0;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;  // calls
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Caller> callers_ ABSL_GUARDED_BY(mu_);
  std::multimap<Clock::time_point, int> pauses_ ABSL_GUARDED_BY(mu_);  // callers, by when they end
};

// Returns when the last call ended, in seconds; above 0.
double LastDone(const LoadResult& result) {
  int64_t last_ns = 1;
  for (const CallRecord& record : result.calls) last_ns = std::max(last_ns, record.done_ns);
  return static_cast<double>(last_ns) / 1e9;
}

absl::Status Bad(absl::string_view flag, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", what));
}

absl::Status CheckPhase(const Phase& phase, bool open) {
  if (!(phase.seconds > 0 && phase.seconds <= kMostSeconds)) {
    return Bad("--duration", absl::StrCat(phase.seconds, " s; must be above 0 and at most a week"));
  }
  if (!open && (phase.concurrency < 1 || phase.concurrency > kMostCallers)) {
    return Bad("--concurrency", absl::StrCat(phase.concurrency, "; must be 1 to ", kMostCallers));
  }
  for (double rate : {phase.rate, phase.rate_end}) {
    if (open && !(rate >= 0 && rate <= kMostRate)) {
      return Bad("--rate", absl::StrCat(rate, "; must be 0 to ", kMostRate, " calls per second"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLoadOptions(const LoadOptions& options) {
  if (options.address.empty()) return Bad("--address", "must be HOST:PORT");
  if (options.model.empty()) return Bad("--model", "must name a model");
  if (options.answers == Answers::kTensors && options.requests.empty()) {
    return Bad("--requests", "there is nothing to send");
  }
  if (options.phases.empty()) return Bad("--duration", "there is no phase to run");
  const bool open = options.arrival != Arrival::kClosed;
  for (const Phase& phase : options.phases) {
    RETURN_IF_ERROR(CheckPhase(phase, open));
  }
  const int64_t most = MostCallsOf(options.answers);
  if (options.most_calls < 1 || options.most_calls > most) {
    return Bad("--num_prompts", absl::StrCat(options.most_calls, "; must be 1 to ", most));
  }
  const double calls =
      std::min(ExpectedCalls(options.phases), static_cast<double>(options.most_calls) + 1);
  if (open && calls <= 0) return Bad("--rate", "0 calls per second send nothing; must be above 0");
  if (open && calls > static_cast<double>(most)) {
    return Bad("--rate", absl::StrFormat("%.3g calls in one run; at most %d are kept",
                                         ExpectedCalls(options.phases), most));
  }
  if (!(options.burstiness >= 0.01 && options.burstiness <= 1000)) {
    return Bad("--burstiness", absl::StrCat(options.burstiness, "; must be 0.01 to 1000"));
  }
  if (options.connections < 1 || options.connections > kMostConnections) {
    return Bad("--connections",
               absl::StrCat(options.connections, "; must be 1 to ", kMostConnections));
  }
  if (options.most_outstanding < 1 || options.most_outstanding > kMostCallers) {
    return Bad("--max_outstanding",
               absl::StrCat(options.most_outstanding, "; must be 1 to ", kMostCallers));
  }
  if (options.warmups < 0 || options.warmups > kMostCalls) {
    return Bad("--warmup", absl::StrCat(options.warmups, "; must be 0 to ", kMostCalls));
  }
  if (options.timeout <= absl::ZeroDuration()) {
    return Bad("--timeout",
               absl::StrCat(absl::FormatDuration(options.timeout), "; must be above 0"));
  }
  if (options.think < absl::ZeroDuration() || (open && options.think > absl::ZeroDuration())) {
    return Bad("--think", absl::StrCat(absl::FormatDuration(options.think),
                                       "; must be 0 or more, and is for closed loops: leave out "
                                       "--rate and --trace"));
  }
  return absl::OkStatus();
}

Load::Load(LoadOptions options, std::unique_ptr<Backend> backend)
    : options_(std::move(options)), backend_(std::move(backend)) {}
Load::~Load() = default;

absl::StatusOr<std::unique_ptr<Load>> Load::Create(LoadOptions options,
                                                   std::unique_ptr<Backend> backend) {
  RETURN_IF_ERROR(CheckLoadOptions(options));
  if (backend == nullptr) {
    ASSIGN_OR_RETURN(
        backend,
        MakeInferBackend({options.address, options.client, options.connections}, options.requests));
  }
  std::unique_ptr<Load> load(new Load(std::move(options), std::move(backend)));
  RETURN_IF_ERROR(load->WarmUp());
  return load;
}

absl::Status Load::WarmUp() {
  if (options_.warmups == 0) return absl::OkStatus();
  Progress progress;
  // Another seed and the numbers before 0, so that no measured prompt is one that the server has
  // just seen.
  Sender sender({backend_.get(), options_.timeout, ~options_.seed, -options_.warmups}, Clock::now(),
                &progress);
  ClosedLoop(&sender, 1).Run({{.seconds = kMostSeconds, .concurrency = 1}});
  for (const auto& [code, message] : sender.Collect().messages) {
    return absl::Status(static_cast<absl::StatusCode>(code),
                        absl::StrCat("the first warm-up call of model \"", options_.model, "\" at ",
                                     options_.address, ": ", message));
  }
  if (options_.warmups == 1) return absl::OkStatus();
  const int callers = options_.arrival == Arrival::kClosed ? options_.phases[0].concurrency : 1;
  const Phase phase = {.seconds = kMostSeconds,
                       .concurrency = static_cast<int>(std::min<int64_t>(
                           std::max(callers, options_.connections), options_.warmups - 1))};
  ClosedLoop(&sender, options_.warmups - 1).Run({phase});
  return absl::OkStatus();
}

LoadResult Load::Run(absl::Span<const Phase> phases, uint64_t seed, int64_t first_number) {
  Sender sender({backend_.get(), options_.timeout, seed, first_number}, Clock::now(), &progress_);
  std::vector<int64_t> not_sent(phases.size());
  double seconds = TotalSeconds(phases);
  bool ended = false;
  if (options_.arrival == Arrival::kClosed) {
    ended = !ClosedLoop(&sender, options_.most_calls, options_.think).Run(phases);
  } else {
    OpenLoop loop(&sender, options_.most_outstanding, options_.most_calls);
    Arrivals arrivals =
        options_.arrival == Arrival::kTrace
            ? Arrivals(options_.due)
            : Arrivals(options_.arrival, options_.burstiness, {phases.begin(), phases.end()}, seed);
    not_sent = loop.Run(std::move(arrivals), phases, &seconds);
  }
  LoadResult result = sender.Collect();
  result.not_sent = std::move(not_sent);
  if (ended) seconds = std::min(seconds, LastDone(result));
  result.seconds = seconds;
  result.full = ended && options_.most_calls == MostCallsOf(options_.answers);
  return result;
}

absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Load> load, Load::Create(options));
  return load->Run(options.phases, options.seed);
}

}  // namespace athanor::bench
