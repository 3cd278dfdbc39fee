#include "server/tuner/measure/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/ir/graph/graph.h"
#include "runtime/cpu/device.h"
#include "runtime/executor.h"
#include "runtime/prepared_pool.h"
#include "server/tuner/measure/layers.h"
#include "server/tuner/measure/pacer.h"
#include "server/tuner/measure/walked_memory.h"
#include "server/tuner/run/inputs.h"
#include "server/tuner/run/weight_turns.h"

namespace athanor {
namespace {

constexpr double kSample = 300e-6;  // seconds of one sample
static_assert(kSample <= Pacer::kMaxSlice);
// Target time, and least and most rounds, for one plan at one size. A comparison decides which of
// two plans serves by one per cent, and comparisons are few.
struct Patience {
  double seconds;
  int least, most;
};
constexpr Patience kAlone{40e-3, 5, 31}, kCompared{300e-3, 15, 301};
constexpr int kStepRounds = 15;

// Plain data written by the forked process.
struct Result {
  double seconds = 0, low = 0, high = 0;
  int rounds = 0;
  int layers = 1, turns = 1;
};

// A plan in layers (layers.h), and its call data at the current size.
struct Subject {
  int layers = 1, steps = 0;  // steps of each layer
  std::vector<int> turns;     // by size
  std::optional<Arena> weights;
  std::shared_ptr<const Executable> model;
  std::unique_ptr<Executable::Context> context;
  std::optional<CallMemory> memory;
  int next = 0;       // next layer to call
  int64_t calls = 1;  // calls per sample
  bool given_up = false;
  std::vector<double> samples;
};

// A tensor too large to hold is not timed: caches and pages would differ from a server's.
constexpr int64_t kMaxBytes = int64_t{1} << 30;
// A weight of at least this many bytes that is only prepared takes a few MB (repeated_bytes.h).
constexpr int64_t kLeastRepeated = int64_t{16} << 20;
// Weights with more distinct bytes are mapped over less memory (walked_memory.h).
constexpr int64_t kMostHeld = 2 * static_cast<int64_t>(WalkedMemory::kBytes);

int64_t BytesOf(const DrawnInput& input) {
  int64_t bytes = DTypeBytes(input.drawn.dtype);
  for (int64_t extent : input.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return kMaxBytes + 1;
  }
  return bytes;
}

// Returns the whole tensor, repeating the drawn elements.
absl::StatusOr<std::string> Repeated(const DrawnInput& input) {
  const int64_t bytes = BytesOf(input);
  if (bytes > kMaxBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("measure: a tensor of more than ", kMaxBytes, " bytes"));
  }
  std::string whole;
  whole.reserve(bytes);
  while (static_cast<int64_t>(whole.size()) < bytes) {
    whole.append(input.drawn.bytes, 0, bytes - whole.size());
  }
  return whole;
}

class Measurement {
 public:
  Measurement(const internal::MeasureRequest& request, const IsolationLimits& limits,
              const TrafficReader& traffic, PacerView::Clock::time_point end)
      : request_(request),
        limits_(limits),
        threads_(std::max(1, request.threads())),
        view_(MakePacerView(&traffic)),
        end_(end),
        pacer_({.cores = UsableCores(), .threads = threads_, .end = end}, view_.get()) {}

  absl::StatusOr<internal::MeasureReply> Run();

 private:
  absl::Status Validate();
  absl::Status DrawSize(int size);
  absl::Status HoldWhole(const DrawnInput& input, absl::string_view* view);
  // Holds a parameter; `read`: steps of a run read it in place.
  absl::Status Hold(const DrawnInput& input, bool read, absl::string_view* view);
  // Creates walked memory for weights that are too large to be held, if their dtype permits it.
  absl::Status ChooseWalked(absl::Span<const DrawnInput> parameters);
  // Reports whether a run of any of the plans reads the parameter in place.
  bool RunsRead(const std::string& parameter) const;
  // Run in the isolated process.
  absl::Status RunAll(Result* results);
  absl::Status RunSize(std::vector<Subject>& subjects, int size, Result* results);
  absl::StatusOr<Subject> Load(Device* device, PreparedPool* pool,
                               const internal::MeasuredPlan& plan);
  absl::Status Bind(int size, absl::Span<const int64_t> dims, Subject* s);
  absl::Status Call(Subject& s, absl::Span<const int64_t> dims, int64_t calls);
  absl::Status Sample(Subject& s, absl::Span<const int64_t> dims, double* seconds);
  // Measures the median time of each step of a run.
  absl::Status TimeSteps(Subject& s, absl::Span<const int64_t> dims, double* seconds);
  static Result Summary(std::vector<double> samples);

