#include "server/restore/warm_up.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {
namespace {

// Runs estimated to take longer are not made at the largest sizes.
constexpr int64_t kMostMicroseconds = 50'000;
constexpr int64_t kMostBytes = int64_t{64} << 20;  // of inputs and outputs together
constexpr std::chrono::seconds kPatience{1};       // deadline in case the estimate is wrong

struct Buffers {
  std::vector<std::string> inputs, outputs;
};

// Returns nullopt if the buffers would be too large.
std::optional<Buffers> BuffersFor(const ModelVersion& version, absl::Span<const int64_t> dims) {
  const Graph& graph = version.graph();
  Expr::Env env;
  for (size_t d = 0; d < dims.size(); ++d) env[graph.dims[d].name] = dims[d];
  Buffers buffers;
  int64_t left = kMostBytes;
  const auto add = [&left](int64_t bytes, std::vector<std::string>* to) {
    if (bytes < 0 || bytes > left) return false;
    left -= bytes;
    to->emplace_back(static_cast<size_t>(bytes), '\0');
    return true;
  };
  for (NodeId id : graph.InputIds()) {
    const TensorType& type = graph.node(id).type;
    int64_t bytes = DTypeBytes(type.dtype);
    for (const Expr& size : type.shape) {
      const auto value = size.Evaluate(env);
      if (!value.has_value() || *value < 0 || *value > kMostBytes || bytes > kMostBytes) {
        return std::nullopt;
      }
      bytes *= *value;
    }
    if (!add(bytes, &buffers.inputs)) return std::nullopt;
  }
  for (int i = 0; i < static_cast<int>(graph.outputs.size()); ++i) {
    std::vector<int64_t> shape;
    int64_t bytes = 0;
    if (!version.output_shapes().Fill(i, dims, &shape, &bytes).ok()) return std::nullopt;
    if (!add(bytes, &buffers.outputs)) return std::nullopt;
  }
  return buffers;
}

}  // namespace

absl::Status WarmUp(const ModelVersion& version, const ServedPlan& plan) {
  if (!version.graph().StateIds().empty()) return absl::OkStatus();  // its engine has the states
  std::vector<int64_t> largest, smallest;
  for (const Dim& dim : version.graph().dims) {
    largest.push_back(dim.max);
    smallest.push_back(dim.min);
  }
  std::vector<int64_t>* dims = &largest;
  std::optional<Buffers> buffers;
  if (plan.runner->EstimateMicroseconds(largest) <= kMostMicroseconds) {
    buffers = BuffersFor(version, largest);
  }
  if (!buffers.has_value()) {
    if (plan.runner->EstimateMicroseconds(smallest) > kMostMicroseconds) return absl::OkStatus();
    dims = &smallest;
    buffers = BuffersFor(version, smallest);
  }
  if (!buffers.has_value()) return absl::OkStatus();
  ContextPool::Lease lease = plan.contexts->TryAcquire();
  if (!lease) return absl::OkStatus();  // the plan is running already
  std::vector<std::string_view> inputs(buffers->inputs.begin(), buffers->inputs.end());
  std::vector<RunOutput> outputs;
  for (size_t i = 0; i < buffers->outputs.size(); ++i) {
    outputs.push_back({static_cast<int>(i), buffers->outputs[i].data(),
                       static_cast<int64_t>(buffers->outputs[i].size())});
  }
  return plan.runner->Run(*lease, *dims, inputs, outputs,
                          {.deadline = std::chrono::steady_clock::now() + kPatience});
}

}  // namespace athanor
