#include "server/tuner/measure/measure.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor/executor.h"
#include "runtime/memory/prepared_pool.h"
#include "server/child/trial_states.h"
#include "server/tuner/measure/layers.h"
#include "server/tuner/measure/measured_inputs.h"
#include "server/tuner/measure/median.h"
#include "server/tuner/measure/pacer.h"
#include "server/tuner/measure/walked_memory.h"
#include "server/tuner/measure/yardstick.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/scratch_states.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/run/weight_turns.h"

namespace athanor {
namespace {

constexpr double kSample = 300e-6;  // seconds of one sample
static_assert(kSample <= Pacer::kMaxSlice);
// Target time, and least and most rounds, for one plan at one size. A comparison decides which of
// two plans serves by one per cent, and comparisons are few; a race is one of very many.
struct Patience {
  double seconds;
  int least, most;
};
constexpr Patience kAlone{20e-3, 5, 15}, kRaced{12e-3, 5, 15}, kConfirmed{60e-3, 6, 99},
    kCompared{200e-3, 6, 301};
constexpr int kStepRounds = 15;
// A kernel's time, or its ratio to the best of its task, is known well enough once its median lies
// with 95 % within this share of it. Five samples or fewer have no such interval.
constexpr double kKnown = 0.02;
// A gain is confirmed by more: it is told to be as small as it may be.
constexpr double kConfirmedWithin = 0.005;
// Compared plans are known well enough once it is known whether one gains as much as it must gain
// to be taken (candidate_plans.cc).
constexpr double kLeastGain = 0.01;
constexpr int kLeastKnown = 6;
// Rounds of a size before those of the next: after each pass over the sizes a kernel may be seen to
// lose: it seems to gain too little on the best to be worth more rounds, or surely gains less than
// another. Few samples have no interval, and have to be worse by more.
constexpr int kFirstPass = 3, kPass = 3;
constexpr double kClearlySlower = 1.03, kTooLittle = 0.985;
// A call that takes so many times the best's is not made again.
constexpr double kHopeless = 2;
// Call data of all sizes that is kept between the first rounds and the others.
constexpr int64_t kMostHeld = int64_t{64} << 20;

constexpr absl::string_view kWhat = "a measured plan";

// Plain data written by the forked process.
struct Result {
  Median seconds;
  Median ratio;  // over the first plan's
  int layers = 1, turns = 1;
  int64_t calls = 1;
  double flops_per_second = 0;  // of the yardstick beside it; 0: there was none
};

// A plan in layers (layers.h), and its call data at the current size.
struct Subject {
  int layers = 1, steps = 0;  // steps of each layer
  std::vector<int> turns;     // by size
  std::optional<Arena> weights;
  std::unique_ptr<ScratchStates> states;
  std::optional<LayerCalls> run;
  // By size; made when the size is first measured.
  struct AtSize {
    std::shared_ptr<const CallMemory> memory;  // subjects with equal calls have one
    int64_t calls = 0;                         // of the last sample
    bool given_up = false;
    double took = 0;  // seconds of the host for a call, at first
    std::vector<double> samples;
  };
  std::vector<AtSize> sizes;
  bool lost = false;  // a race that it cannot win any more
};

class Measurement {
 public:
  Measurement(const internal::MeasureRequest& request, const MeasuredInputs& inputs,
              const IsolationLimits& limits, const TrafficReader& traffic,
              PacerView::Clock::time_point end)
      : request_(request),
        inputs_(inputs),
        limits_(limits),
        threads_(HostThreads(request.plans(0).plan().target(), request.threads())),
        view_(MakePacerView(&traffic)),
        end_(end),
        pacer_({.cores = UsableCores(), .threads = threads_, .end = end}, view_.get()),
        calls_(request.sizes_size(), 1),
        slowest_(request.sizes_size()) {}

  absl::StatusOr<internal::MeasureReply> Run();

