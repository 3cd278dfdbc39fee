// Decomposes Attention, PagedAttention and EmbeddingBag.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

NodeId ExpandAttention(Expansion& x, const Node& node, Inputs in) {
  NodeId q = Up(x, in[0]), k = Up(x, in[1]), v = Up(x, in[2]);
  const size_t rank = x.Type(q).shape.size();
  const DType dtype = x.Type(q).dtype;
  const std::string batch = std::string("abcdefghijklmn").substr(0, rank - 2);
  auto spec = [&](const char* a, const char* b, const char* c) {
    return Attrs{{"spec", batch + a + "," + batch + b + "->" + batch + c}};
  };
  NodeId scores = x.Add(Op::kContract, {q, k}, spec("qz", "kz", "qk"));
  const Shape shape = x.Type(scores).shape;
  const int64_t keys = static_cast<int64_t>(rank) - 1;
  NodeId factor;
  if (node.attrs.contains("scale")) {
    factor = x.Fill(dtype, GetAttr<double>(node.attrs, "scale"), shape);
  } else {
    factor = x.Add(Op::kRecip, {x.Add(Op::kSqrt, {x.Size(dtype, x.Type(q).shape.back(), shape)})});
  }
  scores = x.Add(Op::kMul, {scores, factor});
  NodeId hidden = x.Fill(dtype, -std::numeric_limits<double>::infinity(), shape);
  if (in.size() > 3) {
    const Shape& mask_shape = x.Type(in[3]).shape;
    std::vector<Expr> coordinates;
    for (size_t i = 0; i < mask_shape.size(); ++i) {
      int axis = static_cast<int>(i + rank - mask_shape.size());
      coordinates.push_back(mask_shape[i].IsConstant(1) ? Expr(0) : Expr::Axis(axis));
    }
    NodeId mask = x.Map(in[3], shape, std::move(coordinates));
    if (x.Type(mask).dtype == DType::kBool) {
      scores = x.Add(Op::kSelect, {mask, scores, hidden});
    } else {
      // -inf hides even a NaN score.
      mask = x.Cast(mask, dtype);
      NodeId hides = x.Add(Op::kLessThan, {mask, x.FillLike(mask, Lowest(dtype))});
      scores = x.Add(Op::kSelect, {hides, hidden, x.Add(Op::kAdd, {scores, mask})});
    }
  }
  if (GetAttrOr<bool>(node.attrs, "causal", false)) {
    auto iota = [&](int64_t axis) {
      return x.Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::kI64}});
    };
    NodeId ahead = x.Size(DType::kI64, x.Type(k).shape[rank - 2], shape);
    NodeId behind = x.Size(DType::kI64, x.Type(q).shape[rank - 2], shape);
    NodeId last = x.Add(Op::kAdd, {iota(keys - 1), x.Sub(ahead, behind)});
    scores = x.Add(Op::kSelect, {x.Add(Op::kLessThan, {last, iota(keys)}), hidden, scores});
  }
  NodeId peak = x.Reduce(Op::kMaxReduce, scores, {keys});
  NodeId none = x.Add(Op::kLessThan, {peak, x.FillLike(peak, Lowest(dtype))});
  // -inf minus -inf would be NaN where every key is hidden.
  NodeId base = x.Add(Op::kSelect, {none, x.FillLike(peak, 0), peak});
  NodeId e = x.Add(Op::kExp, {x.Sub(scores, x.Repeat(base, keys, shape))});
  NodeId total = x.Reduce(Op::kSumReduce, e, {keys});
  NodeId sum = x.Add(Op::kContract, {e, v}, spec("qk", "kz", "qz"));
  const Shape result = x.Type(sum).shape;
  // A row with every key hidden is zero.
  NodeId divided = x.Add(Op::kDiv, {sum, x.Repeat(total, keys, result)});
  NodeId some = x.Add(Op::kSelect, {x.Repeat(none, keys, result), x.FillLike(divided, 0), divided});
  return x.Cast(some, node.type.dtype);
}

