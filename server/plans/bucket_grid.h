// The boxes into which the ranges given for a version's dims cut its sizes: every size that the
// dims' bounds allow lies in exactly one.
//
//   BucketGrid grid = BucketGrid::Create(graph, header.buckets(), /*max_buckets=*/64).value();
//   int bucket = grid.Find(dims);             // 1.., or kFullRange where there are no boxes
//   Graph part = NarrowedTo(graph, grid.box(bucket));
#ifndef ATHANOR_SERVER_PLANS_BUCKET_GRID_H_
#define ATHANOR_SERVER_PLANS_BUCKET_GRID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/athanor/v1/model.pb.h"

namespace athanor {

struct DimSpan {
  int64_t min = 1, max = 1;  // both inside
  bool operator==(const DimSpan&) const = default;
};
using Box = std::vector<DimSpan>;  // in the order of graph.dims

// Immutable.
class BucketGrid {
 public:
  static constexpr int kFullRange = 0;

  using Ranges = google::protobuf::RepeatedPtrField<v1::DimBuckets>;
  // Boxes are the products of the dims' ranges; a dim that is not given has one, its bounds. A
  // follower's ends where that of the dim it follows does: the sizes that Find is given have no
  // more of it.
  // INVALID_ARGUMENT names the dim and what would be right: one that is not the graph's or is given
  // twice; ranges that are none, inverted, outside the dim's bounds, overlapping, or leave a gap; a
  // follower that has ranges, follows two dims, or is always above the dim.
  // RESOURCE_EXHAUSTED: more than `max_buckets` boxes.
  static absl::StatusOr<BucketGrid> Create(const Graph& graph, const Ranges& buckets,
                                           int64_t max_buckets);

  // Number of boxes, the full range included; 1 if there are no others. A single box that equals
  // the full range is none.
  int size() const { return static_cast<int>(boxes_.size()); }
  const Box& box(int bucket) const { return boxes_[bucket]; }
  // Returns the box of these sizes; kFullRange if there are no boxes. REQUIRES: sizes in bounds
  int Find(absl::Span<const int64_t> dims) const;
  // "b=1..1 s=1..128"
  std::string Text(int bucket) const;
  std::vector<v1::DimRange> ToProto(int bucket) const;
  // Returns the box as a serialised internal.Box, by which database rows name it.
  std::string Bytes(int bucket) const;
  bool operator==(const BucketGrid&) const = default;

 private:
  BucketGrid() = default;

  std::vector<std::string> names_;  // the dims'
  // By dim: the ranges' upper ends, ascending.
  std::vector<std::vector<int64_t>> ends_;
  // The full range, then the products, those of the last dim next to each other.
  std::vector<Box> boxes_;
};

// Returns the ranges of dims for an upload that gives none: 1, 2-4, 5-16, ... within the bounds of
// dims that span more than a factor of 4. Takes the widest dims first, as many as make at most
// `max_buckets` boxes. If the widest alone has more ranges, they are made wider.
BucketGrid::Ranges DefaultRanges(const Graph& graph, int64_t max_buckets);

// Returns those of a decoder with states: its rows are cut into 1, 2-4, 5-16, 17-64 and the rest,
// the first of which are one where `max_buckets` are fewer; sequences and wanted rows follow them.
// None: the graph is no such decoder (compiler/ir/rows/paged_sizes.h).
BucketGrid::Ranges DecoderRanges(const Graph& graph, int64_t max_buckets);

// Returns `graph` with its dims bounded by `box`. Its hash is the same, because hashes leave out
// bounds.
Graph NarrowedTo(const Graph& graph, const Box& box);

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_BUCKET_GRID_H_
