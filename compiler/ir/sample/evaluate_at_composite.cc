// The functions of evaluate_at_rows.cc for composites.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/ops/reference_util.h"
#include "compiler/ir/sample/evaluate_at_internal.h"

namespace athanor {
namespace {

void SortDistinct(Positions* positions) {
  std::sort(positions->begin(), positions->end());
  positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
}

// Returns the element strides of an operand over `letters`; zero if it lacks the letter.
std::vector<int64_t> LetterStrides(const std::string& letters, const std::string& own,
                                   absl::Span<const int64_t> shape) {
  const std::vector<int64_t> strides = Strides(shape);
  std::vector<int64_t> result;
  for (char letter : letters) {
    const size_t axis = own.find(letter);
    result.push_back(axis == std::string::npos ? 0 : strides[axis]);
  }
  return result;
}

}  // namespace

absl::Status Cutter::DependContract(NodeId n) {
  const Node& node = graph_.node(n);
  absl::StatusOr<ContractSpec> spec = ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  if (!spec.ok()) return spec.status();
  const absl::Span<const int64_t> lhs = ShapeOf(node.inputs[0]), rhs = ShapeOf(node.inputs[1]);
  std::string summed;
  std::vector<int64_t> sizes;
  for (char letter : spec->lhs + spec->rhs) {
    if ((spec->result + summed).find(letter) != std::string::npos) continue;
    summed += letter;
    const size_t axis = spec->lhs.find(letter);
    sizes.push_back(axis != std::string::npos ? lhs[axis] : rhs[spec->rhs.find(letter)]);
  }
  const int64_t count = Count(wanted_[n]), terms = Product(sizes);
  if (absl::Status s = Spend(n, count, terms); !s.ok()) return s;
  if (absl::Status s = Spend(n, count, terms); !s.ok()) return s;
  Handle sides[2];
  for (int side = 0; side < 2; ++side) {
    const std::string& own = side == 0 ? spec->lhs : spec->rhs;
    const absl::Span<const int64_t> shape = side == 0 ? lhs : rhs;
    const std::vector<int64_t> strides = LetterStrides(spec->result, own, shape);
    Positions bases;
    for (int64_t p : wanted_[n]) bases.push_back(Dot(CoordinatesOf(ShapeOf(n), p), strides));
    sides[side] = Pull(node.inputs[side], {count, terms},
                       Sums(bases, OffsetsOf(sizes, LetterStrides(summed, own, shape))));
  }
  recipes_[n] = [this, a = sides[0], b = sides[1]] {
    return Add(Op::kContract, {Get(a), Get(b)}, {{"spec", std::string("ab,ab->a")}});
  };
  return absl::OkStatus();
}

absl::Status Cutter::DependRows(NodeId n, int64_t axis) {
  const Node& node = graph_.node(n);
  // TopK's result is shorter than the rows it depends on.
  const int64_t length = ShapeOf(node.inputs[0])[axis], kept = ShapeOf(n)[axis];
  const int64_t inner = Product(ShapeOf(n).subspan(axis + 1));
  const auto first_of = [&](int64_t p) { return p / inner / kept * length * inner + p % inner; };
  Positions firsts;
  for (int64_t p : wanted_[n]) firsts.push_back(first_of(p));
  SortDistinct(&firsts);
  const int64_t rows = Count(firsts);
  if (absl::Status s = Spend(n, rows, length); !s.ok()) return s;
  Positions picks;
  for (int64_t p : wanted_[n]) {
    const auto row = std::lower_bound(firsts.begin(), firsts.end(), first_of(p)) - firsts.begin();
    picks.push_back(row * kept + p / inner % kept);
  }
  std::vector<Handle> operands = {
      Pull(node.inputs[0], {rows, length}, Sums(firsts, UpTo(length, inner)))};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (absl::Status s = Spend(n, length); !s.ok()) return s;
    operands.push_back(Pull(node.inputs[i], {length}, UpTo(length)));
  }
  recipes_[n] = [this, n, rows, kept, operands,
                 picks = std::move(picks)]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    for (Handle operand : operands) {
      absl::StatusOr<NodeId> id = Get(operand);
      if (!id.ok()) return id.status();
      ids.push_back(*id);
    }
    Attrs attrs = graph_.node(n).attrs;
    if (attrs.contains("axis")) attrs.find("axis")->second = int64_t{1};
    if (attrs.contains("k")) attrs.find("k")->second = Shape{kept};
    return Add(
        Op::kGather,
        {Flatten(builder_.Add(graph_.node(n).op, std::move(ids), std::move(attrs)), {rows, kept}),
         IndexLiteral({Count(picks)}, picks)},
        {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

// Each wanted element has a batch of its own: its query, all keys, and its column of their values.
absl::Status Cutter::DependAttention(NodeId n) {
  const Node& node = graph_.node(n);
  const absl::Span<const int64_t> q_shape = ShapeOf(node.inputs[0]),
                                  v_shape = ShapeOf(node.inputs[2]);
  const size_t rank = q_shape.size();
  const int64_t queries = q_shape[rank - 2], depth = q_shape[rank - 1];
  const int64_t keys = v_shape[rank - 2], columns = v_shape[rank - 1];
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count, depth); !s.ok()) return s;
  if (absl::Status s = Spend(n, count, keys); !s.ok()) return s;
  if (absl::Status s = Spend(n, count * keys, depth + 1); !s.ok()) return s;
  Positions q_bases, k_bases, v_bases, mask_positions;
  std::vector<int64_t> mask_strides(rank, 0);
  if (node.inputs.size() > 3) {
    const absl::Span<const int64_t> mask = ShapeOf(node.inputs[3]);
    const std::vector<int64_t> own = Strides(mask);
    for (size_t i = 0; i < own.size(); ++i) {
      if (mask[i] != 1) mask_strides[rank - own.size() + i] = own[i];
    }
  }
  for (int64_t p : wanted_[n]) {
    std::vector<int64_t> at = CoordinatesOf(ShapeOf(n), p);
    const int64_t query = p / columns, batch = query / queries;
    q_bases.push_back(query * depth);
    k_bases.push_back(batch * keys * depth);
    v_bases.push_back(batch * keys * columns + p % columns);
    for (int64_t j = 0; j < keys && node.inputs.size() > 3; ++j) {
      at.back() = j;
      mask_positions.push_back(Dot(at, mask_strides));
    }
  }
  const Handle q = Pull(node.inputs[0], {count, 1, depth}, Sums(q_bases, UpTo(depth)));
  const Handle k = Pull(node.inputs[1], {count, keys, depth}, Sums(k_bases, UpTo(keys * depth)));
  const Handle v = Pull(node.inputs[2], {count, keys, 1}, Sums(v_bases, UpTo(keys, columns)));
  const Handle mask = node.inputs.size() > 3
                          ? Pull(node.inputs[3], {count, 1, keys}, std::move(mask_positions))
                          : -1;
  recipes_[n] = AttentionRecipe(n, q, k, v, mask, keys);
  return absl::OkStatus();
}

Cutter::Recipe Cutter::AttentionRecipe(NodeId n, Handle q, Handle k, Handle v, Handle mask,
                                       int64_t keys) {
  return [this, n, q, k, v, mask, keys]() -> absl::StatusOr<NodeId> {
    const Node& node = graph_.node(n);
    const absl::Span<const int64_t> shape = ShapeOf(n);
    const int64_t count = Count(wanted_[n]), queries = shape[shape.size() - 2];
    Attrs attrs = node.attrs;
    const bool causal = GetAttrOr<bool>(attrs, "causal", false);
    absl::StatusOr<NodeId> hide;
    if (mask >= 0) hide = Get(mask);
    if (causal) {
      attrs.find("causal")->second = false;
      Tensor seen = Tensor::Zeros(DType::kBool, {count, 1, keys});
      for (int64_t w = 0; w < count; ++w) {
        const int64_t i = wanted_[n][w] / shape.back() % queries;
        for (int64_t j = 0; j < keys; ++j) seen.bytes[w * keys + j] = j <= i + keys - queries;
      }
      const DType dtype = mask >= 0 ? graph_.node(node.inputs[3]).type.dtype : DType::kBool;
      Tensor hidden = Tensor::Zeros(dtype, seen.shape);
      for (int64_t i = 0; i < hidden.elements() && dtype != DType::kBool; ++i) {
        StoreScalar(hidden, i, Scalar::Float(dtype, -std::numeric_limits<double>::infinity()));
      }
      hide = mask < 0
                 ? Literal(std::move(seen))
                 : Add(Op::kSelect, {Literal(std::move(seen)), hide, Literal(std::move(hidden))});
    }
    return Flatten(mask >= 0 || causal ? Add(Op::kAttention, {Get(q), Get(k), Get(v), hide}, attrs)
                                       : Add(Op::kAttention, {Get(q), Get(k), Get(v)}, attrs),
                   {count, 1, 1});
  };
}

absl::Status Cutter::DependEmbeddingBag(NodeId n) {
  const Node& node = graph_.node(n);
  const int64_t rows = ShapeOf(node.inputs[0])[0], columns = ShapeOf(node.inputs[0])[1];
  const int64_t ids = Product(ShapeOf(node.inputs[1])), bags = Product(ShapeOf(node.inputs[2]));
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count, 2); !s.ok()) return s;
  Positions begin_at, end_at;  // in the offsets; the last bag ends with the ids
  for (int64_t p : wanted_[n]) {
    begin_at.push_back(p / columns);
    end_at.push_back(std::min(p / columns + 1, bags - 1));
  }
  absl::StatusOr<Positions> begins = IndexValues(node.inputs[2], begin_at);
  if (!begins.ok()) return begins.status();
  absl::StatusOr<Positions> ends = IndexValues(node.inputs[2], end_at);
  if (!ends.ok()) return ends.status();
  // members: positions in the ids. member_of: the wanted element of each. offsets: positions in
  // members.
  Positions members, member_of, offsets;
  for (int64_t w = 0; w < count; ++w) {
    const int64_t first = (*begins)[w];
    const int64_t last = begin_at[w] + 1 < bags ? (*ends)[w] : ids;
    if (first < 0 || first > last || last > ids || (begin_at[w] == 0 && first != 0)) {
      return absl::OutOfRangeError(absl::StrCat("the offsets give bag ", begin_at[w], " the ids [",
                                                first, ", ", last, ") of ", ids));
    }
    if (absl::Status s = Spend(n, last - first, 2); !s.ok()) return s;
    offsets.push_back(Count(members));
    for (int64_t i = first; i < last; ++i) {
      members.push_back(i);
      member_of.push_back(w);
    }
  }
  absl::StatusOr<Positions> chosen = IndexValues(node.inputs[1], members);
  if (!chosen.ok()) return chosen.status();
  Positions sources;
  for (size_t m = 0; m < members.size(); ++m) {
    const int64_t id = (*chosen)[m];
    if (id < 0 || id >= rows) return OutsideAxis(id, 0, rows);
    sources.push_back(id * columns + wanted_[n][member_of[m]] % columns);
  }
  const Handle guard_ids = PullIfInexact(node.inputs[1], members);
  const Handle guard_offsets = PullIfInexact(node.inputs[2], begin_at);
  const int64_t total = Count(sources);
  const Handle table = Pull(node.inputs[0], {total, 1}, std::move(sources));
  recipes_[n] = [this, n, table, guard_ids, guard_offsets, total, count,
                 offsets = std::move(offsets)] {
    return Guarded(Flatten(Add(Op::kEmbeddingBag,
                               {Get(table), IndexLiteral({total}, UpTo(total)),
                                IndexLiteral({count}, offsets)},
                               graph_.node(n).attrs),
                           {count, 1}),
                   {guard_ids, guard_offsets});
  };
  return absl::OkStatus();
}

}  // namespace athanor
