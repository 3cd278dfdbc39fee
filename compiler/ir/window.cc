#include "compiler/ir/window.h"

#include <utility>

#include "compiler/ir/message.h"
#include "compiler/ir/reference_util.h"

namespace athanor {
namespace {

absl::StatusOr<std::vector<int64_t>> Values(const Shape& shape, const Expr::Env& dims) {
  std::vector<int64_t> values;
  for (const Expr& e : shape) {
    const std::optional<int64_t> value = e.Evaluate(dims);
    if (!value) return Invalid(Quoted(e.ToString()), " has no value at these sizes of the dims");
    values.push_back(*value);
  }
  return values;
}

}  // namespace

absl::StatusOr<WindowPlaces> WindowPlaces::Of(const Attrs& attrs, std::vector<int64_t> kernel,
                                              const Expr::Env& dims) {
  WindowPlaces places;
  places.kernel = std::move(kernel);
  places.strides = GetAttr<std::vector<int64_t>>(attrs, "strides");
  places.dilations = GetAttr<std::vector<int64_t>>(attrs, "dilations");
  absl::StatusOr<std::vector<int64_t>> begin = Values(GetAttr<Shape>(attrs, "begin"), dims);
  if (!begin.ok()) return begin.status();
  places.begin = *std::move(begin);
  if (!attrs.contains("counted")) return places;
  absl::StatusOr<std::vector<int64_t>> counted = Values(GetAttr<Shape>(attrs, "counted"), dims);
  if (!counted.ok()) return counted.status();
  places.counted = *std::move(counted);
  return places;
}

std::vector<int64_t> WindowPlaces::Offsets(absl::Span<const int64_t> sizes,
                                           absl::Span<const int64_t> out) const {
  const std::vector<int64_t> block = Strides(sizes);
  std::vector<int64_t> offsets;
  ForEachElement(kernel, [&](int64_t, const std::vector<int64_t>& tap) {
    int64_t offset = 0;
    for (size_t i = 0; i < tap.size() && offset >= 0; ++i) {
      const int64_t p = out[i] * strides[i] + tap[i] * dilations[i] - begin[i];
      offset = p >= 0 && p < sizes[i] ? offset + p * block[i] : -1;
    }
    offsets.push_back(offset);
  });
  return offsets;
}

std::vector<bool> WindowPlaces::Counts(absl::Span<const int64_t> sizes,
                                       absl::Span<const int64_t> out) const {
  std::vector<bool> counts;
  ForEachElement(kernel, [&](int64_t, const std::vector<int64_t>& tap) {
    bool all = true;
    for (size_t i = 0; i < tap.size(); ++i) {
      const int64_t from_begin = out[i] * strides[i] + tap[i] * dilations[i];
      const int64_t p = from_begin - begin[i];
      all = all && ((p >= 0 && p < sizes[i]) || (!counted.empty() && from_begin < counted[i]));
    }
    counts.push_back(all);
  });
  return counts;
}

}  // namespace athanor
