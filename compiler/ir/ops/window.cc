#include "compiler/ir/ops/window.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/ops/reference_util.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

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
  ASSIGN_OR_RETURN(places.begin, Values(GetAttr<Shape>(attrs, "begin"), dims));
  if (!attrs.contains("counted")) return places;
  ASSIGN_OR_RETURN(places.counted, Values(GetAttr<Shape>(attrs, "counted"), dims));
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

int64_t WindowPlaces::TapsBefore(size_t axis, int64_t out, int64_t end) const {
  const int64_t room = end - (out * strides[axis] - begin[axis]);
  if (room <= 0) return 0;
  return std::min(kernel[axis], (room - 1) / dilations[axis] + 1);
}

std::vector<int64_t> WindowPlaces::Inside(absl::Span<const int64_t> sizes,
                                          absl::Span<const int64_t> out) const {
  const std::vector<int64_t> block = Strides(sizes);
  std::vector<int64_t> first, taps;
  for (size_t i = 0; i < sizes.size(); ++i) {
    first.push_back(TapsBefore(i, out[i], 0));
    taps.push_back(TapsBefore(i, out[i], sizes[i]) - first.back());
  }
  std::vector<int64_t> offsets;
  ForEachElement(taps, [&](int64_t, const std::vector<int64_t>& tap) {
    int64_t offset = 0;
    for (size_t i = 0; i < tap.size(); ++i) {
      offset += (out[i] * strides[i] + (first[i] + tap[i]) * dilations[i] - begin[i]) * block[i];
    }
    offsets.push_back(offset);
  });
  return offsets;
}

int64_t WindowPlaces::Count(absl::Span<const int64_t> sizes, absl::Span<const int64_t> out) const {
  int64_t count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t first = TapsBefore(i, out[i], 0), last = TapsBefore(i, out[i], sizes[i]);
    const int64_t stated = counted.empty() ? 0 : TapsBefore(i, out[i], counted[i] - begin[i]);
    count *= stated + std::max<int64_t>(0, last - std::max(first, stated));
  }
  return count;
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
