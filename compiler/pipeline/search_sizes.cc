#include "compiler/pipeline/search_sizes.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace athanor {
namespace {

// Most seconds of one call of the whole model at the machine's peak: a compared plan is called some
// ten times, and its kernels are called many times.
constexpr double kLargestSeconds = 0.06;
constexpr double kTypicalSeconds = 0.15;
// Memory that a check process is likely to have.
constexpr double kMostBytes = 1 << 30;
// The typical size is below the bound: bounds are declared with room to spare, and most time is
// spent at the larger sizes.
constexpr int64_t kTypicalShare = 4;
// Rows of a call of a language model: boxes without a bound have many times as many.
constexpr int64_t kMostRows = 4096;
// Positions of a sequence, of calls of a language model.
constexpr int64_t kShortContext = 250, kLongContext = 1000;

class Box {
 public:
  Box(const Graph& graph, const Expr& flops, const Expr& bytes, const Machine& machine)
      : graph_(graph), flops_(flops), bytes_(bytes), machine_(machine) {}

  // Halves the dim of `sizes` that is furthest above the smallest until a call takes at most
  // `seconds`. No dim falls below `least`.
  SizePoint Within(double seconds, SizePoint sizes, const SizePoint& low,
                   const SizePoint& least) const {
    while (!Fits(seconds, sizes)) {
      size_t most = sizes.size();
      double ratio = 1;
      for (size_t d = 0; d < sizes.size(); ++d) {
        const double r =
            static_cast<double>(sizes[d]) / static_cast<double>(std::max<int64_t>(low[d], 1));
        if (sizes[d] > least[d] && r > ratio) {
          ratio = r;
          most = d;
        }
      }
      if (most == sizes.size()) break;
      sizes[most] = std::max(least[most], sizes[most] / 2);
    }
    return sizes;
  }

  bool Fits(double seconds, const SizePoint& sizes) const {
    Expr::Env env;
    for (size_t d = 0; d < sizes.size(); ++d) env[graph_.dims[d].name] = sizes[d];
    const std::optional<int64_t> flops = flops_.Evaluate(env), bytes = bytes_.Evaluate(env);
    if (!flops || !bytes || static_cast<double>(*bytes) > kMostBytes) return false;
    return static_cast<double>(*flops) <= seconds * machine_.f32_flops_per_second &&
           static_cast<double>(*bytes) <= seconds * machine_.read_bytes_per_second;
  }

 private:
  const Graph& graph_;
  const Expr &flops_, &bytes_;
  const Machine& machine_;
};

std::vector<SizePoint> PagedPoints(const PagedSizes& paged, const Box& box) {
  const int64_t fewest = paged.fewest_rows();
  const int64_t most = std::max(fewest, std::min(paged.most_rows(), kMostRows));
  const int64_t least = std::max(fewest, most / kTypicalShare);
  std::vector<SizePoint> sizes = {paged.At(PagedSizes::Usual(fewest, kShortContext))};
  SizePoint high;
  for (int64_t rows = most;; rows = std::max(least, rows / 2)) {
    high = paged.At(PagedSizes::Usual(rows, kLongContext));
    if (rows == least || box.Fits(kLargestSeconds, high)) break;
  }
  if (high != sizes[0]) sizes.push_back(std::move(high));
  return sizes;
}

}  // namespace

std::vector<SizePoint> SearchSizes(const Graph& graph, const PagedSizes* paged, const Expr& flops,
                                   const Expr& bytes, const Machine& machine) {
  if (paged != nullptr) return PagedPoints(*paged, Box(graph, flops, bytes, machine));
  SizePoint low, typical, high;
  for (const Dim& d : graph.dims) {
    low.push_back(std::max<int64_t>(d.min, std::min<int64_t>(d.max, 1)));
    typical.push_back(std::max(low.back(), d.max / kTypicalShare));
    high.push_back(d.max);
  }
  const Box box(graph, flops, bytes, machine);
  typical = box.Within(kTypicalSeconds, std::move(typical), low, low);
  high = box.Within(kLargestSeconds, std::move(high), low, typical);
  std::vector<SizePoint> sizes = {std::move(low)};
  for (SizePoint* p : {&typical, &high}) {
    if (*p != sizes.back()) sizes.push_back(std::move(*p));
  }
  return sizes;
}

}  // namespace athanor
