#include "server/search/candidate_kernels.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "server/base/log.h"
#include "server/child/search_kernel.h"
#include "server/child/tuner_channel.h"
#include "server/search/plan_cost.h"

namespace athanor {
namespace {

// Other searches and builds wait for a request: compiling ends after so long, and then measuring.
constexpr std::chrono::microseconds kEnough = std::chrono::milliseconds(700);
// At most this part of the search's time left, because the best plan is measured at its end.
constexpr int kPartOfTheRest = 8;
// Kernels of a request, as many as may be tried in that time, and their bytes: a frame has a limit.
constexpr size_t kAtOnce = 16;
constexpr size_t kBytesAtOnce = size_t{64} << 20;

std::vector<double> SecondsOf(const internal::TryOutcome& part) {
  std::vector<double> seconds;
  for (const internal::SizeTimes& size : part.times()) seconds.push_back(size.seconds());
  return seconds;
}

}  // namespace

void CandidateKernels::Begin() {
  trials_.clear();
  kept_.clear();
  best_.clear();
  next_ = 0;
}

void CandidateKernels::Leave() {
  const auto leave = [&](int index) {
    steps_.TellKernel(kernel(index).key(),
                      absl::AbortedError("not measured: the search's time is up"));
  };
  for (const Trial& trial : std::exchange(trials_, {})) leave(trial.index);
  for (; next_ < steps_.step().kernels_size(); ++next_) leave(next_);
}

void CandidateKernels::Show(int index, const absl::Status& status, bool from_cache) {
  const v1::Kernel& own = OwnKernel(kernel(index).check().plan());
  v1::SearchFailure failure;
  failure.set_kernel(own.source_hash());
  failure.set_about(own.name());
  failure.set_from_cache(from_cache);
  record_.Fail(std::move(failure), status);
}

void CandidateKernels::Prepare(int index, absl::Span<const int64_t> activation_bytes) {
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
  if (absl::Status s = FindBest(asked); absl::IsCancelled(s) || absl::IsAborted(s)) {
    return steps_.TellKernel(asked.key(),
                             absl::AbortedError("not measured: its best was not made"));
  } else if (!s.ok()) {
    return Fail(trial, s, std::nullopt);
  }
  trials_.push_back(std::move(trial));
}

absl::Status CandidateKernels::FindBest(const internal::SearchKernel& asked) {
  const v1::Plan& plan = asked.best().plan();
  if (!asked.has_best() || best_.contains(plan.plan_id())) return absl::OkStatus();
  std::vector<std::string> objects;
  for (const v1::Kernel& kernel : plan.kernels()) {
    absl::StatusOr<KernelObject> object = maker_.Compile(kernel);  // where the cache gave it up
    if (!object.ok()) return object.status();
    objects.push_back(std::move(object->object));
  }
  best_[plan.plan_id()] = std::move(objects);
  return absl::OkStatus();
}

void CandidateKernels::PrepareNext(absl::Span<const int64_t> activation_bytes) {
  size_t bytes = 0;
  const int count = steps_.step().kernels_size();
  while (next_ < count && trials_.size() < kAtOnce && bytes < kBytesAtOnce) {
    bytes += kernel(next_).ByteSizeLong();
    Prepare(next_++, activation_bytes);
  }
}

internal::TryRequest CandidateKernels::RequestFor(absl::Span<const int64_t> activation_bytes,
                                                  SearchSteps::Time end) {
  internal::TryRequest request;
  *request.mutable_target() = machine_.target();
  request.set_f32_flops_per_second(memory_.FlopsOfTimes().value_or(0));
  request.set_reached_flops_per_second(steps_.limits().f32_flops_per_second());
  request.mutable_activation_bytes()->Assign(activation_bytes.begin(), activation_bytes.end());
  const auto part = (end - std::chrono::steady_clock::now()) / kPartOfTheRest;
  request.set_enough_us(
      std::clamp<int64_t>(part / std::chrono::microseconds(1), 1, kEnough.count()));
  for (Trial& trial : trials_) {
    trial.checking = false;
    trial.left = absl::OkStatus();
    internal::TriedKernel* tried = request.add_kernels();
    *tried->mutable_kernel() = kernel(trial.index);
    if (tried->kernel().has_best()) {
      internal::MeasuredPlan* best = tried->mutable_kernel()->mutable_best();
      for (const std::string& object : best_[best->plan().plan_id()]) best->add_objects(object);
    }
    *tried->mutable_objects() = trial.check.objects();
    tried->set_passed(trial.compiled && maker_.HasPassed(trial.check));
  }
  return request;
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
    const v1::Kernel& compiled = trial.check.plan().kernels(i);
    if (kept_.insert(compiled.source_hash()).second) maker_.Put(compiled, part.objects(i));
    *trial.check.mutable_objects(i) = std::move(*part.mutable_objects(i));
  }
  trial.compiled = true;
}

