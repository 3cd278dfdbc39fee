#include "compiler/pipeline/check_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/search/kernels/extents.h"

namespace athanor {
namespace {

using Sizes = std::vector<int64_t>;  // in the order of graph.dims

// Budgets for comparing every element, in operations of some 5 ns: at the smallest sizes, which are
// always checked, and at others.
constexpr int64_t kSmallestCost = 20'000'000;
constexpr int64_t kSmallCost = 4'000'000;
// Cost of an element that is drawn, bounded and compared.
constexpr int64_t kElementCost = 16;
// For paged calls: rows of the largest that may be compared whole, and the context of real ones.
constexpr int64_t kPagedRows[] = {37, 17, 7, 3};
constexpr int64_t kSomeSequences = 3, kSomeContext = 40, kRealContext = 500;
// Budget of one run of the kernel at real sizes.
constexpr int64_t kRealFlops = 100'000'000;
constexpr int64_t kRealBytes = int64_t{16} << 20;

int64_t ValueOf(const Expr& e, const Graph& graph, const Sizes& sizes) {
  Expr::Env env;
  for (size_t d = 0; d < sizes.size(); ++d) env[graph.dims[d].name] = sizes[d];
  return e.Evaluate(env).value_or(INT64_MAX);
}

// Returns the graph with dims that it does not use fixed to their smallest: kernels of weights use
// none.
Graph WithFixedDims(Graph graph) {
  std::set<std::string> used;
  for (const Node& node : graph.nodes) {
    for (const Expr& size : node.type.shape) size.CollectSymbols(&used);
    ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&used); });
  }
  for (Dim& dim : graph.dims) {
    if (!used.contains(dim.name)) dim.max = dim.min;
  }
  return graph;
}

// Returns values of all dims near `wanted`, inside their bounds. Different dims get different
// values, so that swapped sizes are noticed.
Sizes SizesNear(const Graph& graph, int64_t wanted) {
  Sizes sizes;
  for (size_t d = 0; d < graph.dims.size(); ++d) {
    const int64_t size = wanted + (wanted > 1 ? 2 * static_cast<int64_t>(d) : 0);
    sizes.push_back(std::clamp(size, graph.dims[d].min, graph.dims[d].max));
  }
  return sizes;
}

// Returns the sizes at `part`, 0 to 1, between the logarithms of the bounds.
Sizes SizesAt(const Graph& graph, double part) {
  Sizes sizes;
  for (size_t d = 0; d < graph.dims.size(); ++d) {
    const auto low = static_cast<double>(std::max<int64_t>(graph.dims[d].min, 1));
    const auto high = static_cast<double>(std::max<int64_t>(graph.dims[d].max, 1));
    auto size = static_cast<int64_t>(low * std::pow(high / low, part));
    if (part >= 1) size = graph.dims[d].max;
    // Gives dims with equal bounds different sizes.
    if (part > 0 && part < 1) size += static_cast<int64_t>(d);
    sizes.push_back(std::clamp(size, graph.dims[d].min, graph.dims[d].max));
  }
  return sizes;
}

bool IsOperand(const Node& node) { return IsDeclared(node.op); }

// Returns the bytes of outputs and operands, without operands of which only a few rows are read.
Expr BytesMoved(const Graph& graph) {
  std::vector<bool> read(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    const bool selects = FormOf(node.op) == OpForm::kGather || FormOf(node.op) == OpForm::kBags;
    for (size_t i = selects ? 1 : 0; i < node.inputs.size(); ++i) read[node.inputs[i]] = true;
  }
  Expr bytes = 0;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    if (IsOperand(graph.node(n)) && read[n]) bytes += BytesOf(graph.node(n).type);
  }
  for (const Output& output : graph.outputs) bytes += BytesOf(graph.node(output.node).type);
  return bytes;
}

// Returns the number of elements of operands and outputs.
Expr ElementsHeld(const Graph& graph) {
  Expr elements = 0;
  for (const Node& node : graph.nodes) {
    if (IsOperand(node)) elements += Product(node.type.shape);
  }
  for (const Output& o : graph.outputs) elements += Product(graph.node(o.node).type.shape);
  return elements;
}

