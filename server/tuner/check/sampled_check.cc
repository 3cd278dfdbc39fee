#include "server/tuner/check/sampled_check.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/sample/evaluate_at.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/check/sample.h"
#include "server/tuner/run/inputs.h"

namespace athanor {
namespace {

using Positions = std::vector<int64_t>;

// Elements visited for one output: takes 10 to 15 ms, bounds included.
constexpr int64_t kVisits = 100'000;
// Elements visited for a single one, if that limit is too low.
constexpr int64_t kVisitsForOne = 10 * kVisits;
constexpr int64_t kMaxSamples = 512;
constexpr int64_t kMinSpread = 4;
// Written slots of which an element is compared.
constexpr int64_t kMostSlots = 64;
// Indices examined before a kernel runs.
constexpr int64_t kIndexVisits = 200'000;

Tensor Picked(const Tensor& like, absl::string_view bytes, const Positions& positions) {
  const size_t size = DTypeBytes(like.dtype);
  Tensor picked{like.dtype, like.shape, {}};
  for (int64_t p : positions) picked.bytes.append(bytes.data() + p * size, size);
  return picked;
}

class OutputSamples {
 public:
  OutputSamples(const SampledRun& run, size_t output, std::vector<int64_t> shape)
      : run_(run), output_(output), shape_(std::move(shape)) {}

  absl::Status Compare(SampleReport* report);

 private:
  const Output& output() const { return run_.graph.outputs[output_]; }
  // Returns elements of slots that the output, a state, was written at. DATA_LOSS: another slot was
  // written.
  absl::StatusOr<Positions> WrittenPositions() const;
  // Returns how many elements it visited.
  absl::StatusOr<int64_t> CompareAt(const Positions& positions, int64_t max_visited,
                                    SampleReport* report);
  absl::Status Judge(const Positions& positions, const Tensor& got, const Tensor& want,
                     absl::Span<const double> bounds, SampleReport* report) const;
  std::string ElementText(int64_t position) const;

