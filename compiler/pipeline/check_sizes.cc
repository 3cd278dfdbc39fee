#include "compiler/pipeline/check_sizes.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace athanor {
namespace {

// A checked operation costs the reference and its error bounds some 10 ns; a check should take a
// fraction of a second.
constexpr int64_t kCheckFlops = 10'000'000;

// Values of all dims near `wanted`, inside their bounds; different dims get different ones, so that
// swapped sizes are noticed.
std::vector<int64_t> SizesNear(const Graph& graph, int64_t wanted) {
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < graph.dims.size(); ++d) {
    int64_t size = wanted + (wanted > 1 ? 2 * static_cast<int64_t>(d) : 0);
    sizes.push_back(std::clamp(size, graph.dims[d].min, graph.dims[d].max));
  }
  return sizes;
}

bool Affordable(const Graph& graph, const std::vector<int64_t>& sizes, const Expr& flops) {
  Expr::Env env;
  for (size_t d = 0; d < sizes.size(); ++d) env[graph.dims[d].name] = sizes[d];
  std::optional<int64_t> value = flops.Evaluate(env);
  return value && *value <= kCheckFlops;
}

}  // namespace

void AddCheckSizes(const Graph& graph, const Expr& flops, internal::CheckRequest* request) {
  std::set<std::vector<int64_t>> distinct = {SizesNear(graph, 0)};
  for (int64_t wanted : {67, 37, 17, 7, 3}) {
    std::vector<int64_t> sizes = SizesNear(graph, wanted);
    if (!Affordable(graph, sizes, flops)) continue;
    distinct.insert(std::move(sizes));
    break;
  }
  for (const std::vector<int64_t>& sizes : distinct) {
    auto* set = request->add_sizes();
    for (int64_t s : sizes) set->add_values(s);
  }
}

}  // namespace athanor