// Returns the reference evaluator's overhead for the steps of loops. Launches of a kernel take
// less.
Expr CostOfSteps(const Graph& graph) {
  constexpr int64_t kNodeCost = 2000;
  Expr cost = 0;
  for (const Node& node : graph.nodes) {
    if (!IsLoop(node.op)) continue;
    const ScanView scan = ViewScan(node);
    cost += kNodeCost * static_cast<int64_t>(scan.body.nodes.size()) * scan.length;
  }
  return cost;
}

class SizeChoice {
 public:
  SizeChoice(const Graph& graph, const Expr& flops, const PagedSizes* paged)
      : graph_(WithFixedDims(graph)),
        paged_(paged),
        flops_(flops + CostOfSteps(graph)),
        moved_(BytesMoved(graph)),
        cost_(flops_ + kElementCost * ElementsHeld(graph)),
        smallest_(paged == nullptr ? SizesNear(graph_, 0) : At(paged->Smallest())) {}

  void AddTo(internal::CheckRequest* request) {
    Add(smallest_, request);
    if (paged_ != nullptr) return AddPaged(request);
    for (int64_t wanted : {67, 37, 17, 7, 3}) {
      Sizes sizes = SizesNear(graph_, wanted);
      if (!Comparable(sizes)) continue;
      Add(std::move(sizes), request);
      break;
    }
    const double part = LargestPart();
    for (double real : {part / 2, part}) {
      Sizes sizes = SizesAt(graph_, real);
      if (!Compared(sizes)) Add(std::move(sizes), request, /*real=*/true);
    }
  }

 private:
  // Returns the sizes of a call; dims that the kernel does not use are fixed.
  Sizes At(const PagedCall& call) const { return paged_->At(call, graph_.dims); }

  void AddPaged(internal::CheckRequest* request) {
    for (const int64_t rows : kPagedRows) {
      Sizes sizes = At({.rows = rows,
                        .sequences = kSomeSequences,
                        .wanted = kSomeSequences - 1,
                        .context = kSomeContext});
      if (!Comparable(sizes)) continue;
      Add(std::move(sizes), request);
      break;
    }
    int64_t rows = paged_->most_rows();
    const auto real = [&] { return At(PagedSizes::Usual(rows, kRealContext)); };
    while (rows > paged_->fewest_rows() && !Affordable(real())) rows /= 2;
    if (Sizes sizes = real(); !Compared(sizes)) Add(std::move(sizes), request, /*real=*/true);
  }

  void Add(Sizes sizes, internal::CheckRequest* request, bool real = false) {
    if (!seen_.insert(sizes).second) return;
    auto* set = request->add_sizes();
    for (int64_t s : sizes) set->add_values(s);
    set->set_sampled(real || !Comparable(sizes));
    if (!set->sampled()) compared_.push_back(std::move(sizes));
  }

  // Reports whether sizes at least as large are compared by every element.
  bool Compared(const Sizes& sizes) const {
    return std::any_of(compared_.begin(), compared_.end(), [&](const Sizes& other) {
      return std::equal(sizes.begin(), sizes.end(), other.begin(), std::less_equal<>());
    });
  }

  // Reports whether every element can be compared within the budget.
  bool Comparable(const Sizes& sizes) const {
    return ValueOf(cost_, graph_, sizes) <= (sizes == smallest_ ? kSmallestCost : kSmallCost);
  }

  // Reports whether a run fits the budget. Bytes that the smallest sizes move do not count: they
  // cannot be avoided.
  bool Affordable(const Sizes& sizes) const {
    return ValueOf(flops_, graph_, sizes) <= kRealFlops &&
           ValueOf(moved_, graph_, sizes) - ValueOf(moved_, graph_, smallest_) <= kRealBytes;
  }

  double LargestPart() const {
    if (Affordable(SizesAt(graph_, 1))) return 1;
    double low = 0, high = 1;
    for (int i = 0; i < 30; ++i) {
      const double middle = (low + high) / 2;
      (Affordable(SizesAt(graph_, middle)) ? low : high) = middle;
    }
    return low;
  }

  const Graph graph_;
  const PagedSizes* const paged_;
  const Expr flops_, moved_, cost_;
  const Sizes smallest_;
  std::set<Sizes> seen_;
  std::vector<Sizes> compared_;
};

}  // namespace

void AddCheckSizes(const Graph& graph, const Expr& flops, const PagedSizes* paged,
                   internal::CheckRequest* request) {
  SizeChoice(graph, flops, paged).AddTo(request);
}

}  // namespace athanor