  const SampledRun& run_;
  const size_t output_;
  const std::vector<int64_t> shape_;
};

std::string OutputSamples::ElementText(int64_t position) const {
  Positions at(shape_.size());
  for (size_t i = shape_.size(); i-- > 0;) {
    at[i] = position % shape_[i];
    position /= shape_[i];
  }
  return absl::StrCat("[", absl::StrJoin(at, ","), "] of [", absl::StrJoin(shape_, ","), "]");
}

absl::Status OutputSamples::Judge(const Positions& positions, const Tensor& got, const Tensor& want,
                                  absl::Span<const double> bounds, SampleReport* report) const {
  const absl::StatusOr<double> worst = WithinBounds(got, want, bounds);
  if (worst.ok()) {
    report->worst_error = std::max(report->worst_error, *worst);
    report->elements += std::count_if(bounds.begin(), bounds.end(), [](double b) {
      return b != std::numeric_limits<double>::infinity();
    });
    return absl::OkStatus();
  }
  // Finds the differing element by its position in the output.
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t size = DTypeBytes(got.dtype);
    const Tensor one{got.dtype, {}, got.bytes.substr(i * size, size)};
    const Tensor other{want.dtype, {}, want.bytes.substr(i * size, size)};
    const absl::Status same = WithinBounds(one, other, bounds.subspan(i, 1)).status();
    if (same.ok()) continue;
    return absl::DataLossError(absl::StrCat("output \"", output().name, "\", element ",
                                            ElementText(positions[i]), ": ", same.message()));
  }
  return worst.status();
}

absl::StatusOr<int64_t> OutputSamples::CompareAt(const Positions& positions, int64_t max_visited,
                                                 SampleReport* report) {
  std::vector<Positions> by_output(run_.graph.outputs.size());
  by_output[output_] = positions;
  ASSIGN_OR_RETURN(PartialGraph part,
                   CutElements(run_.graph, run_.dims, by_output, run_.inputs, max_visited));
  part.graph.outputs = {part.graph.outputs[output_]};
  ASSIGN_OR_RETURN(const BoundedValues right, EvaluateWithBounds(part.graph, part.inputs));
  const Tensor got = Picked(right.values[0], run_.outputs[output_], positions);
  RETURN_IF_ERROR(Judge(positions, got, right.values[0], right.errors[0], report));
  return part.visited;
}

absl::StatusOr<Positions> OutputSamples::WrittenPositions() const {
  const Node& write = run_.graph.node(output().node);
  if (!IsStateWrite(write.op)) return Positions();
  const std::vector<NodeId> arguments = run_.graph.ArgumentIds();
  const auto state = std::find(arguments.begin(), arguments.end(), write.inputs[0]);
  const absl::string_view before = run_.inputs[state - arguments.begin()];
  const absl::string_view after = run_.outputs[output_];
  ASSIGN_OR_RETURN(std::vector<int64_t> rows,
                   ConcreteShape(run_.graph.node(write.inputs[1]).type.shape, run_.dims));
  Graph indices = run_.graph;
  indices.outputs = {{"slots", write.inputs[1]}};
  std::vector<Positions> positions(1, Positions(rows[0]));
  std::iota(positions[0].begin(), positions[0].end(), 0);
  absl::StatusOr<std::vector<Tensor>> slots =
      EvaluateAt(indices, run_.dims, positions, run_.inputs, kIndexVisits);
  if (absl::IsResourceExhausted(slots.status())) return Positions();
  if (!slots.ok()) return slots.status();
  const int64_t width = shape_[0] == 0 ? 0 : static_cast<int64_t>(after.size()) / shape_[0];
  std::vector<bool> written(shape_[0]);
  const int64_t elements = width / DTypeBytes(write.type.dtype);
  Positions chosen;
  const int64_t step = std::max<int64_t>(1, rows[0] / kMostSlots);
  for (int64_t i = 0; i < rows[0]; ++i) {
    const int64_t slot = LoadScalar((*slots)[0], i).i;
    if (slot < 0 || slot >= shape_[0]) {
      return absl::OutOfRangeError(absl::StrCat("slot ", slot, " is outside [0, ", shape_[0], ")"));
    }
    written[slot] = true;
    // Another element of each, so that all of a slot are seen in some.
    if (i % step == 0 && elements > 0) chosen.push_back(slot * elements + i / step * 7 % elements);
  }
  for (int64_t slot = 0; slot < shape_[0]; ++slot) {
    if (written[slot] || before.substr(slot * width, width) == after.substr(slot * width, width)) {
      continue;
    }
    return absl::DataLossError(absl::StrCat("output \"", output().name, "\": slot ", slot,
                                            " is changed, which no row writes"));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

absl::Status OutputSamples::Compare(SampleReport* report) {
  Positions first = EdgePositions(shape_);
  if (first.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Positions written, WrittenPositions());
  absl::Status same;
  if (!written.empty()) same = CompareAt(written, kVisits, report).status();
  if (absl::IsResourceExhausted(same)) {
    same = CompareAt({written.front()}, kVisitsForOne, report).status();
  }
  if (!same.ok() && !absl::IsResourceExhausted(same)) return same;
  const DType dtype = run_.graph.node(output().node).type.dtype;
  const Positions suspects = SuspectPositions(run_.outputs[output_], dtype, run_.noise);
  Positions both;
  std::set_union(first.begin(), first.end(), suspects.begin(), suspects.end(),
                 std::back_inserter(both));
  absl::StatusOr<int64_t> visited = CompareAt(both, kVisits, report);
  if (absl::IsResourceExhausted(visited.status())) {
    // Compares at least one element: a suspect, or the last one.
    const Positions one = {suspects.empty() ? first.back() : suspects.front()};
    visited = CompareAt(one, kVisitsForOne, report);
    if (absl::IsResourceExhausted(visited.status())) {
      report->left_out.push_back(
          absl::StrCat("output \"", output().name, "\": ", visited.status().message()));
      return absl::OkStatus();
    }
    return visited.status();
  }
  if (!visited.ok()) return visited.status();
  const int64_t each = *visited / static_cast<int64_t>(both.size()) + 1;
  int64_t count = std::min((kVisits - *visited) / each, kMaxSamples);
  // Elements may differ in cost, so the count may be too high.
  for (; count >= kMinSpread; count /= 4) {
    visited = CompareAt(SpreadPositions(shape_, count, run_.seed), kVisits, report);
    if (!absl::IsResourceExhausted(visited.status())) return visited.status();
  }
  return absl::OkStatus();
}

// A use of indices: the node that holds them, and the number of elements to select from.
struct IndexUse {
  NodeId node;
  int64_t extent;
};

std::vector<IndexUse> IndexUses(const Graph& graph, const Expr::Env& dims) {
  std::vector<IndexUse> uses;
  for (const Node& node : graph.nodes) {
    const std::optional<int64_t> axis =
        IsStateWrite(node.op) ? 0 : SelectedAxis(node.op, node.attrs);
    if (!axis) continue;
    const Expr& size = graph.node(node.inputs[0]).type.shape[*axis];
    uses.push_back({node.inputs[1], size.Evaluate(dims).value_or(0)});
  }
  return uses;
}

}  // namespace

absl::StatusOr<SampleReport> CompareSamples(const SampledRun& run) {
  SampleReport report;
  for (size_t o = 0; o < run.graph.outputs.size(); ++o) {
    const Output& output = run.graph.outputs[o];
    ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                     ConcreteShape(run.graph.node(output.node).type.shape, run.dims));
    const absl::Status same = OutputSamples(run, o, std::move(shape)).Compare(&report);
    if (absl::IsOutOfRange(same)) {
      return absl::DataLossError(
          absl::StrCat("an index out of range goes unnoticed: ", same.message()));
    }
    if (!same.ok()) return same;
  }
  return report;
}

absl::StatusOr<bool> IndicesInRange(const Graph& graph, const Expr::Env& dims,
                                    absl::Span<const absl::string_view> inputs) {
  bool all = true;
  for (const IndexUse& use : IndexUses(graph, dims)) {
    const Node& node = graph.node(use.node);
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ConcreteShape(node.type.shape, dims));
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    // Inputs repeat their first elements.
    if (IsDeclared(node.op)) elements = std::min(elements, kMaxDrawn);
    if (elements > kIndexVisits) {
      all = false;
      continue;
    }
    Graph indices = graph;
    indices.outputs = {{"indices", use.node}};
    std::vector<Positions> positions(1, Positions(elements));
    std::iota(positions[0].begin(), positions[0].end(), 0);
    absl::StatusOr<std::vector<Tensor>> values =
        EvaluateAt(indices, dims, positions, inputs, kIndexVisits);
    if (absl::IsResourceExhausted(values.status())) {
      all = false;
      continue;
    }
    if (!values.ok()) return values.status();
    for (int64_t i = 0; i < elements; ++i) {
      const Scalar index = LoadScalar((*values)[0], i);
      // A negative index is a larger unsigned number.
      if (index.u < static_cast<uint64_t>(use.extent)) continue;
      return absl::OutOfRangeError(absl::StrCat(graph.Describe(use.node), ": index ", i,
                                                " is outside [0, ", use.extent, ")"));
    }
  }
  return all;
}

}  // namespace athanor
