#include "compiler/frontend/checkpoint/decoder.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "compiler/frontend/checkpoint/decode.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

// Returns the parts that layers of the decoder have.
std::vector<Part> LayerParts(const FamilyRow& family) {
  std::vector<Part> parts = {Part::kAttentionNorm, Part::kO, Part::kForwardNorm, Part::kDown};
  if (family.fused) {
    parts.insert(parts.end(), {Part::kQkv, Part::kGateUp});
  } else {
    parts.insert(parts.end(), {Part::kQ, Part::kK, Part::kV, Part::kGate, Part::kUp});
  }
  if (family.qkv_bias) parts.insert(parts.end(), {Part::kQBias, Part::kKBias, Part::kVBias});
  if (family.qk_norm) parts.insert(parts.end(), {Part::kQNorm, Part::kKNorm});
  return parts;
}

std::vector<int64_t> ShapeOf(const DecoderSpec& spec, Part part) {
  const int64_t q = spec.heads * spec.head, kv = spec.kv_heads * spec.head;
  switch (part) {
    case Part::kEmbedding:
    case Part::kLogits:
      return {spec.vocabulary, spec.width};
    case Part::kFinalNorm:
    case Part::kAttentionNorm:
    case Part::kForwardNorm:
      return {spec.width};
    case Part::kQ:
      return {q, spec.width};
    case Part::kK:
    case Part::kV:
      return {kv, spec.width};
    case Part::kQBias:
      return {q};
    case Part::kKBias:
    case Part::kVBias:
      return {kv};
    case Part::kQNorm:
    case Part::kKNorm:
      return {spec.head};
    case Part::kO:
      return {spec.width, q};
    case Part::kGate:
    case Part::kUp:
      return {spec.hidden, spec.width};
    case Part::kDown:
      return {spec.width, spec.hidden};
    case Part::kQkv:
      return {q + 2 * kv, spec.width};
    case Part::kGateUp:
      return {2 * spec.hidden, spec.width};
  }
  return {};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return ShapeToString(Shape(shape.begin(), shape.end()));
}

// Builds one graph. The first step that fails is kept; later ones do nothing.
class Builder {
 public:
  Builder(const DecoderSpec& spec, const Tensors& tensors, int64_t tokens,
          const GraphLimits& graph_limits)
      : spec_(spec),
        tensors_(tensors),
        graph_{.name = std::string(spec.family->name),
               .dims = {{"T", 1, tokens}, {"R", 0, tokens}}},
        b_(&graph_, graph_limits) {}

