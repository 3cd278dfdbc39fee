#include "server/calls/inference_reply.h"

#include <algorithm>
#include <limits>
#include <string>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// A message has 2 GiB at most; beside the tensors there is room for names and shapes.
constexpr int64_t kMostReplyBytes = std::numeric_limits<int32_t>::max() - (1 << 20);

}  // namespace

absl::Status InferenceReply::Choose(const ModelVersion& version, const BoundRequest& bound) {
  const std::vector<Output>& outputs = version.graph().outputs;
  const std::vector<std::string>& elements = version.output_elements();
  for (int output : bound.outputs) {
    std::string_view element;
    if (output < static_cast<int>(elements.size())) element = elements[output];
    wanted_.push_back({output, outputs[output].name, element});
  }
  asked_ = wanted_.size();
  if (bound.options.taps.empty()) return absl::OkStatus();
  // Every plan has the values of the outputs; only other values need a tap plan.
  const auto output_of = [&](NodeId node) {
    return std::find_if(outputs.begin(), outputs.end(),
                        [node](const Output& output) { return output.node == node; }) -
           outputs.begin();
  };
  const auto own = static_cast<int64_t>(outputs.size());
  for (NodeId node : bound.options.taps) {
    if (output_of(node) == own) inner_.push_back(node);
  }
  std::sort(inner_.begin(), inner_.end());
  for (NodeId node : bound.options.taps) {
    int64_t output = output_of(node);
    if (output == own) {
      output += std::lower_bound(inner_.begin(), inner_.end(), node) - inner_.begin();
    }
    RETURN_IF_ERROR(AddTap(version.graph(), bound, node, static_cast<int>(output)));
  }
  return absl::OkStatus();
}

// Each name may occur only once in a reply.
absl::Status InferenceReply::AddTap(const Graph& graph, const BoundRequest& bound, NodeId node,
                                    int output) {
  const std::string& name = graph.node(node).name;
  for (int asked : bound.outputs) {
    if (graph.outputs[asked].name != name) continue;
    if (graph.outputs[asked].node == node) return absl::OkStatus();
    return Invalid("parameter taps names node ", Quoted(name), ", and output ", Quoted(name),
                   " of the same reply is node ",
                   Quoted(graph.node(graph.outputs[asked].node).name),
                   "; tap it in a call that asks for other outputs");
  }
  wanted_.push_back({output, name, ""});
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InferenceReply::Describe(const OutputShapes& shapes,
                                                 absl::Span<const int64_t> dims,
                                                 inference::ModelInferResponse* reply) {
  int64_t total = 0;
  std::vector<int64_t> shape;
  for (const Wanted& wanted : wanted_) {
    int64_t& bytes = bytes_.emplace_back();
    RETURN_IF_ERROR(shapes.Fill(wanted.output, dims, &shape, &bytes));
    auto* tensor = reply->add_outputs();
    tensor->set_name(std::string(wanted.name));
    tensor->set_datatype(std::string(shapes.datatype(wanted.output)));
    tensor->mutable_shape()->Add(shape.begin(), shape.end());
    if (!wanted.element.empty()) {
      (*tensor->mutable_parameters())["element"].set_string_param(std::string(wanted.element));
    }
    if (__builtin_add_overflow(total, bytes, &total) || total > kMostReplyBytes) {
      return absl::ResourceExhaustedError(Cat(
          "output ", Quoted(wanted.name), ": the outputs asked for exceed the 2 GiB of one reply"));
    }
  }
  return total;
}

void InferenceReply::Allocate(inference::ModelInferResponse* reply) {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    std::string* raw = reply->add_raw_output_contents();
    raw->resize(bytes_[i]);
    // Requested outputs are distinct; a tap may repeat one of them.
    size_t first = i < asked_ ? i : 0;
    while (wanted_[first].output != wanted_[i].output) ++first;
    if (first == i) {
      outputs_.push_back({wanted_[i].output, raw->data(), bytes_[i]});
    } else {
      repeated_.emplace_back(first, i);
    }
  }
}

void InferenceReply::Repeat(inference::ModelInferResponse* reply) const {
  for (const auto& [from, to] : repeated_) {
    *reply->mutable_raw_output_contents(to) = reply->raw_output_contents(from);
  }
}

}  // namespace athanor
