#include "compiler/frontend/checkpoint/encoder/encoder.h"

#include <limits>
#include <string>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint::encoder {
namespace {

constexpr double kLeastNorm = 1e-12;  // as torch's normalize has it

std::vector<int64_t> ShapeOf(const Spec& spec, Part part) {
  switch (part) {
    case Part::kTokens:
      return {spec.vocabulary, spec.width};
    case Part::kPositions:
      return {spec.positions, spec.width};
    case Part::kTypes:
      return {spec.types, spec.width};
    case Part::kQ:
    case Part::kK:
    case Part::kV:
    case Part::kO:
      return {spec.width, spec.width};
    case Part::kUp:
      return {spec.hidden, spec.width};
    case Part::kDown:
      return {spec.width, spec.hidden};
    case Part::kUpBias:
      return {spec.hidden};
    default:  // norms and other biases
      return {spec.width};
  }
}

class Builder : private GraphWriter {
 public:
  Builder(const Spec& spec, const Tensors& tensors, const Limits& limits,
          const GraphLimits& graph_limits)
      : GraphWriter(std::string(spec.family->name),
                    {{std::string(kBatchDim), 1, limits.inputs}, {"T", 1, ContextOf(spec, limits)}},
                    graph_limits),
        spec_(spec),
        tensors_(tensors) {}

  absl::StatusOr<CheckpointGraph> Build() {
    const NodeId ids = Input("ids", DType::kI32, {b_, t_});
    const NodeId lengths = Input("lengths", DType::kI32, {b_});
    // Looked up where 0 to T are, so that another length is refused as an index.
    length_ = Take(Counted(DType::kI32, {t_ + 1}, 0), lengths);
    const NodeId place = Counted(DType::kI32, {b_, t_}, 1);
    seen_ = Op2(Op::kLessThan, place, View(length_, {b_, t_}, {Expr::Axis(0)}));
    mask_ = View(seen_, {b_, 1, t_, t_}, {Expr::Axis(0), Expr::Axis(3)});
    NodeId x = Embedded(ids);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      x = Norm(Op2(Op::kAdd, x, Attend(x, layer)), Part::kAttentionNorm, Part::kAttentionNormBias,
               layer);
      x = Norm(Op2(Op::kAdd, x, Forward(x, layer)), Part::kForwardNorm, Part::kForwardNormBias,
               layer);
    }
    NodeId embeddings = Pooled(x);
    if (spec_.pooling.normalised) embeddings = Normalised(embeddings);
    if (status().ok()) builder().Output("embeddings", embeddings);
    return Finish();
  }

 private:
  const FileTensor& Stored(Part part, int64_t layer) const {
    return tensors_.find(TensorName(spec_.format, part, layer))->second;
  }
  NodeId Weight(Part part, int64_t layer) { return GraphWriter::Weight(Stored(part, layer)); }

  NodeId Norm(NodeId x, Part scale, Part bias, int64_t layer) {
    return Add(Op::kLayerNorm, {x, Weight(scale, layer), Weight(bias, layer)},
               {{"epsilon", spec_.epsilon}});
  }

  NodeId Linear(NodeId x, Part weight, Part bias, int64_t layer) {
    const int64_t rows = ShapeOf(spec_, weight)[0];
    const NodeId y = Contract("btk,nk->btn", x, Weight(weight, layer));
    return Op2(Op::kAdd, y, View(Weight(bias, layer), {b_, t_, rows}, {Expr::Axis(2)}));
  }

  NodeId Embedded(NodeId ids) {
    const Shape rows = {b_, t_, spec_.width};
    NodeId x = Rows(Stored(Part::kTokens, 0), ids);
    if (spec_.types > 0) {
      x = Op2(Op::kAdd, x, View(Weight(Part::kTypes, 0), rows, {Expr(0), Expr::Axis(2)}));
    }
    const NodeId positions =
        spec_.padding ? Rows(Stored(Part::kPositions, 0), CountedPositions(ids))
                      : View(Weight(Part::kPositions, 0), rows, {Expr::Axis(1), Expr::Axis(2)});
    return Norm(Op2(Op::kAdd, x, positions), Part::kStartNorm, Part::kStartNormBias, 0);
  }

