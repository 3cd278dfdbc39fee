#include "server/tuner/measure/measured_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "server/tuner/run/weight_turns.h"

namespace athanor {
namespace {

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

// Returns the parameters that a run of any of the plans reads where they lie.
std::set<std::string> ReadByRuns(const internal::MeasureRequest& request) {
  std::set<std::string> read;
  for (const internal::MeasuredPlan& measured : request.plans()) {
    const v1::Plan& plan = measured.plan();
    for (const v1::Step& step : plan.run()) {
      for (uint32_t b : step.buffers()) {
        const v1::Buffer& buffer = plan.buffers(static_cast<int>(b));
        if (buffer.kind() == v1::Buffer::PARAMETER) read.insert(buffer.name());
      }
    }
  }
  return read;
}

// Returns everything that inputs depend on: the plan only by its dims and the parameters that runs
// read, because weights that may lie in walked memory are not remembered.
std::string KeyOf(const internal::MeasureRequest& request) {
  internal::MeasureRequest key;
  key.set_graph_text(request.graph_text());
  *key.mutable_sizes() = request.sizes();
  key.set_seed(request.seed());
  v1::Plan* plan = key.add_plans()->mutable_plan();
  for (const v1::DimRange& dim : request.plans(0).plan().dims()) {
    plan->add_dims()->set_name(dim.name());
  }
  for (const std::string& parameter : ReadByRuns(request)) plan->add_buffers()->set_name(parameter);
  return key.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MeasuredInputs>> MeasuredInputs::Draw(
    const internal::MeasureRequest& request) {
  const std::shared_ptr<MeasuredInputs> inputs(new MeasuredInputs);
  if (absl::Status s = inputs->ReadGraph(request); !s.ok()) return s;
  for (int i = 0; i < request.sizes_size(); ++i) {
    if (absl::Status s = inputs->DrawSize(request, i); !s.ok()) return s;
  }
  return inputs;
}

absl::Status MeasuredInputs::ReadGraph(const internal::MeasureRequest& request) {
  absl::StatusOr<Graph> graph = ParseGraph(request.graph_text(), AcceptedLimits());
  if (!graph.ok()) return graph.status();
  if (absl::Status s = Verify(*graph, AcceptedLimits()); !s.ok()) return s;
  graph_ = *std::move(graph);
  for (NodeId id : graph_.InputIds()) names_.push_back(graph_.node(id).name);
  for (NodeId id : graph_.ParameterIds()) names_.push_back(graph_.node(id).name);
  parameters_ = graph_.ParameterIds().size();
  turns_ = WeightTurns(graph_, kMostWeightBytes);
  return absl::OkStatus();
}

absl::Status MeasuredInputs::ChooseWalked(const internal::MeasureRequest& request,
                                          absl::Span<const DrawnInput> parameters) {
  int64_t held = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (turns_[i] == static_cast<int>(i)) held += BytesOf(parameters[i]);
  }
  large_ = held > kMostHeld;
  if (!large_) return absl::OkStatus();
  std::vector<const v1::Plan*> plans;
  for (const internal::MeasuredPlan& plan : request.plans()) plans.push_back(&plan.plan());
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

absl::Status MeasuredInputs::HoldWhole(const DrawnInput& input, absl::string_view* view) {
  absl::StatusOr<std::string> held = Repeated(input);
  if (held.ok()) *view = whole_.emplace_back(*std::move(held));
  return held.status();
}

absl::Status MeasuredInputs::Hold(const DrawnInput& input, bool read, absl::string_view* view) {
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

absl::Status MeasuredInputs::DrawSize(const internal::MeasureRequest& request, int size) {
  const v1::Plan& plan = request.plans(0).plan();
  Expr::Env env;
  for (int d = 0; d < plan.dims_size(); ++d) {
    env[plan.dims(d).name()] = request.sizes(size).values(d);
  }
  // Indices computed from small inputs are the most likely to be in range.
  absl::StatusOr<std::vector<DrawnInput>> drawn =
      DrawInputs(graph_, env, request.seed() + static_cast<uint64_t>(size),
                 DrawOptions{.choice = IndexChoice::kSmall, .full_contexts = true});
  if (!drawn.ok()) return drawn.status();
  const std::vector<NodeId> states = graph_.StateIds();
  for (size_t i = 0; i < states.size(); ++i) {
    std::string& bytes = (*drawn)[names_.size() + i].drawn.bytes;
    if (size == 0) states_.emplace_back(graph_.node(states[i]).name, std::move(bytes));
  }
  drawn->erase(drawn->begin() + std::ssize(names_), drawn->end());
  const size_t first = drawn->size() - parameters_;
  if (size == 0) {
    absl::Status s = ChooseWalked(request, absl::MakeConstSpan(*drawn).subspan(first));
    if (!s.ok()) return s;
  }
  const std::set<std::string> read = ReadByRuns(request);
  std::vector<absl::string_view>& inputs = views_.emplace_back();
  for (size_t n = 0; n < drawn->size(); ++n) {
    const bool parameter = n >= first;
    if (size > 0 && parameter) {
      inputs.push_back(views_[0][n]);
      continue;
    }
    const size_t turn = parameter ? first + turns_[n - first] : n;
    if (turn != n) {
      inputs.push_back(inputs[turn]);
      continue;
    }
    absl::Status s = parameter ? Hold((*drawn)[n], read.contains(names_[n]), &inputs.emplace_back())
                               : HoldWhole((*drawn)[n], &inputs.emplace_back());
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::string_view MeasuredInputs::state(absl::string_view name) const {
  for (const auto& [own, bytes] : states_) {
    if (own == name) return bytes.empty() ? absl::string_view("\0\0\0\0\0\0\0\0", 8) : bytes;
  }
  return "";
}

std::optional<int64_t> MeasuredInputs::own_bytes() const {
  if (large_) return std::nullopt;
  int64_t bytes = 0;
  for (const std::string& held : whole_) bytes += static_cast<int64_t>(held.size());
  for (const auto& state : states_) bytes += static_cast<int64_t>(state.second.size());
  for (const RepeatedBytes& held : repeated_) bytes += static_cast<int64_t>(held.period_bytes());
  return bytes;
}

absl::StatusOr<std::shared_ptr<const MeasuredInputs>> InputMemory::For(
    const internal::MeasureRequest& request) {
  std::string key = KeyOf(request);
  if (inputs_ != nullptr && key == key_) return inputs_;
  inputs_ = nullptr;  // before others are held
  absl::StatusOr<std::shared_ptr<const MeasuredInputs>> drawn = MeasuredInputs::Draw(request);
  if (!drawn.ok()) return drawn;
  const std::optional<int64_t> bytes = (*drawn)->own_bytes();
  const bool few = request.plans_size() == 1 || request.race();  // plans of one task
  if (!few || !bytes.has_value() || *bytes > kMostBytes) return drawn;
  key_ = std::move(key);
  inputs_ = *drawn;
  return drawn;
}

}  // namespace athanor
