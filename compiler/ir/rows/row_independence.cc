#include "compiler/ir/rows/row_independence.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/rows/walk.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using row_walk::Rows;
using row_walk::Walk;

namespace {

// Returns the rows of a value of this shape, provided that its rows are kept apart.
absl::StatusOr<Rows> RowsOf(const Walk& walk, const Shape& shape) {
  Rows rows;
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
    if (!shape[axis].Uses(walk.dim)) continue;
    const Expr size = walk.bounds.Simplify(shape[axis]);
    if (!size.Uses(walk.dim)) continue;
    if (rows.any()) {
      return Invalid("axes ", rows.axis, " and ", axis, " of ", ShapeToString(shape),
                     " both have dim ", walk.dim, "; rows are on one");
    }
    const std::optional<Expr::Affine> affine = size.AsAffine(walk.dim);
    if (!affine || !affine->base.IsConstant(0)) {
      return Invalid("axis ", axis, " has size ", size.ToString(),
                     ", not a number of elements for each row of dim ", walk.dim);
    }
    rows = {axis, affine->stride};
  }
  return rows;
}

absl::StatusOr<Rows> ProveInput(const Walk& walk, const Node& node) {
  absl::StatusOr<Rows> rows = RowsOf(walk, node.type.shape);
  if (!rows.ok() || rows->axis <= 0) return rows;
  return Invalid("has dim ", walk.dim, " on axis ", rows->axis, "; rows must be on axis 0");
}

absl::StatusOr<Rows> ProveIota(const Walk& walk, const Node& node) {
  absl::StatusOr<Rows> rows = RowsOf(walk, node.type.shape);
  if (!rows.ok() || !rows->any() || rows->axis != GetAttr<int64_t>(node.attrs, "axis")) return rows;
  return Invalid("counts the rows of dim ", walk.dim);
}

absl::StatusOr<Rows> ProveRandomBits(const Walk& walk, const Node& node) {
  absl::StatusOr<Rows> rows = RowsOf(walk, node.type.shape);
  if (!rows.ok() || !rows->any()) return rows;  // the seed, a scalar, has no rows
  return Invalid("numbers its words across the rows of dim ", walk.dim);
}

// The flow of an op is told nothing of sizes but the shapes of its operands, which outside the axis
// of rows are the same for any number of rows.
absl::StatusOr<Rows> ProveByFlow(const Walk& walk, const Node& node) {
  const RowTraits& traits = OpInfo(node.op).traits.rows;
  const AxisFlow flow = traits.flow(walk.graph, node);
  const int operands = static_cast<int>(node.inputs.size());
  Rows rows;
  int first = -1;  // operand with rows
  for (int i = 0; i < operands; ++i) {
    const Rows& own = walk.rows[node.inputs[i]];
    if (!own.any()) continue;
    const int axis = flow[i][own.axis];
    if (axis == kMixed) return Invalid(traits.mixes, " the rows of dim ", walk.dim);
    if (first < 0) {
      rows = {axis, own.per_row};
      first = i;
    } else if (axis != rows.axis) {
      return Invalid("pairs each row of dim ", walk.dim, " of operand ", first,
                     " with every row of operand ", i);
    } else if (!walk.bounds.ProvablyEqual(own.per_row, rows.per_row)) {
      return Invalid("a row of dim ", walk.dim, " is ", rows.per_row.ToString(),
                     " elements of operand ", first, ", but ", own.per_row.ToString(),
                     " of operand ", i);
    }
  }
  // An operand that has the result's axis of rows must have rows there.
  for (int i = 0; i < operands && rows.any(); ++i) {
    if (walk.rows[node.inputs[i]].any()) continue;
    if (std::find(flow[i].begin(), flow[i].end(), rows.axis) == flow[i].end()) continue;
    return Invalid("operand ", i, " has no rows of dim ", walk.dim, " where operand ", first,
                   " has them");
  }
  const absl::StatusOr<Rows> shape = RowsOf(walk, node.type.shape);
  if (!shape.ok()) return shape;
  if (shape->axis == rows.axis && walk.bounds.ProvablyEqual(shape->per_row, rows.per_row)) {
    return rows;
  }
  return Invalid("its result, ", ShapeToString(node.type.shape), ", does not have the rows of dim ",
                 walk.dim, " of its operands");
}