  absl::StatusOr<DecoderGraph> Build() {
    const NodeId ids = Keep(b_.Input("ids", {DType::kI32, {t_}}));
    position_ = Keep(b_.Input("position", {DType::kI32, {t_}}));
    const NodeId wanted = Keep(b_.Input("wanted", {DType::kI32, {r_}}));
    MakeAngles();
    const FileTensor& embedding = Stored(Part::kEmbedding, 0);
    NodeId x = Decoded(Take(Parameter(embedding), ids), embedding);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      x = Op2(Op::kAdd, x, Attend(x, layer));
      x = Op2(Op::kAdd, x, Forward(x, layer));
    }
    x = Norm(Take(x, wanted), Part::kFinalNorm, 0);
    const NodeId rows = Weight(spec_.tied ? Part::kEmbedding : Part::kLogits, 0);
    b_.Output("logits", Contract("rk,vk->rv", x, rows));
    RETURN_IF_ERROR(status_);
    return DecoderGraph{std::move(graph_), std::move(parameters_)};
  }

 private:
  NodeId Keep(absl::StatusOr<NodeId> node) {
    if (node.ok()) return *node;
    if (status_.ok()) status_ = node.status();
    return -1;
  }
  NodeId Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {}) {
    return status_.ok() ? Keep(b_.Add(op, std::move(inputs), std::move(attrs))) : -1;
  }
  NodeId Op2(Op op, NodeId a, NodeId b) { return Add(op, {a, b}); }
  NodeId Contract(std::string spec, NodeId a, NodeId b) {
    return Add(Op::kContract, {a, b}, {{"spec", std::move(spec)}});
  }
  NodeId View(NodeId x, Shape shape, std::vector<Expr> coordinates) {
    return Add(Op::kIndexMap, {x}, {{"map", IndexMap{std::move(shape), std::move(coordinates)}}});
  }
  NodeId Take(NodeId data, NodeId indices) {
    return Add(Op::kGather, {data, indices}, {{"axis", int64_t{0}}});
  }

  const FileTensor& Stored(Part part, int64_t layer) const {
    return tensors_.find(TensorName(spec_.format, part, layer))->second;
  }
  NodeId Parameter(const FileTensor& tensor) {
    if (!status_.ok()) return -1;
    const auto [it, added] = made_.emplace(tensor.name, -1);
    if (!added) return it->second;
    parameters_.push_back(tensor);
    return it->second = Keep(b_.Parameter(tensor.name, TypeOfBytes(tensor)));
  }
  NodeId Decoded(NodeId stored, const FileTensor& tensor) {
    return status_.ok() ? Keep(Decode(b_, graph_, stored, tensor.stored)) : -1;
  }
  NodeId Weight(Part part, int64_t layer) {
    const FileTensor& tensor = Stored(part, layer);
    return Decoded(Parameter(tensor), tensor);
  }
  // Returns a matrix by itself, where it is some rows of another.
  NodeId Matrix(Part part, int64_t layer) {
    if (!spec_.family->fused) return Weight(part, layer);
    const bool forward = part == Part::kGate || part == Part::kUp;
    const int64_t rows = ShapeOf(spec_, part)[0];
    int64_t first = 0;
    if (part == Part::kK) first = spec_.heads * spec_.head;
    if (part == Part::kV) first = (spec_.heads + spec_.kv_heads) * spec_.head;
    if (part == Part::kUp) first = spec_.hidden;
    return View(Weight(forward ? Part::kGateUp : Part::kQkv, layer), {rows, spec_.width},
                {Expr::Axis(0) + first, Expr::Axis(1)});
  }
  NodeId Norm(NodeId x, Part part, int64_t layer) {
    return Add(Op::kRmsNorm, {x, Weight(part, layer)}, {{"epsilon", spec_.epsilon}});
  }

  // cos and sin [T, head/2], of f32 products as transformers has them.
  void MakeAngles() {
    const auto pairs = static_cast<int64_t>(spec_.inverse.size());
    const NodeId position = Add(Op::kCast, {position_}, {{"dtype", DType::kF32}});
    const NodeId inverse =
        Keep(b_.Constant(Tensor::Of<float>(DType::kF32, {pairs}, spec_.inverse)));
    const NodeId angle = Op2(Op::kMul, View(position, {t_, pairs}, {Expr::Axis(0)}),
                             View(inverse, {t_, pairs}, {Expr::Axis(1)}));
    cos_ = Add(Op::kCos, {angle});
    sin_ = Add(Op::kSin, {angle});
  }

  // Returns row `h * head + d` of a matrix or vector with such rows as element [h, d]. GGUF's rows
  // of Q and K alternate between the halves of a head in some families.
  NodeId Heads(NodeId x, int64_t heads, bool turned, bool matrix) {
    Expr d = Expr::Axis(1);
    if (turned && spec_.family->permuted && spec_.format == CheckpointFormat::kGguf) {
      d = Mod(d, spec_.head / 2) * 2 + FloorDiv(d, spec_.head / 2);
    }
    const Expr row = Expr::Axis(0) * spec_.head + d;
    if (!matrix) return View(x, {heads, spec_.head}, {row});
    return View(x, {heads, spec_.head, spec_.width}, {row, Expr::Axis(2)});
  }

  // Returns a projection as [heads, T, head], normalised and turned where it is.
  NodeId Project(NodeId x, int64_t layer, int64_t heads, Part weight, Part bias,
                 std::optional<Part> norm) {
    const bool turned = norm.has_value();
    NodeId y = Contract("tk,hdk->htd", x, Heads(Matrix(weight, layer), heads, turned, true));
    if (spec_.family->qkv_bias) {
      const NodeId added = Heads(Weight(bias, layer), heads, turned, false);
      y = Op2(Op::kAdd, y, View(added, {heads, t_, spec_.head}, {Expr::Axis(0), Expr::Axis(2)}));
    }
    if (!turned) return y;
    if (spec_.family->qk_norm) y = Norm(y, *norm, layer);
    return Add(Op::kRotary, {y, cos_, sin_});
  }

  // Query heads share a head of keys and values in groups.
  NodeId Shared(NodeId x) {
    if (spec_.heads == spec_.kv_heads) return x;
    return View(
        x, {spec_.heads, t_, spec_.head},
        {FloorDiv(Expr::Axis(0), spec_.heads / spec_.kv_heads), Expr::Axis(1), Expr::Axis(2)});
  }

  // Returns bool [T, T]: whether row i's window reaches back to row j.
  NodeId WindowMask(int64_t window) {
    const auto [it, added] = masks_.emplace(window, -1);
    if (!added) return it->second;
    const NodeId size =
        Keep(b_.Constant(Tensor::Of<int32_t>(DType::kI32, {}, {static_cast<int32_t>(window)})));
    const NodeId end = Op2(Op::kAdd, position_, View(size, {t_}, {}));
    return it->second = Op2(Op::kLessThan, View(position_, {t_, t_}, {Expr::Axis(0)}),
                            View(end, {t_, t_}, {Expr::Axis(1)}));
  }

  NodeId Attend(NodeId x, int64_t layer) {
    x = Norm(x, Part::kAttentionNorm, layer);
    std::vector<NodeId> operands = {
        Project(x, layer, spec_.heads, Part::kQ, Part::kQBias, Part::kQNorm),
        Shared(Project(x, layer, spec_.kv_heads, Part::kK, Part::kKBias, Part::kKNorm)),
        Shared(Project(x, layer, spec_.kv_heads, Part::kV, Part::kVBias, std::nullopt))};
    // A window that no step outgrows hides nothing.
    const int64_t window = spec_.windows[layer];
    if (window > 0 && window < graph_.dims[0].max) operands.push_back(WindowMask(window));
    const NodeId y = Add(Op::kAttention, std::move(operands), {{"causal", true}});
    const NodeId o = View(Weight(Part::kO, layer), {spec_.width, spec_.heads, spec_.head},
                          {Expr::Axis(0), Expr::Axis(1) * spec_.head + Expr::Axis(2)});
    return Contract("htd,khd->tk", y, o);
  }

  NodeId Forward(NodeId x, int64_t layer) {
    x = Norm(x, Part::kForwardNorm, layer);
    const NodeId gate = Contract("tk,nk->tn", x, Matrix(Part::kGate, layer));
    const NodeId up = Contract("tk,nk->tn", x, Matrix(Part::kUp, layer));
    const NodeId hidden = Op2(Op::kMul, Add(Op::kSilu, {gate}), up);
    return Contract("tn,kn->tk", hidden, Weight(Part::kDown, layer));
  }

  const DecoderSpec& spec_;
  const Tensors& tensors_;
  Graph graph_;
  GraphBuilder b_;
  absl::Status status_;
  const Expr t_ = Expr::Symbol("T"), r_ = Expr::Symbol("R");
  NodeId position_ = -1, cos_ = -1, sin_ = -1;
  std::map<std::string, NodeId> made_;  // parameters by name
  std::map<int64_t, NodeId> masks_;     // by window
  std::vector<FileTensor> parameters_;
};