 private:
  // Run in the isolated process.
  absl::Status RunAll(Device* device, Result* results);
  // Kernels of one task in turn, the first of which is its best; or one kernel alone. Some rounds
  // of each size after the other, until those that win are known well enough.
  absl::Status RunRace(std::vector<Subject>& subjects, Result* results);
  // Adds rounds of a size up to `most`, and for as long as they are needed.
  absl::Status RunPass(std::vector<Subject>& subjects, int size, int most);
  // Reports whether the size needs no further rounds.
  bool KnownAt(absl::Span<const Subject> subjects, int size) const;
  // Marks those that can no longer win. REQUIRES: samples of all sizes.
  void FindLosers(std::vector<Subject>& subjects) const;
  // Plans in turn.
  absl::Status RunSize(std::vector<Subject>& subjects, int size, Result* results);
  absl::StatusOr<Subject> Load(Device* device, PreparedPool* pool,
                               const internal::MeasuredPlan& plan);
  // `like`: what may have the same calls, and holds their memory.
  absl::Status Bind(int size, const Subject& like, Subject* s);
  // As Bind, and calls once where no sample counts it.
  absl::Status BindAgain(int size, const Subject& like, Subject* s);
  // Calls it for the first time, and sees to it that a sample has enough calls. Gives it up where a
  // call takes longer than `limit`; 0: none.
  absl::Status Begin(int size, double limit, const Subject& like, Subject* s);
  // As many rounds as the time allows, `least` of them in any case.
  int Rounds(absl::Span<const Subject> subjects, int size, const Patience& patience) const;
  // Reports whether further rounds would not change what a comparison comes to at this size.
  static bool Decided(absl::Span<const Subject> subjects, int size);
  // Compares a plan with the first one.
  static Median RatioTo(const Subject& first, const Subject& s, int size);
  static Result ResultOf(const Subject& s, int size);
  // Tells the seconds of a call, by the device's clock if it has one, and those of the host.
  absl::Status Sample(Subject& s, int size, int64_t* calls, double* seconds, double* took);
  // Drops the samples of all rounds after so many.
  static void Cut(int rounds, int size, std::vector<Subject>& subjects);
  // Adds a sample; ABORTED where there is no time for it.
  absl::Status AddSample(Subject& s, int size);
  double LimitAt(int size) const;
  // Gives the first kernel's time at the request's speed, and says at which it was measured.
  void TellSpeed(const Subject& first, int size, Result* result) const;
  // Measures the median time of each step of a run.
  absl::Status TimeSteps(Subject& s, int size, double* seconds);
  absl::Span<const int64_t> Dims(int size) const { return request_.sizes(size).values(); }

