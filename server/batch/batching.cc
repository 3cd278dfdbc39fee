#include "server/batch/batching.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "compiler/ir/rows/row_independence.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Returns why sharing calls is not worth the proof; if it is, sets `*most_rows` of a call.
std::string WhyNot(const Dim& dim, const BatchWish& wish, const BatchLimits& limits,
                   int64_t* most_rows) {
  if (wish.deterministic) {
    return "the version is deterministic: its requests run alone, so that equal ones get equal "
           "bits";
  }
  const bool limited = limits.max_rows > 0 && limits.max_rows < dim.max;
  *most_rows = limited ? limits.max_rows : dim.max;
  if (*most_rows / 2 >= std::max<int64_t>(1, dim.min)) return "";
  return Cat("a call has at most ", *most_rows, *most_rows == 1 ? " row" : " rows",
             limited ? " (--max_batch_rows)" : Cat(" of dim ", dim.name),
             ", which is too few for two requests");
}

std::vector<bool> WithRows(absl::Span<const RowProof::Rows> values) {
  std::vector<bool> with_rows;
  for (const RowProof::Rows& rows : values) with_rows.push_back(rows.any());
  return with_rows;
}

}  // namespace

VersionBatching BatchingOf(const Graph& graph, const BatchWish& wish, const BatchLimits& limits) {
  VersionBatching found{.dim = wish.dim, .delay = limits.delay};
  if (wish.dim.empty()) return found;
  const auto dim = std::find_if(graph.dims.begin(), graph.dims.end(),
                                [&](const Dim& d) { return d.name == wish.dim; });
  Batching batching;
  if (dim != graph.dims.end()) {
    found.reason = WhyNot(*dim, wish, limits, &batching.most_rows);
    if (!found.reason.empty()) return found;
    batching.dim = static_cast<int>(dim - graph.dims.begin());
  }
  RowProof proof = ProveRowIndependent(graph, wish.dim);
  if (!proof.independent) {
    found.reason = std::move(proof.reason);
    return found;
  }
  batching.input_rows = WithRows(proof.inputs);
  batching.output_rows = WithRows(proof.outputs);
  found.shared = std::make_shared<const Batching>(std::move(batching));
  return found;
}

v1::Batching VersionBatching::ToProto() const {
  v1::Batching message;
  message.set_dim(dim);
  message.set_on(shared != nullptr);
  message.set_reason(reason);
  if (shared == nullptr) return message;
  message.set_max_rows(shared->most_rows);
  message.set_max_delay_us(delay.count());
  return message;
}

// Each size takes 8 bytes, and the sizes determine the lengths of the inputs. So equal texts have
// equal parts.
std::string GroupOf(const Batching& batching, absl::Span<const int64_t> dims,
                    absl::Span<const std::string_view> inputs) {
  size_t bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!batching.input_rows[i]) bytes += inputs[i].size();
  }
  if (bytes > kMostSameBytes) return "";
  std::string group = "r";  // never empty
  group.reserve(1 + sizeof(int64_t) * dims.size() + bytes);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (static_cast<int>(d) == batching.dim) continue;
    group.append(reinterpret_cast<const char*>(&dims[d]), sizeof(dims[d]));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!batching.input_rows[i]) group.append(inputs[i]);
  }
  return group;
}

}  // namespace athanor
