#include "compiler/pipeline/search_sizes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace athanor {
namespace {

// Some tens of milliseconds of a server core, and memory that a check process may well have.
constexpr int64_t kMostFlops = 20'000'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 30;

bool Fits(const Graph& graph, const SizePoint& sizes, const Expr& flops, const Expr& bytes) {
  Expr::Env env;
  for (size_t d = 0; d < sizes.size(); ++d) env[graph.dims[d].name] = sizes[d];
  const std::optional<int64_t> work = flops.Evaluate(env), memory = bytes.Evaluate(env);
  return work && memory && *work <= kMostFlops && *memory <= kMostBytes;
}

}  // namespace

std::vector<SizePoint> SearchSizes(const Graph& graph, const Expr& flops, const Expr& bytes) {
  SizePoint low, high, middle;
  for (const Dim& d : graph.dims) {
    low.push_back(std::max<int64_t>(d.min, std::min<int64_t>(d.max, 1)));
    high.push_back(d.max);
  }
  // Halves the dim that is furthest above its least size, until a call is affordable.
  while (!Fits(graph, high, flops, bytes)) {
    size_t most = high.size();
    double ratio = 1;
    for (size_t d = 0; d < high.size(); ++d) {
      const double r =
          static_cast<double>(high[d]) / static_cast<double>(std::max<int64_t>(low[d], 1));
      if (r > ratio) {
        ratio = r;
        most = d;
      }
    }
    if (most == high.size()) break;
    high[most] = std::max(low[most], high[most] / 2);
  }
  for (size_t d = 0; d < low.size(); ++d) {
    middle.push_back(static_cast<int64_t>(
        std::llround(std::sqrt(static_cast<double>(low[d]) * static_cast<double>(high[d])))));
  }
  std::vector<SizePoint> sizes = {low};
  for (SizePoint* p : {&middle, &high}) {
    if (*p != sizes.back()) sizes.push_back(std::move(*p));
  }
  return sizes;
}

}  // namespace athanor