  const internal::MeasureRequest& request_;
  const MeasuredInputs& inputs_;
  const IsolationLimits limits_;
  const int threads_;
  const std::unique_ptr<PacerView> view_;
  const PacerView::Clock::time_point end_;
  Pacer pacer_;
  // Calls per sample, by size: alike for all plans, since the first of a sample takes longest. A
  // plan that made 3 seemed to take 0.8 of its own time with 2.
  std::vector<int64_t> calls_;
  std::vector<double> slowest_;  // the host's seconds of a call, by size
  // Shared with the isolated process: times of all plans' steps at the first size, then at the
  // next.
  double* step_seconds_ = nullptr;
  // Runs beside the first kernel's samples; null: the request has none. Seconds of its runs.
  Yardstick* yard_ = nullptr;
  std::vector<std::vector<double>> yard_seconds_;  // by size
  // By plan: index of its first step; the number of steps at the end.
  std::vector<int64_t> first_step_ = {0};
};

absl::Status Validate(const internal::MeasureRequest& request) {
  if (request.sizes().empty() || request.plans().empty()) {
    return absl::InvalidArgumentError("measure: no sizes, or no plans");
  }
  for (const internal::MeasuredPlan& plan : request.plans()) {
    if (plan.objects_size() != plan.plan().kernels_size()) {
      return absl::InvalidArgumentError(absl::StrCat("measure: ", plan.objects_size(),
                                                     " objects for ", plan.plan().kernels_size(),
                                                     " kernels"));
    }
    for (const internal::Sizes& sizes : request.sizes()) {
      if (sizes.values_size() == plan.plan().dims_size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("measure: ", sizes.values_size(),
                                                     " sizes for ", plan.plan().dims_size(),
                                                     " dims of the plan"));
    }
  }
  if (!request.yardstick().empty() && request.vector_bytes() <= 0) {
    return absl::InvalidArgumentError("measure: a yardstick of vectors of no bytes");
  }
  const int weights = request.size_weights_size();
  if (weights != 0 && weights != request.sizes_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("measure: ", weights, " weights for ", request.sizes_size(), " sizes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<internal::MeasureReply> Measurement::Run() {
  const size_t count = static_cast<size_t>(request_.plans_size()) * request_.sizes_size();
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create(count * sizeof(Result));
  if (!memory.ok()) return memory.status();
  Result* results = new (memory->data()) Result[count];
  for (const internal::MeasuredPlan& plan : request_.plans()) {
    first_step_.push_back(first_step_.back() + plan.plan().run_size());
  }
  const auto steps = static_cast<size_t>(first_step_.back()) * request_.sizes_size();
  absl::StatusOr<SharedMemory> step_memory =
      SharedMemory::Create(std::max<size_t>(1, steps) * sizeof(double));
  if (!step_memory.ok()) return step_memory.status();
  step_seconds_ = new (step_memory->data()) double[std::max<size_t>(1, steps)]();
  RETURN_IF_ERROR(RunWhereItIsSafe(kWhat, limits_, request_.plans(0).plan().target(), threads_,
                                   [&](Device* device) { return RunAll(device, results); }));
  internal::MeasureReply reply;
  for (int s = 0; s < request_.sizes_size(); ++s) {
    reply.set_f32_flops_per_second(
        std::max(reply.f32_flops_per_second(), results[s].flops_per_second));
  }
  for (int p = 0; p < request_.plans_size(); ++p) {
    internal::PlanTimes* times = reply.add_plans();
    for (int s = 0; s < request_.sizes_size(); ++s) {
      const Result& r = results[p * request_.sizes_size() + s];
      internal::SizeTimes* size = times->add_sizes();
      size->set_seconds(r.seconds.value);
      size->set_low(r.seconds.low);
      size->set_high(r.seconds.high);
      size->set_rounds(r.seconds.samples);
      size->set_calls(r.calls);
      size->set_ratio(r.ratio.value);
      size->set_ratio_low(r.ratio.low);
      size->set_ratio_high(r.ratio.high);
      size->set_layers(r.layers);
      size->set_turns(r.turns);
      const double* from = step_seconds_ + first_step_.back() * s;
      if (!request_.steps()) continue;
      size->mutable_step_seconds()->Assign(from + first_step_[p], from + first_step_[p + 1]);
    }
  }
  return reply;
}

absl::Status Measurement::RunAll(Device* device, Result* results) {
  std::optional<WalkedDevice> large;
  if (inputs_.walked() != nullptr && device->host_memory()) {
    large.emplace(device, inputs_.walked());
  }
  PreparedPool pool(device, nullptr, large.has_value() ? &*large : nullptr);
  std::vector<Subject> subjects;
  for (const internal::MeasuredPlan& plan : request_.plans()) {
    absl::StatusOr<Subject> loaded = Load(device, &pool, plan);
    if (!loaded.ok()) return loaded.status();
    subjects.push_back(*std::move(loaded));
  }
  absl::StatusOr<Yardstick> yard = absl::NotFoundError("");
  if (!request_.yardstick().empty()) {
    yard = Yardstick::Create(device, request_.yardstick(), request_.vector_bytes(), threads_);
    if (!yard.ok()) return yard.status();
    yard_ = &*yard;
  }
  if (request_.race()) return RunRace(subjects, results);
  for (int size = 0; size < request_.sizes_size(); ++size) {
    if (absl::Status s = RunSize(subjects, size, results); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> Measurement::Load(Device* device, PreparedPool* pool,
                                          const internal::MeasuredPlan& measured) {
  std::vector<absl::string_view> objects(measured.objects().begin(), measured.objects().end());
  std::vector<ParameterView> parameters;
  int64_t bytes = 0;
  const bool shared = AreShared(inputs_.turns());
  const size_t first = inputs_.names().size() - inputs_.parameters();
  for (size_t i = first; i < inputs_.names().size(); ++i) {
    const absl::string_view weight = inputs_.at(0, i);
    parameters.push_back({inputs_.names()[i], weight, nullptr,
                          shared ? WeightName(0, inputs_.turns()[i - first]) : ""});
    bytes += static_cast<int64_t>(weight.size());
  }
  std::vector<std::vector<int64_t>> sizes;
  for (const internal::Sizes& point : request_.sizes()) {
    sizes.emplace_back(point.values().begin(), point.values().end());
  }
  const auto& activations = request_.activation_bytes();
  absl::StatusOr<LayerCounts> counts =
      CountLayers(measured.plan(), bytes, sizes,
                  {request_.weight_bytes(), {activations.begin(), activations.end()}});
  if (!counts.ok()) return counts.status();
  Subject s;
  s.layers = counts->layers;
  s.turns = std::move(counts->turns);
  s.steps = measured.plan().run_size();
  const Layers model = InLayers(measured.plan(), s.layers);
  auto views = LayerParameters(model, std::move(parameters), &s.weights);
  if (!views.ok()) return views.status();
  auto loaded = Executable::Load(
      model.plan, objects, *views, device,
      {.pool = shared || inputs_.walked() != nullptr ? pool : nullptr, .timed = true});
  if (!loaded.ok()) return loaded.status();
  ASSIGN_OR_RETURN(s.states, ScratchStates::Create(model.plan, sizes, device));
  RETURN_IF_ERROR(s.states->FillAny([&](absl::string_view name) {
    const auto copy = std::find_if(model.states.begin(), model.states.end(),
                                   [&](const auto& c) { return c.first == name; });
    return inputs_.state(copy == model.states.end() ? name : absl::string_view(copy->second));
  }));
  auto context = (*loaded)->NewContext(s.states->memory());
  if (!context.ok()) return context.status();
  s.run.emplace(*std::move(loaded), *std::move(context), s.layers, device->host_memory());
  s.sizes.resize(request_.sizes_size());
  return s;
}

// Reports whether two plans are called with the same inputs and write as many outputs.
bool SameCalls(const Subject& a, const Subject& b, int size, absl::Span<const int64_t> dims) {
  const Executable &x = a.run->model(), &y = b.run->model();
  if (a.layers != b.layers || a.turns[size] != b.turns[size]) return false;
  if (x.inputs() != y.inputs() || x.outputs() != y.outputs()) return false;
  for (int i = 0; i < x.inputs(); ++i) {
    if (x.input_name(i) != y.input_name(i)) return false;
    if (x.input_bytes(i, dims) != y.input_bytes(i, dims)) return false;
  }
  for (int i = 0; i < x.outputs(); ++i) {
    if (x.output_bytes(i, dims) != y.output_bytes(i, dims)) return false;
  }
  return true;
}

absl::Status Measurement::Bind(int size, const Subject& like, Subject* s) {
  if (absl::Status fits = s->run->model().CheckDims(Dims(size)); !fits.ok()) return fits;
  const auto& held = like.sizes[size].memory;
  if (held != nullptr && SameCalls(like, *s, size, Dims(size))) {
    s->sizes[size].memory = held;
    return absl::OkStatus();
  }
  const std::vector<std::string>& names = inputs_.names();
  absl::StatusOr<CallMemory> memory =
      CallMemory::Create(s->run->model(), s->layers, s->turns[size], Dims(size),
                         [&](absl::string_view name) -> absl::StatusOr<absl::string_view> {
                           const auto found = std::find(names.begin(), names.end(), name);
                           if (found != names.end()) return inputs_.at(size, found - names.begin());
                           return absl::InvalidArgumentError(absl::StrCat(
                               "the plan's input \"", name, "\" is none of the graph's"));
                         });
  if (!memory.ok()) return memory.status();
  s->sizes[size].memory = std::make_shared<const CallMemory>(*std::move(memory));
  return absl::OkStatus();
}

absl::Status Measurement::Sample(Subject& s, int size, int64_t* calls, double* seconds,
                                 double* took) {
  const CallMemory& memory = *s.sizes[size].memory;
  absl::StatusOr<double> one = pacer_.Sample(
      calls, [&](int64_t n) { return s.run->Prepare(Dims(size), memory, n); },
      [&](int64_t n) { return s.run->Call(Dims(size), memory, n); });
  if (!one.ok()) return one.status();
  *took = *one;
  const std::optional<double> device = s.run->device_seconds();
  *seconds = device.has_value() ? *device / static_cast<double>(*calls) : *one;
  return absl::OkStatus();
}

absl::Status Measurement::AddSample(Subject& s, int size) {
  double seconds = 0, took = 0;
  absl::Status status = Sample(s, size, &calls_[size], &seconds, &took);
  if (!status.ok()) return status;
  s.sizes[size].samples.push_back(seconds);
  s.sizes[size].calls = calls_[size];
  return absl::OkStatus();
}

absl::Status Measurement::Begin(int size, double limit, const Subject& like, Subject* s) {
  if (absl::Status status = Bind(size, like, s); !status.ok()) return status;
  s->run->Restart();
  Subject::AtSize& at = s->sizes[size];
  // The first time for the costs of a first call, the second to estimate the time of a few, which
  // tell that of many. A long call costs about as much the first time.
  constexpr double kLong = 2e-3;
  int64_t calls = 1;
  double seconds = 0;
  for (int warm = 0; warm < 3 && at.took < kLong; ++warm) {
    if (absl::Status status = Sample(*s, size, &calls, &seconds, &at.took); !status.ok()) {
      return status;
    }
    if (warm > 0) {
      calls = std::clamp<int64_t>(static_cast<int64_t>(kSample / std::max(at.took, 1e-9)), 1, 1000);
    }
  }
  // Known until there are others: for how long a round will take, and where there is none.
  at.samples = {seconds};
  if (limit > 0 && seconds > limit) {
    double again = 0;
    if (absl::Status status = Sample(*s, size, &calls, &again, &at.took); !status.ok()) {
      return status;
    }
    at.given_up = again > limit;
    at.samples = {again};
    if (at.given_up) at.samples.push_back(seconds);
  }
  if (at.given_up) return absl::OkStatus();
  // As many as the fastest needs, within a slice of the slowest.
  slowest_[size] = std::max(slowest_[size], at.took);
  const auto most = static_cast<int64_t>(Pacer::kMaxSlice / std::max(slowest_[size], 1e-9));
  calls_[size] = std::max<int64_t>(1, std::min(std::max(calls_[size], calls), most));
  return absl::OkStatus();
}

int Measurement::Rounds(absl::Span<const Subject> subjects, int size,
                        const Patience& patience) const {
  double longest = 0;
  for (const Subject& s : subjects) {
    const Subject::AtSize& at = s.sizes[size];
    if (at.given_up) continue;
    const double last = at.samples.empty() ? kSample : at.took * static_cast<double>(calls_[size]);
    longest = std::max(longest, last);
  }
  // Plans to use at most half of the time left for each, since samples may be discarded.
  const auto parts = static_cast<double>(subjects.size()) * (request_.sizes_size() - size);
  const double left = std::chrono::duration<double>(end_ - view_->Now()).count() / parts / 2;
  return std::clamp(static_cast<int>(std::min(patience.seconds, left) / std::max(longest, 1e-9)),
                    patience.least, patience.most);
}

double Measurement::LimitAt(int size) const {
  return size < request_.give_up_seconds_size() ? request_.give_up_seconds(size) : 0;
}

bool Measurement::Decided(absl::Span<const Subject> subjects, int size) {
  return std::all_of(subjects.begin() + 1, subjects.end(), [&](const Subject& s) {
    return s.sizes[size].given_up || RatioIsKnown(RatioTo(subjects[0], s, size), 1 - kLeastGain);
  });
}

Median Measurement::RatioTo(const Subject& first, const Subject& s, int size) {
  const Subject::AtSize &to = first.sizes[size], &of = s.sizes[size];
  if (!to.given_up && !of.given_up) return PairedRatio(of.samples, to.samples);
  // The samples of a plan that was given up were not taken in turn with the other's.
  const Median b = MedianOf(to.samples), a = MedianOf(of.samples);
  return {a.value / b.value, a.low / b.high, a.high / b.low, std::min(a.samples, b.samples)};
}

Result Measurement::ResultOf(const Subject& s, int size) {
  const Subject::AtSize& at = s.sizes[size];
  return {MedianOf(at.samples), {}, s.layers, s.turns[size], at.calls};
}

absl::Status Measurement::BindAgain(int size, const Subject& like, Subject* s) {
  if (absl::Status status = Bind(size, like, s); !status.ok()) return status;
  double seconds = 0, took = 0;
  return Sample(*s, size, &calls_[size], &seconds, &took);
}

bool Measurement::KnownAt(absl::Span<const Subject> subjects, int size) const {
  const double known = request_.confirm() ? kConfirmedWithin : kKnown;
  const Subject::AtSize& first = subjects[0].sizes[size];
  if (first.samples.size() < kLeastKnown) return subjects.size() == 1 && first.given_up;
  if (subjects.size() == 1) return MedianOf(first.samples).KnownWithin(kKnown);
  return std::all_of(subjects.begin() + 1, subjects.end(), [&](const Subject& s) {
    return s.lost || s.sizes[size].given_up || RatioTo(subjects[0], s, size).KnownWithin(known);
  });
}

void Measurement::Cut(int rounds, int size, std::vector<Subject>& subjects) {
  for (Subject& s : subjects) {
    std::vector<double>& samples = s.sizes[size].samples;
    if (!s.sizes[size].given_up && std::ssize(samples) > rounds) samples.resize(rounds);
  }
}

// An error leaves as many samples of all as there were whole rounds.
absl::Status Measurement::RunPass(std::vector<Subject>& subjects, int size, int most) {
  const auto cut = [&](int rounds) {
    Cut(rounds, size, subjects);
    if (std::ssize(yard_seconds_[size]) > rounds) yard_seconds_[size].resize(rounds);
  };
  for (int round = static_cast<int>(subjects[0].sizes[size].samples.size());
       round < most && !KnownAt(subjects, size); ++round) {
    const int64_t calls = calls_[size];
    if (yard_ != nullptr) {
      int64_t once = 1;
      const absl::StatusOr<double> seconds =
          pacer_.Sample(&once, [&](int64_t) { return yard_->Run(); });
      if (!seconds.ok()) {
        cut(round);
        return seconds.status();
      }
      yard_seconds_[size].push_back(*seconds);
    }
    for (size_t p = 0; p < subjects.size(); ++p) {
      // Every other round goes backwards, so that none always runs after the same neighbour.
      Subject& s = subjects[round % 2 == 0 ? p : subjects.size() - 1 - p];
      if (s.lost || s.sizes[size].given_up) continue;
      if (absl::Status status = AddSample(s, size); !status.ok()) {
        cut(round);
        return status;
      }
    }
    // A request had one of them make fewer calls: not for the same round.
    if (calls_[size] < calls) cut(round--);
  }
  return absl::OkStatus();
}

// Compares the sums over the sizes, and their intervals, as shares of the best's time.
void Measurement::FindLosers(std::vector<Subject>& subjects) const {
  std::vector<std::vector<Median>> times(subjects.size());
  double best = 0;
  for (int size = 0; size < request_.sizes_size(); ++size) {
    const double weight = request_.size_weights().empty() ? 1 : request_.size_weights(size);
    const double time = weight * MedianOf(subjects[0].sizes[size].samples).value;
    best += time;
    for (size_t p = 1; p < subjects.size(); ++p) {
      times[p].push_back(Scaled(RatioTo(subjects[0], subjects[p], size), time));
    }
  }
  std::vector<Median> sums;
  double least = best;  // that the fastest surely keeps within
  for (size_t p = 0; p < subjects.size(); ++p) {
    sums.push_back(SumOf(times[p]));
    if (sums[p].samples >= kLeastKnown) least = std::min(least, sums[p].high);
  }
  for (size_t p = 1; p < subjects.size(); ++p) {
    if (sums[p].samples < kLeastKnown) {
      subjects[p].lost |= sums[p].low > kClearlySlower * least;
    } else if (request_.confirm()) {
      subjects[p].lost |= sums[p].low > (1 - kLeastGain) * best;
    } else {
      subjects[p].lost |= sums[p].value > kTooLittle * best || sums[p].low > least;
    }
  }
}

void Measurement::TellSpeed(const Subject& first, int size, Result* result) const {
  // Few samples were taken of one that was given up, and none beside the yardstick.
  if (yard_ == nullptr || first.sizes[size].given_up || yard_seconds_[size].empty()) return;
  result->flops_per_second = yard_->flops() / MedianOf(yard_seconds_[size]).value;
  if (request_.f32_flops_per_second() <= 0) return;
  const double then = yard_->flops() / request_.f32_flops_per_second();
  const Median share = PairedRatio(first.sizes[size].samples, yard_seconds_[size]);
  result->seconds = {share.value * then, share.low * then, share.high * then, share.samples};
}

absl::Status Measurement::RunRace(std::vector<Subject>& subjects, Result* results) {
  const int sizes = request_.sizes_size();
  yard_seconds_.resize(sizes);
  Subject& first = subjects[0];
  const bool alone = subjects.size() == 1;
  const Patience& patience = alone ? kAlone : request_.confirm() ? kConfirmed : kRaced;
  std::vector<int> rounds;
  int64_t held = 0;
  const auto release = [&](int size) {
    for (Subject& s : subjects) s.sizes[size].memory.reset();
  };
  for (int size = 0; size < sizes; ++size) {
    for (Subject& s : subjects) {
      const double limit =
          &s == &first ? LimitAt(size) : kHopeless * first.sizes[size].samples.back();
      if (absl::Status status = Begin(size, limit, first, &s); !status.ok()) return status;
    }
    rounds.push_back(Rounds(subjects, size, patience));
    for (Subject& s : subjects) {
      if (!s.sizes[size].given_up) s.sizes[size].samples.clear();
    }
    if (absl::Status status = RunPass(subjects, size, kFirstPass); !status.ok()) return status;
    held += first.sizes[size].memory->bytes();
    if (held > kMostHeld) release(size);
  }
  FindLosers(subjects);
  // Large call data is not held for all sizes at once: one pass has all rounds then.
  const bool large = held > kMostHeld;
  const auto next = [&](int most) {
    if (large) return patience.most;
    // Each look may find a loser by chance: the more rounds there may be, the fewer looks.
    return std::min(request_.confirm() ? 2 * most : most + kPass, patience.most);
  };
  // A first kernel that was given up takes no further turns, so the others need none.
  const bool given_up = std::any_of(first.sizes.begin(), first.sizes.end(),
                                    [](const Subject::AtSize& at) { return at.given_up; });
  const auto over = [&] {
    return !alone && (given_up || std::all_of(subjects.begin() + 1, subjects.end(),
                                              [](const Subject& s) { return s.lost; }));
  };
  for (int most = kFirstPass; most < patience.most && !over();) {
    most = next(most);
    for (int size = 0; size < sizes; ++size) {
      const int upto = std::min(most, rounds[size]);
      if (static_cast<int>(first.sizes[size].samples.size()) >= upto || KnownAt(subjects, size)) {
        continue;
      }
      for (Subject& s : subjects) {
        if (s.lost || s.sizes[size].given_up || s.sizes[size].memory != nullptr) continue;
        if (absl::Status status = BindAgain(size, first, &s); !status.ok()) return status;
      }
      const absl::Status status = RunPass(subjects, size, upto);
      const auto samples = static_cast<int>(first.sizes[size].samples.size());
      // The samples so far must do where there is no time for more.
      if (!status.ok() && !(absl::IsAborted(status) && samples >= patience.least)) return status;
      if (large) release(size);
    }
    FindLosers(subjects);
  }
  for (size_t p = 0; p < subjects.size(); ++p) {
    for (int size = 0; size < sizes; ++size) {
      Result& result = results[p * sizes + size];
      result = ResultOf(subjects[p], size);
      if (p > 0) result.ratio = RatioTo(first, subjects[p], size);
      if (p == 0) TellSpeed(first, size, &result);
    }
  }
  return absl::OkStatus();
}

absl::Status Measurement::RunSize(std::vector<Subject>& subjects, int size, Result* results) {
  for (Subject& s : subjects) {
    if (absl::Status status = Begin(size, LimitAt(size), s, &s); !status.ok()) return status;
  }
  const Patience& patience = subjects.size() > 1 ? kCompared : kAlone;
  int rounds = Rounds(subjects, size, patience);
  // Each look at equal plans may end the comparison on the wrong side by chance, after six rounds
  // once in 64 times. So there is one only whenever the rounds have doubled; median_test.cc has the
  // shares of wrong ends.
  int look = kLeastKnown / 2;
  for (Subject& s : subjects) {
    // In turn from the first sample on.
    if (!s.sizes[size].given_up) s.sizes[size].samples.clear();
  }
  for (int round = 0; round < rounds; ++round) {
    const int64_t calls = calls_[size];
    for (size_t p = 0; p < subjects.size(); ++p) {
      // Every other round goes backwards, so that no plan always runs after the same neighbour.
      Subject& s = subjects[round % 2 == 0 ? p : subjects.size() - 1 - p];
      if (s.sizes[size].given_up) continue;
      const absl::Status status = AddSample(s, size);
      if (status.ok()) continue;
      if (!absl::IsAborted(status) || round < patience.least) return status;
      rounds = round;  // the samples so far must do
    }
    if (calls_[size] < calls && round < rounds) {  // a request had one make fewer calls
      Cut(round--, size, subjects);
      continue;
    }
    if (subjects.size() == 1 || round + 1 != look) continue;
    if (Decided(subjects, size)) break;
    look *= 2;
  }
  for (size_t p = 0; p < subjects.size(); ++p) {
    Subject& s = subjects[p];
    Subject::AtSize& at = s.sizes[size];
    Result& result = results[p * request_.sizes_size() + size];
    result = ResultOf(s, size);
    if (p > 0) result.ratio = RatioTo(subjects[0], s, size);
    double* steps = step_seconds_ + first_step_.back() * size + first_step_[p];
    if (request_.steps() && !at.given_up) {
      if (absl::Status status = TimeSteps(s, size, steps); !status.ok()) return status;
    }
    at.memory.reset();
  }
  return absl::OkStatus();
}

absl::Status Measurement::TimeSteps(Subject& s, int size, double* seconds) {
  const CallMemory& memory = *s.sizes[size].memory;
  std::vector<std::vector<double>> samples(s.steps);
  const Executable& model = s.run->model();
  std::vector<int64_t> nanoseconds(model.steps());
  const RunOptions options{
      .step_nanoseconds = absl::MakeSpan(nanoseconds), .steps = s.steps, .resident = true};
  if (absl::Status ready = model.Record(s.run->context(), options); !ready.ok()) return ready;
  for (int round = 0; round < kStepRounds; ++round) {
    int64_t calls = 1;
    absl::StatusOr<double> sample = pacer_.Sample(&calls, [&](int64_t) {
      return model.Run(s.run->context(), Dims(size), memory.inputs(), memory.outputs(), options);
    });
    if (!sample.ok()) return sample.status();
    for (int i = 0; i < s.steps; ++i)
      samples[i].push_back(1e-9 * static_cast<double>(nanoseconds[i]));
  }
  for (int i = 0; i < s.steps; ++i) seconds[i] = MedianOf(std::move(samples[i])).value;
  return absl::OkStatus();
}

// Has the device worker measure. What it says is held against the request.
absl::StatusOr<internal::MeasureReply> MeasureInWorker(const internal::MeasureRequest& request,
                                                       const IsolationLimits& limits,
                                                       PacerView::Clock::time_point end) {
  internal::WorkerJob job;
  *job.mutable_measure()->mutable_request() = request;
  job.mutable_measure()->set_end_us(end.time_since_epoch() / std::chrono::microseconds(1));
  ASSIGN_OR_RETURN(internal::WorkerReply reply, limits.worker->Run(kWhat, limits, &job));
  bool fits = reply.measure().plans_size() == request.plans_size();
  for (int p = 0; fits && p < request.plans_size(); ++p) {
    const internal::PlanTimes& plan = reply.measure().plans(p);
    const int steps = request.steps() ? request.plans(p).plan().run_size() : 0;
    fits = plan.sizes_size() == request.sizes_size() &&
           absl::c_all_of(plan.sizes(), [&](const internal::SizeTimes& size) {
             return IsTime(size) && size.step_seconds_size() == steps;
           });
  }
  if (fits) return std::move(*reply.mutable_measure());
  return absl::InternalError(absl::StrCat(kWhat, ": the device worker's times do not fit"));
}

}  // namespace

absl::StatusOr<internal::MeasureReply> MeasurePlans(const internal::MeasureRequest& request,
                                                    const IsolationLimits& limits,
                                                    const TrafficReader& traffic,
                                                    InputMemory* memory,
                                                    std::chrono::steady_clock::time_point end,
                                                    absl::FunctionRef<void()> drawn) {
  if (absl::Status s = Validate(request); !s.ok()) return s;
  if (limits.worker != nullptr) return MeasureInWorker(request, limits, end);
  absl::StatusOr<std::shared_ptr<const MeasuredInputs>> inputs = memory->For(request);
  if (!inputs.ok()) return inputs.status();
  drawn();
  return Measurement(request, **inputs, limits, traffic, end).Run();
}

}  // namespace athanor