  const internal::MeasureRequest& request_;
  const IsolationLimits limits_;
  const int threads_;
  const std::unique_ptr<PacerView> view_;
  const PacerView::Clock::time_point end_;
  Pacer pacer_;
  Graph graph_;
  std::vector<std::string> input_names_;  // inputs, then parameters
  size_t parameters_ = 0;
  std::vector<int> turns_;  // by parameter (WeightTurns)
  std::deque<std::string> whole_;
  std::deque<RepeatedBytes> repeated_;
  std::unique_ptr<WalkedMemory> walked_;  // null: not needed
  std::optional<DType> walked_dtype_;     // dtype of parameters that may lie in walked_
  // By size, in the order of the names; parameters are the same at every size and held once.
  std::vector<std::vector<absl::string_view>> inputs_;
  // Shared with the isolated process: times of all plans' steps at the first size, then at the
  // next.
  double* step_seconds_ = nullptr;
  // By plan: index of its first step; the number of steps at the end.
  std::vector<int64_t> first_step_ = {0};
};

absl::Status Measurement::Validate() {
  absl::StatusOr<Graph> graph = ParseGraph(request_.graph_text(), AcceptedLimits());
  if (!graph.ok()) return graph.status();
  if (absl::Status s = Verify(*graph, AcceptedLimits()); !s.ok()) return s;
  graph_ = *std::move(graph);
  for (NodeId id : graph_.InputIds()) input_names_.push_back(graph_.node(id).name);
  for (NodeId id : graph_.ParameterIds()) input_names_.push_back(graph_.node(id).name);
  parameters_ = graph_.ParameterIds().size();
  turns_ = WeightTurns(graph_, kMostWeightBytes);
  if (request_.sizes().empty() || request_.plans().empty()) {
    return absl::InvalidArgumentError("measure: no sizes, or no plans");
  }
  for (const internal::MeasuredPlan& plan : request_.plans()) {
    if (plan.objects_size() != plan.plan().kernels_size()) {
      return absl::InvalidArgumentError(absl::StrCat("measure: ", plan.objects_size(),
                                                     " objects for ", plan.plan().kernels_size(),
                                                     " kernels"));
    }
    for (const internal::Sizes& sizes : request_.sizes()) {
      if (sizes.values_size() == plan.plan().dims_size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("measure: ", sizes.values_size(),
                                                     " sizes for ", plan.plan().dims_size(),
                                                     " dims of the plan"));
    }
  }
  return absl::OkStatus();
}

bool Measurement::RunsRead(const std::string& parameter) const {
  for (const internal::MeasuredPlan& measured : request_.plans()) {
    const v1::Plan& plan = measured.plan();
    for (const v1::Step& step : plan.run()) {
      for (uint32_t b : step.buffers()) {
        const v1::Buffer& buffer = plan.buffers(static_cast<int>(b));
        if (buffer.kind() == v1::Buffer::PARAMETER && buffer.name() == parameter) return true;
      }
    }
  }
  return false;
}

absl::Status Measurement::ChooseWalked(absl::Span<const DrawnInput> parameters) {
  int64_t held = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (turns_[i] == static_cast<int>(i)) held += BytesOf(parameters[i]);
  }
  if (held <= kMostHeld) return absl::OkStatus();
  std::vector<const v1::Plan*> plans;
  for (const internal::MeasuredPlan& plan : request_.plans()) plans.push_back(&plan.plan());
  const std::optional<std::string> dtype = WalkedDType(plans);
  if (!dtype.has_value()) return absl::OkStatus();
  const DrawnInput* largest = nullptr;
  for (const DrawnInput& p : parameters) {
    if (!IsFloat(p.drawn.dtype) || (!dtype->empty() && DTypeName(p.drawn.dtype) != *dtype))
      continue;
    if (largest == nullptr || BytesOf(p) > BytesOf(*largest)) largest = &p;
  }
  auto made = WalkedMemory::Create(largest == nullptr ? "" : largest->drawn.bytes);
  if (!made.ok()) return made.status();
  walked_ = *std::move(made);
  if (largest != nullptr) walked_dtype_ = largest->drawn.dtype;
  return absl::OkStatus();
}