  // Returns i32 [B, T]: for a token that is no padding, as many more than `padding` as there are
  // such tokens up to it; else `padding`.
  NodeId CountedPositions(NodeId ids) {
    const Shape cells = {b_, t_, t_}, rows = {b_, t_};
    const NodeId padding = FilledInt(*spec_.padding, rows);
    const NodeId other =
        Op2(Op::kOr, Op2(Op::kLessThan, ids, padding), Op2(Op::kLessThan, padding, ids));
    const NodeId ahead =
        Add(Op::kNot,
            {Op2(Op::kLessThan, Counted(DType::kI32, cells, 1), Counted(DType::kI32, cells, 2))});
    const NodeId counts = Op2(Op::kAnd, ahead, View(other, cells, {Expr::Axis(0), Expr::Axis(2)}));
    const NodeId count =
        Sum(Add(Op::kSelect, {counts, FilledInt(1, cells), FilledInt(0, cells)}), 2);
    return Add(Op::kSelect, {other, Op2(Op::kAdd, count, padding), padding});
  }

  // [B, T, width] -> [B, heads, T, head]
  NodeId Heads(NodeId x) {
    return View(x, {b_, spec_.heads, t_, spec_.head()},
                {Expr::Axis(0), Expr::Axis(2), Expr::Axis(1) * spec_.head() + Expr::Axis(3)});
  }

  NodeId Attend(NodeId x, int64_t layer) {
    const NodeId q = Heads(Linear(x, Part::kQ, Part::kQBias, layer)),
                 k = Heads(Linear(x, Part::kK, Part::kKBias, layer)),
                 v = Heads(Linear(x, Part::kV, Part::kVBias, layer));
    const NodeId y = Add(Op::kAttention, {q, k, v, mask_});
    const NodeId rows = View(y, {b_, t_, spec_.width},
                             {Expr::Axis(0), FloorDiv(Expr::Axis(2), spec_.head()), Expr::Axis(1),
                              Mod(Expr::Axis(2), spec_.head())});
    return Linear(rows, Part::kO, Part::kOBias, layer);
  }

  NodeId Forward(NodeId x, int64_t layer) {
    return Linear(Activated(Linear(x, Part::kUp, Part::kUpBias, layer)), Part::kDown,
                  Part::kDownBias, layer);
  }

  NodeId Activated(NodeId x) {
    switch (spec_.activation) {
      case Activation::kGelu:
        return Add(Op::kGelu, {x});
      case Activation::kGeluTanh:
        return Add(Op::kGelu, {x}, {{"approximate", std::string("tanh")}});
      case Activation::kRelu:
        return Add(Op::kRelu, {x});
      case Activation::kSilu:
        return Add(Op::kSilu, {x});
      case Activation::kTanh:
        return Add(Op::kTanh, {x});
    }
    return -1;
  }

  // Returns the rows where `keep`, bool [B, T], holds, and `other` elsewhere.
  NodeId Kept(NodeId keep, NodeId x, double other) {
    const Shape rows = {b_, t_, spec_.width};
    return Add(Op::kSelect,
               {View(keep, rows, {Expr::Axis(0), Expr::Axis(1)}), x, Filled(other, rows)});
  }

  // Returns an embedding where the input has a token, zeros elsewhere.
  NodeId UnlessEmpty(NodeId x) {
    const Shape one = {b_, spec_.width};
    return Add(Op::kSelect, {View(seen_, one, {Expr::Axis(0), Expr(0)}), x, Filled(0, one)});
  }