void CandidateKernels::TakeRight(Trial& trial, const internal::TryOutcome& part) {
  trial.checking = false;
  internal::CheckReply report;
  *report.mutable_left_out() = part.left_out();
  report.set_sampled_elements(part.sampled_elements());
  maker_.PutPassed(trial.check, report, OwnKernel(trial.check.plan()));
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
  // The first times of all set the scale. A child may say anything.
  const double flops = part.f32_flops_per_second(),
               reached = steps_.limits().f32_flops_per_second();
  const bool likely = flops > reached / 100 && flops < 2 * reached;
  if (likely && !memory_.FlopsOfTimes().has_value()) memory_.PutFlopsOfTimes(flops);
  trial.ended = true;
  maker_.CountCandidate();
  memory_.Put(trial.of, row);
  steps_.TellKernel(kernel(trial.index).key(), row.seconds);
}

void CandidateKernels::TakeVerdict(Trial& trial, const internal::TryOutcome& part) {
  const v1::Plan& plan = trial.check.plan();
  if (!part.times().empty()) NoteReached(trial, SecondsOf(part));
  if (part.code() == 0) return TakeTimes(trial, part);
  const absl::Status said(static_cast<absl::StatusCode>(part.code()), part.message());
  if (absl::IsAborted(said)) {
    trial.left = Prefixed("trying a kernel: ", said);
    return;
  }
  switch (part.failed_at()) {
    case internal::TryOutcome::COMPILE: {
      const v1::Kernel& failed = plan.kernels(static_cast<int>(part.failed_kernel()));
      absl::Status status = NamedKernel(failed, Prefixed("compiling a kernel: ", said));
      // The search learns that the library has no later proposals either.
      if (absl::IsOutOfRange(said)) status = absl::OutOfRangeError(status.message());
      return Fail(trial, status, FailureKind::kCompile);
    }
    case internal::TryOutcome::CHECK:
      return Fail(trial, NamedKernel(OwnKernel(plan), Prefixed("checking a kernel: ", said)),
                  FailureKind::kCheck);
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
  } else if (!part.objects().empty()) {
    TakeCompiled(trial, part);
  } else if (part.checked()) {
    TakeRight(trial, part);
  } else {
    trial.checking = true;
  }
}

void CandidateKernels::TakeLoss(const absl::Status& why) {
  const auto first = [this](auto is) { return absl::c_find_if(trials_, is); };
  const auto at_work = [](const Trial& t) { return !t.ended && t.left.ok(); };
  // All are compiled before the first is measured, in their order.
  auto lost = first([&](const Trial& t) { return at_work(t) && !t.compiled; });
  if (lost == trials_.end()) lost = first([&](const Trial& t) { return at_work(t) && t.checking; });
  if (lost == trials_.end()) lost = first(at_work);
  if (lost == trials_.end()) return;  // after the last verdict
  // Kernels are measured in a process of their own: a child that was lost there was lost for
  // something else. A request that was refused says nothing of the kernel either.
  std::optional<FailureKind> kind;
  if (!lost->compiled) kind = FailureKind::kCompile;
  if (lost->checking) kind = FailureKind::kCheck;
  if (absl::IsInvalidArgument(why)) kind = std::nullopt;
  const v1::Kernel& own = OwnKernel(lost->check.plan());
  if (WorthRetrying(why) && !std::exchange(lost->lost_before, true)) {
    LogWarn("kernel tried once more", {{"kernel", own.name()}, {"error", why.message()}});
    return;
  }
  Fail(*lost, NamedKernel(own, why), kind);
}

absl::Status CandidateKernels::Try(absl::Span<const int64_t> activation_bytes,
                                   SearchSteps::Time end) {
  if (trials_.empty()) PrepareNext(activation_bytes);
  if (trials_.empty()) return absl::OkStatus();
  const internal::TryRequest request = RequestFor(activation_bytes, end);
  bool further = false;
  absl::Status status = tuner_.Try(request, [&](internal::TryOutcome part) {
    further |= part.code() != static_cast<int>(absl::StatusCode::kAborted);
    TakePart(std::move(part));
  });
  if (status.ok() && !further) status = trials_.front().left;
  if (!status.ok() && !absl::IsCancelled(status) && !absl::IsAborted(status)) {
    TakeLoss(status);
    status = absl::OkStatus();
  }
  std::erase_if(trials_, [](const Trial& trial) { return trial.ended; });
  return status;
}

}  // namespace athanor