absl::Status Measurement::HoldWhole(const DrawnInput& input, absl::string_view* view) {
  absl::StatusOr<std::string> held = Repeated(input);
  if (held.ok()) *view = whole_.emplace_back(*std::move(held));
  return held.status();
}

absl::Status Measurement::Hold(const DrawnInput& input, bool read, absl::string_view* view) {
  const int64_t bytes = BytesOf(input);
  if (read && bytes >= kLeastRepeated && walked_dtype_ == input.drawn.dtype) {
    absl::StatusOr<char*> range = walked_->Map(static_cast<size_t>(bytes));
    if (!range.ok()) return range.status();
    *view = {*range, static_cast<size_t>(bytes)};
    return absl::OkStatus();
  }
  if (read || bytes < kLeastRepeated) return HoldWhole(input, view);
  absl::StatusOr<RepeatedBytes> held = RepeatedInput(input);
  if (!held.ok()) return held.status();
  *view = repeated_.emplace_back(*std::move(held)).view();
  return absl::OkStatus();
}

absl::Status Measurement::DrawSize(int size) {
  const v1::Plan& plan = request_.plans(0).plan();
  Expr::Env env;
  for (int d = 0; d < plan.dims_size(); ++d) {
    env[plan.dims(d).name()] = request_.sizes(size).values(d);
  }
  // Indices computed from small inputs are the most likely to be in range.
  absl::StatusOr<std::vector<DrawnInput>> drawn =
      DrawInputs(graph_, env, request_.seed() + static_cast<uint64_t>(size), IndexChoice::kSmall);
  if (!drawn.ok()) return drawn.status();
  const size_t first = drawn->size() - parameters_;
  if (size == 0) {
    absl::Status s = ChooseWalked(absl::MakeConstSpan(*drawn).subspan(first));
    if (!s.ok()) return s;
  }
  std::vector<absl::string_view>& inputs = inputs_.emplace_back();
  for (size_t n = 0; n < drawn->size(); ++n) {
    const bool parameter = n >= first;
    if (size > 0 && parameter) {
      inputs.push_back(inputs_[0][n]);
      continue;
    }
    const size_t turn = parameter ? first + turns_[n - first] : n;
    if (turn != n) {
      inputs.push_back(inputs[turn]);
      continue;
    }
    absl::Status s = parameter
                         ? Hold((*drawn)[n], RunsRead(input_names_[n]), &inputs.emplace_back())
                         : HoldWhole((*drawn)[n], &inputs.emplace_back());
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<internal::MeasureReply> Measurement::Run() {
  if (absl::Status s = Validate(); !s.ok()) return s;
  for (int i = 0; i < request_.sizes_size(); ++i) {
    if (absl::Status s = DrawSize(i); !s.ok()) return s;
  }
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
  const auto run = [&] { return RunAll(results); };
  if (absl::Status s = RunIsolated("a measured plan", limits_, run); !s.ok()) return s;
  internal::MeasureReply reply;
  for (int p = 0; p < request_.plans_size(); ++p) {
    internal::PlanTimes* times = reply.add_plans();
    for (int s = 0; s < request_.sizes_size(); ++s) {
      const Result& r = results[p * request_.sizes_size() + s];
      internal::SizeTimes* size = times->add_sizes();
      size->set_seconds(r.seconds);
      size->set_low(r.low);
      size->set_high(r.high);
      size->set_rounds(r.rounds);
      size->set_layers(r.layers);
      size->set_turns(r.turns);
      const double* from = step_seconds_ + first_step_.back() * s;
      if (!request_.steps()) continue;
      size->mutable_step_seconds()->Assign(from + first_step_[p], from + first_step_[p + 1]);
    }
  }
  return reply;
}

absl::Status Measurement::RunAll(Result* results) {
  absl::StatusOr<std::unique_ptr<CpuDevice>> device =
      CpuDevice::Create({.threads = threads_, .pin = false});
  if (!device.ok()) return device.status();
  std::optional<WalkedDevice> large;
  if (walked_ != nullptr) large.emplace(device->get(), walked_.get());
  PreparedPool pool(device->get(), nullptr, large.has_value() ? &*large : nullptr);
  std::vector<Subject> subjects;
  for (const internal::MeasuredPlan& plan : request_.plans()) {
    absl::StatusOr<Subject> loaded = Load(device->get(), &pool, plan);
    if (!loaded.ok()) return loaded.status();
    subjects.push_back(*std::move(loaded));
  }
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
  const bool shared = AreShared(turns_);
  const size_t first = input_names_.size() - parameters_;
  for (size_t i = first; i < input_names_.size(); ++i) {
    parameters.push_back(
        {input_names_[i], inputs_[0][i], nullptr, shared ? WeightName(0, turns_[i - first]) : ""});
    bytes += static_cast<int64_t>(inputs_[0][i].size());
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
  auto loaded = Executable::Load(model.plan, objects, *views, device,
                                 {.pool = shared || walked_ != nullptr ? pool : nullptr});
  if (!loaded.ok()) return loaded.status();
  s.model = *std::move(loaded);
  auto context = s.model->NewContext();
  if (!context.ok()) return context.status();
  s.context = *std::move(context);
  return s;
}

absl::Status Measurement::Bind(int size, absl::Span<const int64_t> dims, Subject* s) {
  s->samples.clear();
  s->next = 0;
  s->calls = 1;
  s->given_up = false;
  absl::StatusOr<CallMemory> memory =
      CallMemory::Create(*s->model, s->layers, s->turns[size], dims,
                         [&](absl::string_view name) -> absl::StatusOr<absl::string_view> {
                           auto found = std::find(input_names_.begin(), input_names_.end(), name);
                           if (found != input_names_.end())
                             return inputs_[size][found - input_names_.begin()];
                           return absl::InvalidArgumentError(absl::StrCat(
                               "the plan's input \"", name, "\" is none of the graph's"));
                         });
  if (!memory.ok()) return memory.status();
  s->memory = *std::move(memory);
  return absl::OkStatus();
}

// Calls layer after layer, as many in one run as there are, so that the fixed cost of a run is
// shared as in a model.
absl::Status Measurement::Call(Subject& s, absl::Span<const int64_t> dims, int64_t calls) {
  while (calls > 0) {
    const int layers = static_cast<int>(std::min<int64_t>(calls, s.layers - s.next));
    RunOptions options;
    options.first_step = s.next * s.steps;
    options.steps = layers * s.steps;
    absl::Status status =
        s.model->Run(s.context.get(), dims, s.memory->inputs(), s.memory->outputs(), options);
    if (!status.ok()) return status;
    s.next = (s.next + layers) % s.layers;
    calls -= layers;
  }
  return absl::OkStatus();
}

absl::Status Measurement::Sample(Subject& s, absl::Span<const int64_t> dims, double* seconds) {
  absl::StatusOr<double> one =
      pacer_.Sample(&s.calls, [&](int64_t calls) { return Call(s, dims, calls); });
  if (one.ok()) *seconds = *one;
  return one.status();
}

absl::Status Measurement::RunSize(std::vector<Subject>& subjects, int size, Result* results) {
  const auto& values = request_.sizes(size).values();
  const absl::Span<const int64_t> dims(values.data(), static_cast<size_t>(values.size()));
  double longest = 0;
  for (Subject& s : subjects) {
    if (absl::Status status = Bind(size, dims, &s); !status.ok()) return status;
    // The first time for the costs of a first call, the second to estimate the time.
    double seconds = 0;
    for (int warm = 0; warm < 2; ++warm) {
      if (absl::Status status = Sample(s, dims, &seconds); !status.ok()) return status;
    }
    s.calls = std::clamp<int64_t>(static_cast<int64_t>(kSample / std::max(seconds, 1e-9)), 1, 1000);
    const double limit =
        size < request_.give_up_seconds_size() ? request_.give_up_seconds(size) : 0;
    if (limit > 0 && seconds > limit) {
      double again = 0;
      if (absl::Status status = Sample(s, dims, &again); !status.ok()) return status;
      s.given_up = again > limit;
      s.samples = {seconds, again};
    }
    longest = std::max(longest, seconds * static_cast<double>(s.calls));
  }
  const Patience& patience = subjects.size() > 1 ? kCompared : kAlone;
  // Plans to use at most half of the time left for each, since samples may be discarded.
  const auto parts = static_cast<double>(subjects.size()) * (request_.sizes_size() - size);
  const double left = std::chrono::duration<double>(end_ - view_->Now()).count() / parts / 2;
  int rounds =
      std::clamp(static_cast<int>(std::min(patience.seconds, left) / std::max(longest, 1e-9)),
                 patience.least, patience.most);
  for (int round = 0; round < rounds; ++round) {
    for (size_t p = 0; p < subjects.size(); ++p) {
      // Every other round goes backwards, so that no plan always runs after the same neighbour.
      Subject& s = subjects[round % 2 == 0 ? p : subjects.size() - 1 - p];
      if (s.given_up) continue;
      const absl::Status status = Sample(s, dims, &s.samples.emplace_back());
      if (status.ok()) continue;
      s.samples.pop_back();
      if (!absl::IsAborted(status) || round < patience.least) return status;
      rounds = round;  // the samples so far must do
    }
  }
  for (size_t p = 0; p < subjects.size(); ++p) {
    Result& result = results[p * request_.sizes_size() + size];
    result = Summary(std::move(subjects[p].samples));
    result.layers = subjects[p].layers;
    result.turns = subjects[p].turns[size];
    if (!request_.steps() || subjects[p].given_up) continue;
    double* steps = step_seconds_ + first_step_.back() * size + first_step_[p];
    if (absl::Status status = TimeSteps(subjects[p], dims, steps); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Measurement::TimeSteps(Subject& s, absl::Span<const int64_t> dims, double* seconds) {
  std::vector<std::vector<double>> samples(s.steps);
  std::vector<int64_t> nanoseconds(s.model->steps());
  RunOptions options;
  options.step_nanoseconds = absl::MakeSpan(nanoseconds);
  options.steps = s.steps;
  for (int round = 0; round < kStepRounds; ++round) {
    int64_t calls = 1;
    absl::StatusOr<double> sample = pacer_.Sample(&calls, [&](int64_t) {
      return s.model->Run(s.context.get(), dims, s.memory->inputs(), s.memory->outputs(), options);
    });
    if (!sample.ok()) return sample.status();
    for (int i = 0; i < s.steps; ++i)
      samples[i].push_back(1e-9 * static_cast<double>(nanoseconds[i]));
  }
  for (int i = 0; i < s.steps; ++i) seconds[i] = Summary(std::move(samples[i])).seconds;
  return absl::OkStatus();
}

// Computes the 95 % confidence interval of the median, whatever the distribution: ranks of the
// binomial by its normal approximation (Le Boudec, Performance Evaluation of Computer and
// Communication Systems, 2010, table A.1 and its formula).
Result Measurement::Summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double half = 0.5 * static_cast<double>(n), off = 0.98 * std::sqrt(static_cast<double>(n));
  const size_t low = half - off < 1 ? 0 : static_cast<size_t>(half - off) - 1;
  return {samples[n / 2], samples[low], samples[n - 1 - low], static_cast<int>(n)};
}

}  // namespace

absl::StatusOr<internal::MeasureReply> MeasurePlans(const internal::MeasureRequest& request,
                                                    const IsolationLimits& limits,
                                                    const TrafficReader& traffic,
                                                    std::chrono::steady_clock::time_point end) {
  return Measurement(request, limits, traffic, end).Run();
}

}  // namespace athanor