// Keys by row of q: [T, J], J = blocks of a sequence * block.
struct PagedKeys {
  NodeId seen;   // bool: the row sees the key
  NodeId slots;  // i64: the key's slot; 0 for a key that the row does not see
};

PagedKeys KeysOf(Expansion& x, const Node& node, Inputs in) {
  const int64_t block = GetAttr<int64_t>(node.attrs, "block");
  const Expr rows = x.Type(in[0]).shape[0], keys = x.Type(in[3]).shape[1] * block;
  const Shape cells = {rows, keys};
  const auto iota = [&](Shape shape, int64_t axis) {
    return x.Add(Op::kIota, {},
                 {{"shape", std::move(shape)}, {"axis", axis}, {"dtype", DType::kI64}});
  };
  const auto gather = [&](NodeId data, NodeId index) {
    return x.Add(Op::kGather, {data, index}, {{"axis", int64_t{0}}});
  };
  // Selects each position from all, so that one outside them is an error.
  NodeId last = x.Map(gather(iota({keys}, 0), in[5]), cells, {Expr::Axis(0)});
  NodeId key = iota(cells, 1);
  NodeId seen = x.Add(Op::kNot, {x.Add(Op::kLessThan, {last, key})});
  if (node.attrs.contains("window")) {
    const auto window = static_cast<double>(GetAttr<int64_t>(node.attrs, "window"));
    NodeId end = x.Add(Op::kAdd, {key, x.FillLike(key, window)});
    seen = x.Add(Op::kAnd, {seen, x.Add(Op::kLessThan, {last, end})});
  }
  NodeId table = x.Cast(gather(in[3], in[4]), DType::kI64);
  table = x.Map(table, cells, {Expr::Axis(0), FloorDiv(Expr::Axis(1), block)});
  NodeId size = x.FillLike(key, static_cast<double>(block));
  NodeId slot = x.Add(Op::kAdd, {x.Add(Op::kMul, {table, size}), x.Add(Op::kMod, {key, size})});
  return {seen, x.Add(Op::kSelect, {seen, slot, x.FillLike(slot, 0)})};
}

// Gathers all keys and values of each row's sequence, [T, J, G, D]. Scores of keys that the row
// does not see become -inf, their values 0, whatever the slots hold.
NodeId ExpandPagedAttention(Expansion& x, const Node& node, Inputs in) {
  const Shape q_shape = x.Type(in[0]).shape;
  const Expr groups = x.Type(in[1]).shape[1], rows = q_shape[0], width = q_shape[2];
  const int64_t group = *q_shape[1].constant() / *groups.constant();
  const PagedKeys keys = KeysOf(x, node, in);
  const auto pooled = [&](NodeId pool) {
    return x.Add(Op::kGather, {pool, keys.slots}, {{"axis", int64_t{0}}});
  };
  const Expr t = Expr::Axis(0), g = Expr::Axis(1), r = Expr::Axis(2), last = Expr::Axis(3);
  NodeId q = x.Map(in[0], {rows, groups, group, width}, {t, g * group + r, last});
  NodeId scores =
      x.Add(Op::kContract, {q, pooled(in[1])}, {{"spec", std::string("tgrd,tjgd->tgrj")}});
  const Shape shape = x.Type(scores).shape;
  const double scale = GetAttrOr<double>(node.attrs, "scale", 0);
  NodeId factor =
      node.attrs.contains("scale")
          ? x.FillLike(scores, scale)
          : x.Add(Op::kRecip, {x.Add(Op::kSqrt, {x.Size(node.type.dtype, width, shape)})});
  scores = x.Add(Op::kMul, {scores, factor});
  if (node.attrs.contains("softcap")) {
    NodeId cap = x.FillLike(scores, GetAttr<double>(node.attrs, "softcap"));
    scores = x.Add(Op::kMul, {x.Add(Op::kTanh, {x.Add(Op::kDiv, {scores, cap})}), cap});
  }
  NodeId hidden = x.FillLike(scores, -std::numeric_limits<double>::infinity());
  scores = x.Add(Op::kSelect, {x.Map(keys.seen, shape, {t, last}), scores, hidden});
  NodeId peak = x.Reduce(Op::kMaxReduce, scores, {3});
  const Shape heads = x.Type(peak).shape;
  const bool has_sink = in.size() > 6;
  NodeId sink = has_sink ? x.Map(in[6], heads, {g * group + r}) : 0;
  if (has_sink) peak = x.Add(Op::kMax, {peak, sink});
  NodeId e = x.Add(Op::kExp, {x.Sub(scores, x.Repeat(peak, 3, shape))});
  NodeId total = x.Reduce(Op::kSumReduce, e, {3});
  if (has_sink) total = x.Add(Op::kAdd, {total, x.Add(Op::kExp, {x.Sub(sink, peak)})});
  NodeId v = pooled(in[2]);
  NodeId seen = x.Map(keys.seen, x.Type(v).shape, {t, Expr::Axis(1)});
  v = x.Add(Op::kSelect, {seen, v, x.FillLike(v, 0)});
  NodeId sum = x.Add(Op::kContract, {e, v}, {{"spec", std::string("tgrj,tjge->tgre")}});
  NodeId divided = x.Add(Op::kDiv, {sum, x.Repeat(total, 3, x.Type(sum).shape)});
  return x.Map(divided, node.type.shape, {t, FloorDiv(g, group), Mod(g, group), r});
}

