#include "server/search/candidate_kernels.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "server/base/log.h"
#include "server/child/search_kernel.h"
#include "server/child/tuner_channel.h"
#include "server/search/plan_cost.h"

namespace athanor {
namespace {

// Other searches and builds wait for a trial: it begins nothing more after so long.
constexpr std::chrono::microseconds kEnough = std::chrono::milliseconds(700);

std::vector<double> SecondsOf(const internal::TryOutcome& part) {
  std::vector<double> seconds;
  for (const internal::SizeTimes& size : part.times()) seconds.push_back(size.seconds());
  return seconds;
}

}  // namespace

void CandidateKernels::Begin() {
  waiting_.clear();
  for (int i = 0; i < steps_.step().kernels_size(); ++i) waiting_.push_back(i);
}

void CandidateKernels::Leave() {
  for (int index : std::exchange(waiting_, {})) {
    steps_.TellKernel(kernel(index).key(),
                      absl::AbortedError("not measured: the search's time is up"));
  }
}

void CandidateKernels::Show(int index, const absl::Status& status, bool from_cache) {
  const v1::Kernel& own = OwnKernel(kernel(index).check().plan());
  v1::SearchFailure failure;
  failure.set_kernel(own.source_hash());
  failure.set_about(own.name());
  failure.set_from_cache(from_cache);
  record_.Fail(std::move(failure), status);
}

void CandidateKernels::Prepare(int index, absl::Span<const int64_t> activation_bytes,
                               internal::TryRequest* request) {
  const internal::SearchKernel& asked = kernel(index);
  CandidateMemory::Kernel of = memory_.Of(asked, activation_bytes);
  if (const auto known = memory_.Find(of, asked)) {
    record_.CountFromCache();
    if (!known->ok()) Show(index, known->status(), /*from_cache=*/true);
    steps_.TellKernel(asked.key(), *known);
    return;
  }
  Trial trial{index, std::move(of), asked.check()};
  trial.compiled = true;
  for (const v1::Kernel& source : asked.check().plan().kernels()) {
    std::optional<std::string> object = maker_.Find(source);
    const absl::Status fits =
        object.has_value() ? absl::OkStatus() : tuner_.CheckSource(source.source());
    if (!fits.ok()) return Fail(trial, NamedKernel(source, fits), FailureKind::kCompile);
    trial.compiled &= object.has_value();
    trial.check.add_objects(std::move(object).value_or(""));
  }
  internal::TriedKernel* tried = request->add_kernels();
  *tried->mutable_kernel() = asked;
  *tried->mutable_objects() = trial.check.objects();
  tried->set_passed(trial.compiled && maker_.HasPassed(trial.check));
  trials_.push_back(std::move(trial));
}

void CandidateKernels::Fail(Trial& trial, const absl::Status& status,
                            std::optional<FailureKind> kind) {
  trial.ended = true;
  maker_.CountCandidate();
  Show(trial.index, status, /*from_cache=*/false);
  if (kind.has_value()) memory_.PutFailure(trial.of, *kind, status);
  steps_.TellKernel(kernel(trial.index).key(), status);
}

void CandidateKernels::NoteReached(const Trial& trial, absl::Span<const double> seconds) {
  for (int s = 0; s < kernel(trial.index).sizes_size(); ++s) {
    const auto& values = kernel(trial.index).sizes(s).values();
    const std::vector<int64_t> dims(values.begin(), values.end());
    const double share = ReachedShare(trial.check.plan(), dims, seconds[s], steps_.limits());
    if (share > 1) limits_.Beaten(share);
  }
}

void CandidateKernels::TakeCompiled(Trial& trial, internal::TryOutcome& part) {
  for (int i = 0; i < part.objects_size(); ++i) {
    if (part.objects(i).empty()) continue;
    maker_.Put(trial.check.plan().kernels(i), part.objects(i));
    *trial.check.mutable_objects(i) = std::move(*part.mutable_objects(i));
  }
  trial.compiled = true;
}

void CandidateKernels::TakeTimes(Trial& trial, const internal::TryOutcome& part) {
  TimingRow row;
  for (const internal::SizeTimes& size : part.times()) {
    row.seconds.push_back(size.seconds());
    row.low.push_back(size.low());
    row.high.push_back(size.high());
    row.rounds = size.rounds();
  }
  row.checked = part.checked();
  trial.ended = true;
  maker_.CountCandidate();
  memory_.Put(trial.of, row);
  steps_.TellKernel(kernel(trial.index).key(), row.seconds);
}

void CandidateKernels::TakeVerdict(Trial& trial, const internal::TryOutcome& part) {
  const v1::Plan& plan = trial.check.plan();
  if (!part.times().empty()) NoteReached(trial, SecondsOf(part));
  if (part.checked()) {
    internal::CheckReply report;
    *report.mutable_left_out() = part.left_out();
    report.set_sampled_elements(part.sampled_elements());
    maker_.PutPassed(trial.check, report, OwnKernel(plan));
  }
  if (part.code() == 0) return TakeTimes(trial, part);
  const absl::Status said(static_cast<absl::StatusCode>(part.code()), part.message());
  if (absl::IsAborted(said)) return;
  switch (part.failed_at()) {
    case internal::TryOutcome::COMPILE: {
      const v1::Kernel& failed = plan.kernels(static_cast<int>(part.failed_kernel()));
      const absl::Status status = NamedKernel(failed, Prefixed("compiling a kernel: ", said));
      return Fail(trial, status, FailureKind::kCompile);
    }
    case internal::TryOutcome::CHECK: {
      const absl::Status status =
          NamedKernel(OwnKernel(plan), Prefixed("checking a kernel: ", said));
      return Fail(trial, status, FailureKind::kCheck);
    }
    default:
      return Fail(trial, Prefixed("measuring a kernel: ", said), FailureKind::kMeasure);
  }
}

void CandidateKernels::TakePart(internal::TryOutcome part) {
  Trial& trial = trials_[part.kernel()];
  for (const v1::SearchTime& spent : part.spent()) {
    record_.AddTime(spent.on(), spent.seconds(), spent.calls());
  }
  if (part.ended()) {
    TakeVerdict(trial, part);
  } else {
    TakeCompiled(trial, part);
  }
}

absl::Status CandidateKernels::TakeLoss(const absl::Status& why) {
  // All are compiled before the first is measured, in their order.
  auto lost = std::find_if(trials_.begin(), trials_.end(),
                           [](const Trial& t) { return !t.ended && !t.compiled; });
  const bool compiling = lost != trials_.end();
  if (!compiling) {
    lost = std::find_if(trials_.begin(), trials_.end(), [](const Trial& t) { return !t.ended; });
  }
  if (lost == trials_.end()) return why;
  const std::string& key = kernel(lost->index).key();
  if (compiling && WorthRetrying(why) && std::exchange(compiled_again_, key) != key) {
    LogWarn("kernel compiled once more",
            {{"kernel", OwnKernel(lost->check.plan()).name()}, {"error", why.message()}});
    return absl::OkStatus();
  }
  // Kernels run in a process of their own: a child that was lost behind the compiler was lost for
  // something else.
  const auto kind = compiling ? std::optional(FailureKind::kCompile) : std::nullopt;
  Fail(*lost, NamedKernel(OwnKernel(lost->check.plan()), why), kind);
  return absl::OkStatus();
}

absl::Status CandidateKernels::Try(absl::Span<const int64_t> activation_bytes) {
  internal::TryRequest request;
  *request.mutable_target() = machine_.target();
  request.mutable_activation_bytes()->Assign(activation_bytes.begin(), activation_bytes.end());
  request.set_enough_us(kEnough.count());
  trials_.clear();
  for (int index : waiting_) Prepare(index, activation_bytes, &request);
  absl::Status status;
  if (!trials_.empty()) {
    status = tuner_.Try(request, [&](internal::TryOutcome part) { TakePart(std::move(part)); });
  }
  if (!status.ok() && !absl::IsCancelled(status) && !absl::IsAborted(status)) {
    status = TakeLoss(status);
  }
  waiting_.clear();
  for (const Trial& trial : trials_) {
    if (!trial.ended) waiting_.push_back(trial.index);
  }
  return status;
}

}  // namespace athanor
