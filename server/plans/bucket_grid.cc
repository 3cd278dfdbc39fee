#include "server/plans/bucket_grid.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/rows/paged_sizes.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/athanor/internal/stored.pb.h"

namespace athanor {
namespace {

std::string Text(const DimSpan& span) { return absl::StrCat("[", span.min, ", ", span.max, "]"); }

constexpr int64_t kRangeFactor = 4;  // from the end of one range to that of the next

// Up to 1, `factor`, its square, ... within the dim's bounds.
std::vector<DimSpan> GeometricSpans(const Dim& dim, int64_t factor) {
  std::vector<DimSpan> spans;
  int64_t next = dim.min;
  for (int64_t end = 1; next <= dim.max;) {
    if (end >= next) {
      spans.push_back({next, std::min(end, dim.max)});
      if (spans.back().max == dim.max) break;
      next = spans.back().max + 1;
    }
    if (__builtin_mul_overflow(end, factor, &end)) end = dim.max;
  }
  return spans;
}

// Checks one range by itself.
absl::Status CheckRange(const std::string& where, const DimSpan& range, const Dim& dim) {
  if (range.min > range.max) {
    return Invalid(where, ": range ", Text(range), " is inverted; ", Text({range.max, range.min}),
                   " is not");
  }
  if (range.min < dim.min || range.max > dim.max) {
    return Invalid(where, ": range ", Text(range), " is not inside the dim's bounds ",
                   Text({dim.min, dim.max}));
  }
  return absl::OkStatus();
}

absl::Status CheckNeighbours(const std::string& where, const DimSpan& first,
                             const DimSpan& second) {
  if (second.min > first.max) return absl::OkStatus();
  return Invalid(where, ": ranges ", Text(first), " and ", Text(second), " overlap; ",
                 second.max > first.max
                     ? absl::StrCat("the second may begin at ", first.max + 1)
                     : "the second lies inside the first, leave one of them out");
}

// Sizes between `ranges`, which are sorted and do not overlap, that none of them has.
std::vector<DimSpan> Gaps(const std::vector<DimSpan>& ranges, const Dim& dim) {
  std::vector<DimSpan> gaps;
  int64_t next = dim.min;
  for (const DimSpan& range : ranges) {
    if (range.min > next) gaps.push_back({next, range.min - 1});
    next = range.max + 1;
  }
  if (ranges.back().max < dim.max) gaps.push_back({ranges.back().max + 1, dim.max});
  return gaps;
}

// `given`, sorted.
absl::StatusOr<std::vector<DimSpan>> RangesOf(const std::string& where, const v1::DimBuckets& given,
                                              const Dim& dim) {
  std::vector<DimSpan> ranges;
  for (const v1::DimBuckets::Range& range : given.ranges()) {
    ranges.push_back({range.min(), range.max()});
    RETURN_IF_ERROR(CheckRange(where, ranges.back(), dim));
  }
  if (ranges.empty()) {
    return Invalid(where, ": has no ranges; leave the dim out, or cut ", Text({dim.min, dim.max}),
                   " into some");
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const DimSpan& a, const DimSpan& b) { return a.min < b.min; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    RETURN_IF_ERROR(CheckNeighbours(where, ranges[i - 1], ranges[i]));
  }
  const std::vector<DimSpan> gaps = Gaps(ranges, dim);
  if (gaps.empty()) return ranges;
  const auto text = [](std::string* out, const DimSpan& gap) { out->append(Text(gap)); };
  return Invalid(where, ": sizes ", absl::StrJoin(gaps, ", ", text), " are in no range; add ",
                 gaps.size() == 1 ? "it" : "them", " or let a neighbour reach over ",
                 gaps.size() == 1 ? "it" : "them");
}

// Notes who follows the dim of `given`.
absl::Status AddFollowers(const Graph& graph, const v1::DimBuckets& given, const std::string& where,
                          std::vector<int>* leader) {
  const auto find = [&](const std::string& name) {
    const auto dim = std::find_if(graph.dims.begin(), graph.dims.end(),
                                  [&](const Dim& d) { return d.name == name; });
    return dim == graph.dims.end() ? -1 : static_cast<int>(dim - graph.dims.begin());
  };
  const int own = find(given.dim());
  for (const std::string& name : given.followers()) {
    const int follower = find(name);
    if (follower < 0 || follower == own) {
      return Invalid(where, ": follower ", Quoted(name), " is ",
                     follower < 0 ? "no dim of the graph" : "the dim itself");
    }
    if ((*leader)[follower] >= 0)
      return Invalid(where, ": follower ", Quoted(name), " is given twice");
    const int64_t least = graph.dims[follower].min;
    for (const v1::DimBuckets::Range& range : given.ranges()) {
      if (range.max() >= least) continue;
      return Invalid(where, ": follower ", Quoted(name), " is at least ", least,
                     ", and so never in range ", Text({range.min(), range.max()}));
    }
    (*leader)[follower] = own;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BucketGrid> BucketGrid::Create(const Graph& graph, const Ranges& buckets,
                                              int64_t max_buckets) {
  std::vector<std::vector<DimSpan>> ranges(graph.dims.size());
  std::vector<int> leader(graph.dims.size(), -1);  // by dim: the one that it follows
  for (const v1::DimBuckets& given : buckets) {
    const std::string where = Cat("dim ", Quoted(given.dim()));
    const auto dim = std::find_if(graph.dims.begin(), graph.dims.end(),
                                  [&](const Dim& d) { return d.name == given.dim(); });
    if (dim == graph.dims.end()) {
      const auto name = [](std::string* out, const Dim& d) { out->append(Quoted(d.name)); };
      return Invalid(where, ": the graph has no such dim; it has ",
                     graph.dims.empty() ? "none" : absl::StrJoin(graph.dims, ", ", name));
    }
    std::vector<DimSpan>& of_dim = ranges[dim - graph.dims.begin()];
    if (!of_dim.empty()) return Invalid(where, ": given twice; give all its ranges in one list");
    ASSIGN_OR_RETURN(of_dim, RangesOf(where, given, *dim));
    RETURN_IF_ERROR(AddFollowers(graph, given, where, &leader));
  }
  for (size_t d = 0; d < leader.size(); ++d) {
    if (leader[d] < 0 || ranges[d].empty()) continue;
    return Invalid("dim ", Quoted(graph.dims[d].name), ": follows dim ",
                   Quoted(graph.dims[leader[d]].name), ", and has ranges of its own; give one");
  }
  BucketGrid grid;
  Box full;
  int64_t boxes = 1;
  std::vector<std::string> factors;
  for (size_t d = 0; d < ranges.size(); ++d) {
    const Dim& dim = graph.dims[d];
    grid.names_.push_back(dim.name);
    full.push_back({dim.min, dim.max});
    if (ranges[d].empty()) ranges[d] = {full.back()};
    if (ranges[d].size() > 1) factors.push_back(absl::StrCat(ranges[d].size(), " of ", dim.name));
    if (__builtin_mul_overflow(boxes, static_cast<int64_t>(ranges[d].size()), &boxes)) {
      boxes = std::numeric_limits<int64_t>::max();
    }
  }
  if (boxes > 1 && boxes > max_buckets) {
    return absl::ResourceExhaustedError(Cat("ranges ", absl::StrJoin(factors, " times "), " make ",
                                            boxes, " buckets; at most ", max_buckets,
                                            " are taken (--max_buckets): give fewer ranges"));
  }
  grid.boxes_.push_back(full);
  for (int64_t b = 0; boxes > 1 && b < boxes; ++b) {
    Box box = full;
    int64_t rest = b;
    for (size_t d = ranges.size(); d-- > 0;) {
      const auto count = static_cast<int64_t>(ranges[d].size());
      box[d] = ranges[d][rest % count];
      rest /= count;
    }
    for (size_t d = 0; d < leader.size(); ++d) {
      if (leader[d] >= 0) box[d].max = std::min(box[d].max, box[leader[d]].max);
    }
    grid.boxes_.push_back(std::move(box));
  }
  for (const std::vector<DimSpan>& of_dim : ranges) {
    std::vector<int64_t>& ends = grid.ends_.emplace_back();
    for (const DimSpan& range : of_dim) ends.push_back(range.max);
  }
  return grid;
}

int BucketGrid::Find(absl::Span<const int64_t> dims) const {
  if (size() == 1) return kFullRange;
  int64_t bucket = 0;
  for (size_t d = 0; d < ends_.size(); ++d) {
    const std::vector<int64_t>& ends = ends_[d];
    bucket = bucket * static_cast<int64_t>(ends.size()) +
             (std::lower_bound(ends.begin(), ends.end(), dims[d]) - ends.begin());
  }
  return static_cast<int>(bucket) + 1;
}

std::string BucketGrid::Text(int bucket) const {
  std::string text;
  for (size_t d = 0; d < names_.size(); ++d) {
    const DimSpan& span = boxes_[bucket][d];
    absl::StrAppend(&text, d == 0 ? "" : " ", names_[d], "=", span.min, "..", span.max);
  }
  return text;
}

std::vector<v1::DimRange> BucketGrid::ToProto(int bucket) const {
  std::vector<v1::DimRange> ranges(names_.size());
  for (size_t d = 0; d < names_.size(); ++d) {
    ranges[d].set_name(names_[d]);
    ranges[d].set_min(boxes_[bucket][d].min);
    ranges[d].set_max(boxes_[bucket][d].max);
  }
  return ranges;
}

std::string BucketGrid::Bytes(int bucket) const {
  internal::Box box;
  for (v1::DimRange& range : ToProto(bucket)) *box.add_dims() = std::move(range);
  return box.SerializeAsString();
}

BucketGrid::Ranges DefaultRanges(const Graph& graph, int64_t max_buckets) {
  // Bounds may begin at 0; a width is that of the sizes from 1.
  const auto width = [](const Dim& dim) {
    return static_cast<double>(dim.max) / static_cast<double>(std::max<int64_t>(dim.min, 1));
  };
  std::vector<const Dim*> dims;  // into graph.dims: equally wide ones stay in its order
  for (const Dim& dim : graph.dims) {
    if (width(dim) > kRangeFactor) dims.push_back(&dim);
  }
  std::sort(dims.begin(), dims.end(), [&](const Dim* a, const Dim* b) {
    return width(*a) != width(*b) ? width(*a) > width(*b) : a < b;
  });
  BucketGrid::Ranges ranges;
  int64_t left = max_buckets;
  for (const Dim* dim : dims) {
    int64_t factor = kRangeFactor;
    std::vector<DimSpan> spans = GeometricSpans(*dim, factor);
    while (ranges.empty() && static_cast<int64_t>(spans.size()) > left && spans.size() > 2) {
      spans = GeometricSpans(*dim, factor *= 2);
    }
    const auto count = static_cast<int64_t>(spans.size());
    if (count < 2 || count > left) continue;
    left /= count;
    v1::DimBuckets* added = ranges.Add();
    added->set_dim(dim->name);
    for (const DimSpan& span : spans) {
      v1::DimBuckets::Range* range = added->add_ranges();
      range->set_min(span.min);
      range->set_max(span.max);
    }
  }
  return ranges;
}

BucketGrid::Ranges DecoderRanges(const Graph& graph, int64_t max_buckets) {
  BucketGrid::Ranges ranges;
  const std::optional<PagedSizes> paged = PagedSizes::Of(graph);
  if (!paged.has_value() || max_buckets < 2) return ranges;
  std::vector<DimSpan> spans;
  int64_t next = paged->fewest_rows();
  for (const int64_t end : {1, 4, 16, 64}) {
    if (end < next || end >= paged->most_rows()) continue;
    spans.push_back({next, end});
    next = end + 1;
  }
  spans.push_back({next, paged->most_rows()});
  // Where fewer boxes are allowed, the first serve more rows.
  while (std::ssize(spans) > max_buckets) {
    spans[1].min = spans[0].min;
    spans.erase(spans.begin());
  }
  if (spans.size() < 2) return ranges;
  v1::DimBuckets* rows = ranges.Add();
  rows->set_dim(paged->rows());
  for (const DimSpan& span : spans) {
    v1::DimBuckets::Range* range = rows->add_ranges();
    range->set_min(span.min);
    range->set_max(span.max);
  }
  for (const std::string& name : paged->followers()) rows->add_followers(name);
  return ranges;
}

Graph NarrowedTo(const Graph& graph, const Box& box) {
  Graph narrowed = graph;
  for (size_t d = 0; d < box.size(); ++d) {
    narrowed.dims[d].min = box[d].min;
    narrowed.dims[d].max = box[d].max;
  }
  return narrowed;
}

}  // namespace athanor