// Every position of `ids` against every bag: a row of the gathered table counts where
// offsets[bag] <= position < offsets[bag + 1].
NodeId ExpandEmbeddingBag(Expansion& x, const Node& node, Inputs in) {
  const std::string& mode = GetAttr<std::string>(node.attrs, "mode");
  const Expr bags = node.type.shape[0], width = node.type.shape[1], ids = x.Type(in[1]).shape[0];
  const Shape cells = {bags, ids}, joint = {bags, ids, width};
  const Expr bag = Expr::Axis(0), position = Expr::Axis(1);
  NodeId rows = Up(x, x.Add(Op::kGather, {in[0], in[1]}, {{"axis", int64_t{0}}}));
  NodeId offsets = x.Cast(in[2], DType::kI64);
  auto iota = [&](int64_t axis) {
    return x.Add(Op::kIota, {}, {{"shape", cells}, {"axis", axis}, {"dtype", DType::kI64}});
  };
  NodeId first = x.Map(offsets, cells, {bag});
  Tensor zero = Tensor::Zeros(DType::kI64, {});
  NodeId next = x.Add(Op::kIndexMap, {offsets},
                      {{"map", IndexMap{cells, {bag + 1}}}, {"fill", std::move(zero)}});
  NodeId is_inner = x.Add(Op::kLessThan, {iota(0), x.Size(DType::kI64, bags - 1, cells)});
  NodeId last = x.Add(Op::kSelect, {is_inner, next, x.Size(DType::kI64, ids, cells)});
  NodeId before = x.Add(Op::kLessThan, {iota(1), first});
  NodeId member =
      x.Add(Op::kAnd, {x.Add(Op::kNot, {before}), x.Add(Op::kLessThan, {iota(1), last})});
  NodeId wide = x.Map(member, joint, {bag, position});
  NodeId values = x.Map(rows, joint, {position, Expr::Axis(2)});
  const bool max = mode == "max";
  NodeId other = x.FillLike(values, max ? -std::numeric_limits<double>::infinity() : 0);
  NodeId chosen = x.Add(Op::kSelect, {wide, values, other});
  NodeId result = x.Reduce(max ? Op::kMaxReduce : Op::kSumReduce, chosen, {1});
  if (mode != "sum") {
    NodeId ones = x.Cast(member, x.Type(result).dtype);
    NodeId count = x.Map(x.Reduce(Op::kSumReduce, ones, {1}), node.type.shape, {bag});
    NodeId some = x.Add(Op::kLessThan, {x.FillLike(count, 0), count});
    NodeId value = max ? result : x.Add(Op::kDiv, {result, count});
    result = x.Add(Op::kSelect, {some, value, x.FillLike(result, 0)});
  }
  return x.Cast(result, node.type.dtype);
}

void AttentionExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), queries = e.Size(), keys = e.Size();
  const int64_t width = e.ConstantSize(1);
  const NodeId q = e.Input({batch, queries, width}, ExampleEdges::kNaN);
  const NodeId k = e.Input({batch, keys, width}, ExampleEdges::kNaN);
  std::vector<NodeId> inputs = {q, k, e.FiniteInput({batch, keys, e.ConstantSize()})};
  if (e.Coin()) inputs.push_back(e.Input({queries, keys}, e.Coin() ? DType::kBool : e.dtype()));
  Attrs attrs = {{"causal", e.Coin()}};
  if (e.Coin()) attrs["scale"] = 0.25;
  e.Output(e.x().Add(Op::kAttention, std::move(inputs), std::move(attrs)));
}

void PagedAttentionExample(ExampleBuilder& e) {
  constexpr int64_t kBlock = 16;
  const int64_t pool = e.Pick(1, 3), blocks = e.Pick(1, 3), sequences = e.Pick(1, 3);
  const int64_t groups = e.Pick(1, 2), heads = groups * e.Pick(1, 3), width = e.ConstantSize(1);
  const Expr rows = e.Size();
  const auto input = [&](Shape shape) {
    return e.x().Cast(e.FiniteInput(std::move(shape)), AccumulatorOf(e.dtype()));
  };
  const auto indices = [&](Shape shape, int64_t size) {
    return e.Indices(std::move(shape), size, DType::kI32);
  };
  std::vector<NodeId> inputs = {input({rows, heads, width}),
                                input({pool * kBlock, groups, width}),
                                input({pool * kBlock, groups, e.ConstantSize()}),
                                indices({sequences, blocks}, pool),
                                indices({rows}, sequences),
                                indices({rows}, blocks * kBlock)};
  if (e.Coin()) inputs.push_back(input({heads}));
  Attrs attrs = {{"block", kBlock}};
  if (e.Coin()) attrs["scale"] = 0.25;
  if (e.Coin()) attrs["window"] = e.Pick(1, 40);
  if (e.Coin()) attrs["softcap"] = 2.0;
  e.Output(e.x().Add(Op::kPagedAttention, std::move(inputs), std::move(attrs)));
}

void EmbeddingBagExample(ExampleBuilder& e) {
  const int64_t rows = e.ConstantSize(1), ids = e.ConstantSize(), bags = e.ConstantSize(1);
  std::vector<int64_t> offsets(bags);  // 0 first, never less, at most all ids
  for (int64_t i = 1; i < bags; ++i) offsets[i] = e.Pick(offsets[i - 1], ids);
  const NodeId table = e.Parameter({rows, e.ConstantSize()}), index = e.Indices({ids}, rows);
  const NodeId at =
      e.x().Add(Op::kConstant, {}, {{"value", Tensor::Of<int64_t>(DType::kI64, {bags}, offsets)}});
  const char* const kModes[] = {"sum", "mean", "max"};
  e.Output(e.x().Add(Op::kEmbeddingBag, {table, index, at},
                     {{"mode", std::string(kModes[e.Pick(0, 2)])}}));
}

constexpr DecompositionRow kRows[] = {
    {Op::kAttention, "attention", "softmax(scale * q k^T + mask) v", ExpandAttention,
     AttentionExample},
    {Op::kPagedAttention, "paged_attention", "attention over gathered keys and values",
     ExpandPagedAttention, PagedAttentionExample},
    {Op::kEmbeddingBag, "embedding_bag", "select rows by bag, reduce", ExpandEmbeddingBag,
     EmbeddingBagExample},
};

}  // namespace

absl::Span<const DecompositionRow> AttentionDecompositions() { return kRows; }

}  // namespace athanor