  // [B, T, width] -> [B, width]
  NodeId Pooled(NodeId x) {
    const Shape one = {b_, spec_.width};
    switch (spec_.pooling.kind) {
      case PoolingKind::kMean: {
        // Exact: below 2^24.
        const NodeId count = Op2(Op::kMax, Cast(length_, DType::kF32), Filled(1, {b_}));
        return Op2(Op::kDiv, Sum(Kept(seen_, x, 0), 1), View(count, one, {Expr::Axis(0)}));
      }
      case PoolingKind::kFirst:
        return UnlessEmpty(View(x, one, {Expr::Axis(0), Expr(0), Expr::Axis(1)}));
      case PoolingKind::kLast: {
        const NodeId next =
            Op2(Op::kAdd, Counted(DType::kI32, {b_, t_}, 1), FilledInt(1, {b_, t_}));
        const NodeId ahead = Op2(Op::kLessThan, next, View(length_, {b_, t_}, {Expr::Axis(0)}));
        return Sum(Kept(Op2(Op::kAnd, seen_, Add(Op::kNot, {ahead})), x, 0), 1);
      }
      case PoolingKind::kMax:
        return UnlessEmpty(Add(Op::kMaxReduce,
                               {Kept(seen_, x, -std::numeric_limits<double>::infinity())},
                               {{"axes", std::vector<int64_t>{1}}}));
    }
    return -1;
  }

  NodeId Normalised(NodeId x) {
    const NodeId norm = Add(Op::kSqrt, {Sum(Op2(Op::kMul, x, x), 1)});
    const NodeId bounded = Op2(Op::kMax, norm, Filled(kLeastNorm, {b_}));
    return Op2(Op::kDiv, x, View(bounded, {b_, spec_.width}, {Expr::Axis(0)}));
  }

  const Spec& spec_;
  const Tensors& tensors_;
  const Expr b_ = Expr::Symbol(std::string(kBatchDim)), t_ = Expr::Symbol("T");
  NodeId length_ = -1;  // i32 [B]: the tokens of each row
  NodeId seen_ = -1;    // bool [B, T]: whether it is a token
  NodeId mask_ = -1;    // the same for queries and keys of any head
};

absl::Status CheckLimits(const Spec& spec, const Limits& limits) {
  if (limits.inputs < 1) return Invalid("limits: sequences=", limits.inputs, " must be positive");
  const int64_t most = MostTokens(spec);
  if (limits.context < 0 || limits.context > most) {
    return Invalid("limits: context=", limits.context, " must be from 1 to ", most,
                   ", the most tokens of the checkpoint's inputs, or 0 for all of them");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ContextOf(const Spec& spec, const Limits& limits) {
  return limits.context == 0 ? MostTokens(spec) : limits.context;
}

Tensors CanonicalTensors(const Spec& spec, const Tensors& tensors,
                         std::vector<ImportRefusal>* refusals) {
  Tensors canonical;
  for (const auto& [name, tensor] : tensors) {
    const auto [it, added] =
        canonical.emplace(CanonicalName(spec.format, *spec.family, name), tensor);
    if (added) continue;
    RefuseTensor(name, Cat("is there as ", Quoted(it->second.name), " too"), refusals);
  }
  return canonical;
}

void MatchTensors(const Spec& spec, const Tensors& tensors, std::vector<ImportRefusal>* refusals) {
  WantedTensors wanted;
  for (int index = 0; index <= static_cast<int>(kLastPart); ++index) {
    const auto part = static_cast<Part>(index);
    if (part == Part::kTypes && spec.types == 0) continue;
    const int64_t each = part < Part::kQ ? 1 : spec.layers;
    for (int64_t layer = 0; layer < each; ++layer) {
      wanted.emplace(TensorName(spec.format, part, layer), ShapeOf(spec, part));
    }
  }
  MatchWanted(wanted, tensors, refusals);
  for (const auto& [name, tensor] : tensors) {
    if (wanted.contains(name) || encoder::IsInertTensor(spec.format, name)) continue;
    RefuseTensor(tensor.name, Cat("is no tensor of family ", spec.family->name), refusals);
  }
}

absl::StatusOr<CheckpointGraph> BuildEncoder(const Spec& spec, const Tensors& tensors,
                                             const Limits& limits,
                                             const GraphLimits& graph_limits) {
  RETURN_IF_ERROR(CheckLimits(spec, limits));
  return Builder(spec, tensors, limits, graph_limits).Build();
}

}  // namespace athanor::checkpoint::encoder