// The coordinates of an IndexMap, at one position in a row of its result.
class RowMap {
 public:
  RowMap(const Walk& walk, const IndexMap& map, const Rows& result)
      : walk_(walk), bounds_(walk.bounds) {
    for (int i = 0; i < static_cast<int>(map.shape.size()); ++i) {
      const std::string axis = Expr::Axis(i).ToString();
      if (i != result.axis) {
        bounds_.SetExtent(axis, walk.bounds.Simplify(map.shape[i]));
        continue;
      }
      bounds_.SetExtent(kRow, Expr::Symbol(walk.dim));
      bounds_.SetExtent(kWithin, result.per_row);
      const Expr within = result.per_row.IsConstant(1) ? Expr(0) : Expr::Symbol(kWithin);
      places_[axis] = result.per_row * Expr::Symbol(kRow) + within;
    }
  }

  // Checks that the coordinate of an axis without rows is the same for each row, for any number of
  // rows.
  absl::Status CheckAcross(int axis, const Expr& coordinate) const {
    const Expr at = At(coordinate);
    if (!at.Uses(kRow) && !at.Uses(walk_.dim)) return absl::OkStatus();
    return Invalid("coordinate ", axis, ", ", coordinate.ToString(), ", varies with the ",
                   at.Uses(kRow) ? "row" : "size", " of dim ", walk_.dim);
  }

  // Checks that the coordinate of the axis of rows stays at the same position of its own row, for
  // each row. A coordinate that leaves its row reads another row; fill occurs only outside all
  // rows.
  absl::Status CheckAlong(const Rows& operand, const Expr& coordinate, bool fill) const {
    const Expr at = bounds_.Simplify(At(coordinate) - operand.per_row * Expr::Symbol(kRow));
    const bool same = !at.Uses(kRow) && !at.Uses(walk_.dim);
    // Without fill, the coordinate is inside for the first and the last row, so `at` is in [0, q).
    if (same && (!fill || (bounds_.NonNegative(at) && bounds_.Less(at, operand.per_row)))) {
      return absl::OkStatus();
    }
    return Invalid("may read another row of dim ", walk_.dim, ": coordinate ", operand.axis, " is ",
                   coordinate.ToString());
  }

 private:
  // Names of dims have no $, and names of axes no letter.
  static constexpr std::string_view kRow = "$row", kWithin = "$within";

  Expr At(const Expr& coordinate) const {
    if (places_.empty() && !coordinate.Uses(walk_.dim)) return coordinate;
    return bounds_.Simplify(coordinate.Substitute(places_));
  }

  const Walk& walk_;
  Bounds bounds_;  // bounds of dims, axes, kRow and kWithin
  std::map<std::string, Expr, std::less<>> places_;
};

absl::StatusOr<Rows> ProveIndexMap(const Walk& walk, const Node& node) {
  const auto& map = GetAttr<IndexMap>(node.attrs, "map");
  const Rows& operand = walk.rows[node.inputs[0]];
  absl::StatusOr<Rows> result = RowsOf(walk, map.shape);
  if (!result.ok()) return result;
  if (operand.any() && !result->any()) {
    return Invalid("takes single rows of dim ", walk.dim, ": its result, ",
                   ShapeToString(map.shape), ", has none");
  }
  const RowMap row_map(walk, map, *result);
  for (int i = 0; i < static_cast<int>(map.coordinates.size()); ++i) {
    const Expr& coordinate = map.coordinates[i];
    const absl::Status s =
        i == operand.axis ? row_map.CheckAlong(operand, coordinate, node.attrs.contains("fill"))
                          : row_map.CheckAcross(i, coordinate);
    if (!s.ok()) return s;
  }
  return result;
}

absl::Status CheckFixedSizes(const Walk& walk, const Node& node) {
  for (const auto& [name, value] : node.attrs) {
    const auto* shape = std::get_if<Shape>(&value);
    if (shape == nullptr) continue;
    for (const Expr& e : *shape) {
      if (!walk.bounds.Simplify(e).Uses(walk.dim)) continue;
      return Invalid(name, ", ", ShapeToString(*shape), ", varies with the size of dim ", walk.dim);
    }
  }
  return absl::OkStatus();
}

absl::Status WalkNodes(Walk* walk);

// A loop keeps rows apart if its body does and each state keeps its rows where they are.
absl::StatusOr<Rows> ProveScan(const Walk& walk, const Node& node) {
  const ScanView scan = ViewScan(node);
  if (walk.bounds.Simplify(scan.length).Uses(walk.dim)) {
    return Invalid("its length, ", scan.length.ToString(), ", varies with the size of dim ",
                   walk.dim);
  }
  std::vector<Rows> given = {Rows()};
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
    Rows rows = walk.rows[node.inputs[i]];
    if (i >= scan.states && i < scan.states + scan.scanned && rows.any()) --rows.axis;
    given.push_back(rows);
  }
  const Graph body = BodyOf(scan, walk.graph.dims);
  Walk inside{body, walk.dim, walk.bounds, std::vector<Rows>(body.nodes.size()), &given};
  if (absl::Status s = WalkNodes(&inside); !s.ok()) return Prefixed("in its body, ", s);
  for (int i = 0; i < scan.states; ++i) {
    const Rows &before = given[scan.InputOf(i)], &after = inside.rows[body.outputs[i].node];
    if (before.axis == after.axis && walk.bounds.ProvablyEqual(before.per_row, after.per_row)) {
      continue;
    }
    return Invalid("state ", i, " has its rows of dim ", walk.dim,
                   " elsewhere, or none, after a step");
  }
  Rows rows = inside.rows[body.outputs[scan.result].node];
  if (scan.result >= scan.states && rows.any()) ++rows.axis;
  return rows;
}

}  // namespace

