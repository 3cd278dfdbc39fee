#include "server/plans/output_shapes.h"

#include <algorithm>
#include <optional>

#include "compiler/frontend/datatype.h"
#include "compiler/ir/value/message.h"

namespace athanor {

OutputShapes::OutputShapes(const Graph& graph, absl::Span<const Output> outputs) {
  for (const Dim& dim : graph.dims) dims_.push_back(dim.name);
  for (const Output& output : outputs) {
    const TensorType& type = graph.node(output.node).type;
    const DatatypeRow* datatype = DatatypeOf(type.dtype);
    Entry added{output.name, datatype == nullptr ? "" : datatype->name, DTypeBytes(type.dtype), {}};
    for (const Expr& size : type.shape) {
      Axis axis{size.constant().value_or(-1), -1, size};
      if (std::optional<std::string> symbol = size.symbol()) {
        auto it = std::find(dims_.begin(), dims_.end(), *symbol);
        if (it != dims_.end()) axis.dim = static_cast<int>(it - dims_.begin());
      }
      added.axes.push_back(std::move(axis));
    }
    outputs_.push_back(std::move(added));
  }
}

int64_t OutputShapes::SizeOf(const Axis& axis, absl::Span<const int64_t> dims) const {
  if (axis.constant >= 0) return axis.constant;
  if (axis.dim >= 0) return dims[axis.dim];
  Expr::Env env;
  for (size_t i = 0; i < dims_.size(); ++i) env[dims_[i]] = dims[i];
  return axis.size.Evaluate(env).value_or(-1);
}

absl::Status OutputShapes::Fill(int output, absl::Span<const int64_t> dims,
                                std::vector<int64_t>* shape, int64_t* bytes) const {
  const Entry& wanted = outputs_[output];
  shape->clear();
  *bytes = wanted.element_bytes;
  for (const Axis& axis : wanted.axes) {
    const int64_t size = SizeOf(axis, dims);
    if (size < 0 || __builtin_mul_overflow(*bytes, size, bytes)) {
      return Invalid("output ", Quoted(wanted.name), ": its size leaves 64 bits");
    }
    shape->push_back(size);
  }
  return absl::OkStatus();
}

}  // namespace athanor
