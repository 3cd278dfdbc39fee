#include "compiler/ir/rows/paged_sizes.h"

#include <algorithm>
#include <set>

namespace athanor {
namespace {

// Rows up to which each is of a sequence of its own, and rows of a prompt's part beyond.
constexpr int64_t kMostDecoded = 64, kRowsOfPrompt = 256;
// Rows and context of the larger compared call: the evaluator's twin in f64 runs it too.
constexpr int64_t kComparedRows = 128, kComparedContext = 96;

int64_t Ceil(int64_t count, int64_t of) { return (count + of - 1) / of; }

}  // namespace

std::optional<PagedSizes> PagedSizes::Of(const Graph& graph) {
  const auto dim = [&](const Expr& size) {
    std::set<std::string> used;
    size.CollectSymbols(&used);
    const auto found = std::find_if(graph.dims.begin(), graph.dims.end(), [&](const Dim& d) {
      return used.size() == 1 && d.name == *used.begin();
    });
    return found == graph.dims.end() ? -1 : static_cast<int>(found - graph.dims.begin());
  };
  const auto alone = [&](const Expr& size) {
    const int d = dim(size);
    return d >= 0 && size == Expr::Symbol(graph.dims[d].name) ? d : -1;
  };
  for (const Node& node : graph.nodes) {
    if (!IsPagedAttention(node.op) || graph.StateIds().empty()) continue;
    const auto shape = [&](int operand) -> const Shape& {
      return graph.node(node.inputs[operand]).type.shape;
    };
    PagedSizes paged;
    paged.dims_ = graph.dims;
    paged.rows_ = alone(shape(0)[0]);
    paged.sequences_ = alone(shape(3)[0]);
    paged.blocks_ = alone(shape(3)[1]);
    paged.slots_of_ = shape(1)[0];
    paged.slots_ = dim(paged.slots_of_);
    paged.block_ = GetAttr<int64_t>(node.attrs, "block");
    const std::set<int> all = {paged.rows_, paged.sequences_, paged.blocks_, paged.slots_};
    if (all.contains(-1) || all.size() < 4) continue;
    for (NodeId state : graph.StateIds()) {
      const TensorType& type = graph.node(state).type;
      int64_t slot = DTypeBytes(type.dtype);
      for (size_t axis = 1; axis < type.shape.size(); ++axis) {
        slot *= type.shape[axis].constant().value_or(1);
      }
      paged.slot_bytes_ += slot;
    }
    return paged;
  }
  return std::nullopt;
}

std::vector<std::string> PagedSizes::followers() const {
  std::vector<std::string> names;
  for (int d = 0; d < static_cast<int>(dims_.size()); ++d) {
    if (d != rows_ && d != blocks_ && d != slots_) names.push_back(dims_[d].name);
  }
  return names;
}

std::vector<int64_t> PagedSizes::At(const PagedCall& call) const {
  const auto inside = [&](int d, int64_t size) {
    return std::clamp(size, dims_[d].min, dims_[d].max);
  };
  std::vector<int64_t> sizes(dims_.size());
  for (int d = 0; d < static_cast<int>(dims_.size()); ++d) sizes[d] = inside(d, call.wanted);
  sizes[rows_] = inside(rows_, call.rows);
  sizes[sequences_] = inside(sequences_, call.sequences);
  const int64_t each = Ceil(sizes[rows_], std::max<int64_t>(1, sizes[sequences_]));
  const int64_t bytes = std::max<int64_t>(1, sizes[sequences_] * block_ * slot_bytes_);
  const int64_t wanted = std::min(Ceil(call.context, block_), kMostStateBytes / bytes);
  sizes[blocks_] = inside(blocks_, std::max(wanted, Ceil(each, block_)));
  const int64_t needed = sizes[sequences_] * sizes[blocks_] * block_;
  int64_t low = dims_[slots_].min, high = dims_[slots_].max;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t slots = slots_of_.Evaluate({{dims_[slots_].name, middle}}).value_or(needed);
    if (slots >= needed) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  sizes[slots_] = high;
  return sizes;
}

std::vector<int64_t> PagedSizes::At(const PagedCall& call, const std::vector<Dim>& dims) const {
  const std::vector<int64_t> all = At(call);
  std::vector<int64_t> sizes;
  for (const Dim& dim : dims) {
    const auto own =
        std::find_if(dims_.begin(), dims_.end(), [&](const Dim& d) { return d.name == dim.name; });
    const int64_t size = own == dims_.end() ? dim.min : all[own - dims_.begin()];
    sizes.push_back(std::clamp(size, dim.min, dim.max));
  }
  return sizes;
}

PagedCall PagedSizes::Usual(int64_t rows, int64_t context) {
  const int64_t sequences =
      rows <= kMostDecoded ? rows : std::max<int64_t>(1, rows / kRowsOfPrompt);
  return {.rows = rows, .sequences = sequences, .wanted = sequences, .context = context};
}

PagedCall PagedSizes::Smallest() const {
  return {.rows = fewest_rows(), .sequences = 1, .wanted = 0, .context = 1};
}

std::vector<PagedCall> PagedSizes::Compared() const {
  PagedCall larger = Usual(std::max(std::min(kComparedRows, most_rows()), fewest_rows()), 1);
  larger.sequences = std::min<int64_t>(larger.sequences, 8);
  larger.context = kComparedContext;
  return {Smallest(), larger};
}

}  // namespace athanor