void Refuse(std::string_view tensor, std::string reason, std::vector<ImportRefusal>* refusals) {
  ImportRefusal refusal;
  refusal.code = absl::StatusCode::kInvalidArgument;
  refusal.node = tensor;
  refusal.reason = std::move(reason);
  AddRefusal(std::move(refusal), refusals);
}

}  // namespace

void MatchTensors(const DecoderSpec& spec, const Tensors& tensors,
                  std::vector<ImportRefusal>* refusals) {
  std::map<std::string, std::vector<int64_t>> wanted;
  const auto want = [&](Part part, int64_t layer) {
    wanted.emplace(TensorName(spec.format, part, layer), ShapeOf(spec, part));
  };
  want(Part::kEmbedding, 0);
  want(Part::kFinalNorm, 0);
  if (!spec.tied) want(Part::kLogits, 0);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    for (Part part : LayerParts(*spec.family)) want(part, layer);
  }
  for (const auto& [name, shape] : wanted) {
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      Refuse(name, Cat("is missing; its shape would be ", ShapeText(shape)), refusals);
    } else if (it->second.shape != shape) {
      Refuse(name,
             Cat("has shape ", ShapeText(it->second.shape), "; it must be ", ShapeText(shape)),
             refusals);
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (wanted.contains(name) || IsInertTensor(spec.format, name)) continue;
    const bool tied = spec.tied && name == TensorName(spec.format, Part::kLogits, 0);
    Refuse(name,
           tied ? "is there, but tie_word_embeddings says that the embedding stands for it"
                : Cat("is no tensor of family ", spec.family->name),
           refusals);
  }
}

int64_t ContextOf(const DecoderSpec& spec, const DecoderLimits& limits) {
  return limits.context == 0 ? spec.positions : limits.context;
}

absl::StatusOr<DecoderGraph> BuildDecoder(const DecoderSpec& spec, const Tensors& tensors,
                                          const DecoderLimits& limits, DecoderForm form,
                                          const GraphLimits& graph_limits) {
  if (form != DecoderForm::kWhole) return Unimplemented("decoders with paged states");
  if (limits.tokens < 1) return Invalid("limits: tokens=", limits.tokens, " must be positive");
  if (limits.context < 0 || limits.context > spec.positions) {
    return Invalid("limits: context=", limits.context, " must be from 1 to ", spec.positions,
                   ", the checkpoint's positions, or 0 for all of them");
  }
  const int64_t tokens = std::min(limits.tokens, ContextOf(spec, limits));
  return Builder(spec, tensors, tokens, graph_limits).Build();
}

}  // namespace athanor::checkpoint