absl::StatusOr<Rows> row_walk::Prove(const Walk& walk, const Node& node) {
  switch (FormOf(node.op)) {
    case OpForm::kOperand:
      if (IsStateRead(node.op)) return Invalid("is a state, which all calls share");
      return IsInput(node.op) ? ProveInput(walk, node) : Rows();  // parameters have constant shape
    case OpForm::kLiteral:
      return Rows();
    case OpForm::kCount:
      return ProveIota(walk, node);
    case OpForm::kRandom:
      return ProveRandomBits(walk, node);
    case OpForm::kView:
      return ProveIndexMap(walk, node);
    case OpForm::kLoop:
      return ProveScan(walk, node);
    default:
      break;
  }
  if (OpInfo(node.op).traits.rows.fixed_sizes) {
    RETURN_IF_ERROR(CheckFixedSizes(walk, node));
  }
  return ProveByFlow(walk, node);
}

std::vector<bool> row_walk::Needed(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size(), false);
  for (const Output& output : graph.outputs) needed[output.node] = true;
  for (NodeId update : graph.updates) needed[update] = true;
  for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
    needed[n] = needed[n] || IsInput(graph.node(n).op);
    if (!needed[n]) continue;
    for (NodeId input : graph.node(n).inputs) needed[input] = true;
  }
  return needed;
}

absl::Status row_walk::CheckDim(const Graph& graph, std::string_view name) {
  std::string names;
  for (const Dim& dim : graph.dims) {
    if (dim.name == name) return absl::OkStatus();
    names += Cat(names.empty() ? "" : ", ", dim.name);
  }
  return Invalid(Quoted(name), " is not a dim of the graph; ",
                 names.empty() ? "it has none" : Cat("its dims: ", names));
}

namespace {

absl::Status WalkNodes(Walk* walk) {
  const std::vector<bool> needed = row_walk::Needed(walk->graph);
  size_t input = 0;
  for (NodeId n = 0; n < static_cast<NodeId>(needed.size()); ++n) {
    if (!needed[n]) continue;
    const Node& node = walk->graph.node(n);
    if (IsInput(node.op) && walk->given != nullptr) {
      walk->rows[n] = (*walk->given)[input++];
      continue;
    }
    const absl::StatusOr<Rows> rows = row_walk::Prove(*walk, node);
    if (!rows.ok()) return Prefixed(walk->graph.Describe(n) + ": ", rows.status());
    walk->rows[n] = *rows;
  }
  return absl::OkStatus();
}

absl::Status CheckEnds(const Walk& walk) {
  const std::vector<NodeId> inputs = walk.graph.InputIds();
  const auto with_rows = [&](NodeId input) { return walk.rows[input].any(); };
  if (std::none_of(inputs.begin(), inputs.end(), with_rows)) {
    return Invalid("no input has rows of dim ", walk.dim);
  }
  for (const Output& output : walk.graph.outputs) {
    const Rows& rows = walk.rows[output.node];
    if (rows.axis <= 0) continue;
    return Invalid("output ", Quoted(output.name), ": has its rows of dim ", walk.dim, " on axis ",
                   rows.axis, "; they must be on axis 0");
  }
  return absl::OkStatus();
}

}  // namespace

RowProof ProveRowIndependent(const Graph& graph, std::string_view dim) {
  Walk walk{graph, std::string(dim), graph.DimBounds(), std::vector<Rows>(graph.nodes.size())};
  absl::Status s = row_walk::CheckDim(graph, dim);
  if (s.ok()) s = WalkNodes(&walk);
  if (s.ok()) s = CheckEnds(walk);
  RowProof proof;
  proof.independent = s.ok();
  proof.reason = std::string(s.message());
  if (!s.ok()) return proof;
  for (NodeId input : graph.InputIds()) proof.inputs.push_back(walk.rows[input]);
  for (const Output& output : graph.outputs) proof.outputs.push_back(walk.rows[output.node]);
  return proof;
}

}  // namespace athanor
