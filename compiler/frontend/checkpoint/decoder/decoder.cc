#include "compiler/frontend/checkpoint/decoder/decoder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "compiler/frontend/checkpoint/files/graph_writer.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

constexpr int64_t kMostBlock = 1 << 16;  // of PagedAttention

bool HasEndNorms(const FamilyRow& family) { return family.sandwich || family.norms_behind; }

// Returns the parts that layers of the decoder have.
std::vector<Part> LayerParts(const FamilyRow& family) {
  std::vector<Part> parts = {Part::kO};
  const auto add = [&](std::initializer_list<Part> more) {
    parts.insert(parts.end(), more.begin(), more.end());
  };
  if (!family.norms_behind) {
    add({Part::kAttentionNorm, family.sandwich ? Part::kForwardStartNorm : Part::kForwardNorm});
  }
  if (HasEndNorms(family)) add({Part::kAttentionEndNorm, Part::kForwardEndNorm});
  if (family.fused) {
    add({Part::kQkv, Part::kGateUp, Part::kDown});
  } else {
    add({Part::kQ, Part::kK, Part::kV});
    if (family.experts) {
      add({Part::kRouter, Part::kExpertGate, Part::kExpertUp, Part::kExpertDown});
    } else {
      add({Part::kGate, Part::kUp, Part::kDown});
    }
  }
  if (family.qkv_bias) add({Part::kQBias, Part::kKBias, Part::kVBias});
  if (family.qk_norm) add({Part::kQNorm, Part::kKNorm});
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
    case Part::kAttentionEndNorm:
    case Part::kForwardStartNorm:
    case Part::kForwardEndNorm:
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
      return {spec.family->qk_norm_whole ? q : spec.head};
    case Part::kKNorm:
      return {spec.family->qk_norm_whole ? kv : spec.head};
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
    case Part::kRouter:
      return {spec.experts, spec.width};
    case Part::kExpertGate:
    case Part::kExpertUp:
    case Part::kExpertDown:
      break;
  }
  std::vector<int64_t> shape = {spec.hidden, spec.width};
  if (part == Part::kExpertDown) std::swap(shape[0], shape[1]);
  if (!IsByExpert(spec.format, part)) shape.insert(shape.begin(), spec.experts);
  return shape;
}

// Returns the bound of block numbers in tables: enough for one block and those of all sequences,
// each by a multiple of the number of states, as far as i32 numbers their slots and a state may be
// as large.
int64_t MostBlocks(const DecoderSpec& spec, const DecoderLimits& limits,
                   const GraphLimits& graph_limits) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto slot = static_cast<int64_t>(spec.kv_heads * spec.head * sizeof(float));
  const int64_t most = std::min(kMost, graph_limits.max_tensor_bytes / slot) / limits.block;
  const int64_t each = BlocksOf(ContextOf(spec, limits), limits.block), states = 2 * spec.layers;
  return limits.sequences < most / states / each ? states * (1 + limits.sequences * each)
                                                 : std::max<int64_t>(1, most);
}

// Returns the graph's dims; those of form kPaged are rows, rows whose logits count, sequences,
// blocks of a sequence, and numbers of blocks.
std::vector<Dim> DimsOf(const DecoderSpec& spec, const DecoderLimits& limits, DecoderForm form,
                        const GraphLimits& graph_limits) {
  const int64_t context = ContextOf(spec, limits);
  if (form == DecoderForm::kWhole) {
    const int64_t tokens = std::min(limits.tokens, context);
    return {{"T", 1, tokens}, {"R", 0, tokens}};
  }
  return {{"T", 1, limits.tokens},
          {"R", 0, limits.tokens},
          {"S", 1, limits.sequences},
          {"B", 1, BlocksOf(context, limits.block)},
          {"N", 1, MostBlocks(spec, limits, graph_limits)}};
}

absl::Status CheckLimits(const DecoderSpec& spec, const DecoderLimits& limits, DecoderForm form) {
  if (limits.tokens < 1) return Invalid("limits: tokens=", limits.tokens, " must be positive");
  if (limits.context < 0 || limits.context > spec.positions) {
    return Invalid("limits: context=", limits.context, " must be from 1 to ", spec.positions,
                   ", the checkpoint's positions, or 0 for all of them");
  }
  if (form == DecoderForm::kWhole) return absl::OkStatus();
  if (limits.sequences < 1) {
    return Invalid("limits: sequences=", limits.sequences, " must be positive");
  }
  if (limits.block < 16 || limits.block > kMostBlock || limits.block % 16 != 0) {
    return Invalid("limits: block=", limits.block, " must be a multiple of 16 of at most ",
                   kMostBlock);
  }
  return absl::OkStatus();
}

class Builder : private GraphWriter {
 public:
  Builder(const DecoderSpec& spec, const Tensors& tensors, const DecoderLimits& limits,
          DecoderForm form, const GraphLimits& graph_limits)
      : GraphWriter(std::string(spec.family->name), DimsOf(spec, limits, form, graph_limits),
                    graph_limits),
        spec_(spec),
        tensors_(tensors),
        paged_(form == DecoderForm::kPaged),
        block_(limits.block),
        context_(ContextOf(spec, limits)) {}

  absl::StatusOr<CheckpointGraph> Build() {
    const NodeId ids = Input("ids", DType::kI32, {t_});
    if (paged_) sequence_ = Input("sequence", DType::kI32, {t_});
    position_ = Input("position", DType::kI32, {t_});
    if (paged_) table_ = Input("table", DType::kI32, {s_, blocks_});
    const NodeId wanted = Input("wanted", DType::kI32, {r_});
    angles_ = AnglesOf(spec_.inverse);
    local_ = spec_.local_inverse.empty() ? angles_ : AnglesOf(spec_.local_inverse);
    if (paged_) slots_ = Slots();
    const FileTensor& embedding = Stored(Part::kEmbedding, 0);
    NodeId x = Rows(embedding, ids);
    if (spec_.family->scaled_embedding) {
      x = Op2(Op::kMul, x, EmbeddingScale(embedding.stored));
    }
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      x = Op2(Op::kAdd, x, Attend(x, layer));
      x = Op2(Op::kAdd, x, Forward(x, layer));
    }
    x = Norm(Take(x, wanted), Part::kFinalNorm, 0);
    const NodeId rows = Weight(spec_.tied ? Part::kEmbedding : Part::kLogits, 0);
    NodeId logits = Contract("rk,vk->rv", x, rows);
    if (spec_.logit_cap > 0) logits = Capped(logits, spec_.logit_cap, {r_, spec_.vocabulary});
    builder().Output("logits", logits);
    return Finish();
  }

 private:
  struct Angles {
    NodeId cos = -1, sin = -1;
  };

  const FileTensor& Stored(Part part, int64_t layer, int64_t expert = 0) const {
    return tensors_.find(TensorName(spec_.format, part, layer, expert))->second;
  }
  NodeId Weight(Part part, int64_t layer, int64_t expert = 0) {
    return GraphWriter::Weight(Stored(part, layer, expert));
  }
  // Returns an expert's matrix by itself, where files have all in one tensor.
  NodeId ExpertMatrix(Part part, int64_t layer, int64_t expert) {
    const NodeId weight = Weight(part, layer, expert);
    if (IsByExpert(spec_.format, part)) return weight;
    const std::vector<int64_t> shape = ShapeOf(spec_, part);
    return View(weight, {shape[1], shape[2]}, {Expr(expert), Expr::Axis(0), Expr::Axis(1)});
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
    NodeId weight = Weight(part, layer);
    if (spec_.family->norm_offset && spec_.format == CheckpointFormat::kHf) {
      weight = Op2(Op::kAdd, weight, Filled(1, {ShapeOf(spec_, part)[0]}));
    }
    return Add(Op::kRmsNorm, {x, weight}, {{"epsilon", spec_.epsilon}});
  }
  NodeId Capped(NodeId x, double cap, const Shape& shape) {
    const NodeId bound = Filled(cap, shape);
    return Op2(Op::kMul, Add(Op::kTanh, {Op2(Op::kDiv, x, bound)}), bound);
  }

  // The root of the width, for rows of the embedding. transformers rounds it to the embedding's
  // type, llama.cpp does not.
  NodeId EmbeddingScale(checkpoint::Stored stored) {
    NodeId root = Filled(std::sqrt(static_cast<double>(spec_.width)), {});
    using checkpoint::Stored;
    const bool narrow = stored == Stored::kBF16 || stored == Stored::kF16;
    if (narrow && spec_.format == CheckpointFormat::kHf) {
      const DType dtype = stored == Stored::kBF16 ? DType::kBF16 : DType::kF16;
      root = Cast(Cast(root, dtype), DType::kF32);
    }
    return View(root, {t_, spec_.width}, {});
  }

  // cos and sin [T, head/2], of f32 products as transformers has them.
  Angles AnglesOf(const std::vector<float>& inverses) {
    const auto pairs = static_cast<int64_t>(inverses.size());
    const NodeId position = Cast(position_, DType::kF32);
    const NodeId inverse =
        Keep(builder().Constant(Tensor::Of<float>(DType::kF32, {pairs}, inverses)));
    const NodeId angle = Op2(Op::kMul, View(position, {t_, pairs}, {Expr::Axis(0)}),
                             View(inverse, {t_, pairs}, {Expr::Axis(1)}));
    const NodeId cos = Add(Op::kCos, {angle});
    return {cos, Add(Op::kSin, {angle})};
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

  // cos or sin for each head of rows [T, heads, head].
  NodeId ByHead(NodeId angles, int64_t heads) {
    const auto pairs = static_cast<int64_t>(spec_.inverse.size());
    return View(angles, {t_, heads, pairs}, {Expr::Axis(0), Expr::Axis(2)});
  }

  // Returns a projection, normalised and turned where it is, as [heads, T, head], or as
  // [T, heads, head] in form kPaged.
  NodeId Project(NodeId x, int64_t layer, int64_t heads, Part weight, Part bias,
                 std::optional<Part> norm) {
    const bool turned = norm.has_value();
    if (turned && spec_.family->qk_norm_whole) {
      return Turned(WholeNormed(x, layer, heads, weight, *norm), layer, heads);
    }
    NodeId y = Contract(paged_ ? "tk,hdk->thd" : "tk,hdk->htd", x,
                        Heads(Matrix(weight, layer), heads, turned, true));
    if (spec_.family->qkv_bias) {
      const NodeId added = Heads(Weight(bias, layer), heads, turned, false);
      const Shape shape = paged_ ? Shape{t_, heads, spec_.head} : Shape{heads, t_, spec_.head};
      y = Op2(Op::kAdd, y, View(added, shape, {Expr::Axis(paged_ ? 1 : 0), Expr::Axis(2)}));
    }
    if (!turned) return y;
    if (spec_.family->qk_norm) y = Norm(y, *norm, layer);
    return Turned(y, layer, heads);
  }

  // Returns a projection whose rows are normalised over all heads, in the same form.
  NodeId WholeNormed(NodeId x, int64_t layer, int64_t heads, Part weight, Part norm) {
    const NodeId rows = Norm(Contract("tk,nk->tn", x, Matrix(weight, layer)), norm, layer);
    const Expr first = Expr::Axis(0), second = Expr::Axis(1), d = Expr::Axis(2);
    if (paged_) return View(rows, {t_, heads, spec_.head}, {first, second * spec_.head + d});
    return View(rows, {heads, t_, spec_.head}, {second, first * spec_.head + d});
  }

  NodeId Turned(NodeId y, int64_t layer, int64_t heads) {
    const Angles& angles = spec_.windows[layer] > 0 ? local_ : angles_;
    if (!paged_) return Add(Op::kRotary, {y, angles.cos, angles.sin});
    return Add(Op::kRotary, {y, ByHead(angles.cos, heads), ByHead(angles.sin, heads)});
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
    const NodeId end = Op2(Op::kAdd, position_, FilledInt(window, {t_}));
    return it->second = Op2(Op::kLessThan, View(position_, {t_, t_}, {Expr::Axis(0)}),
                            View(end, {t_, t_}, {Expr::Axis(1)}));
  }

  // Returns i32 [T]: the slot of each row's position, in the block that its sequence's line of the
  // table has for it. PagedAttention checks the position.
  NodeId Slots() {
    const Shape rows = {t_}, cells = {t_, blocks_};
    const NodeId block = FilledInt(block_, rows);
    const NodeId nth = View(Op2(Op::kFloorDiv, position_, block), cells, {Expr::Axis(0)});
    const NodeId counted = Counted(DType::kI32, cells, 1);
    const NodeId other =
        Op2(Op::kOr, Op2(Op::kLessThan, counted, nth), Op2(Op::kLessThan, nth, counted));
    const NodeId own = Add(Op::kSelect, {other, FilledInt(0, cells), Take(table_, sequence_)});
    const NodeId first = Op2(Op::kMul, Sum(own, 1), block);
    return Op2(Op::kAdd, first, Op2(Op::kMod, position_, block));
  }

  // Writes a layer's rows to a state of its own; returns the state as it is then.
  NodeId Written(NodeId rows, int64_t layer, const std::string& role) {
    if (!status().ok()) return -1;
    const TensorType type = {DType::kF32, {n_ * block_, spec_.kv_heads, spec_.head}};
    const NodeId state = Keep(builder().State(Cat(role, ".", layer), type, role));
    return status().ok() ? Keep(builder().Write(state, slots_, rows)) : -1;
  }

  NodeId PagedHeads(NodeId q, NodeId k, NodeId v, int64_t layer) {
    Attrs attrs = {{"block", block_}};
    const int64_t window = spec_.windows[layer];
    if (window > 0 && window < context_) attrs["window"] = window;
    if (spec_.scale > 0) attrs["scale"] = spec_.scale;
    if (spec_.score_cap > 0) attrs["softcap"] = spec_.score_cap;
    return Add(
        Op::kPagedAttention,
        {q, Written(k, layer, "keys"), Written(v, layer, "values"), table_, sequence_, position_},
        std::move(attrs));
  }

  NodeId WholeHeads(NodeId q, NodeId k, NodeId v, int64_t layer) {
    std::vector<NodeId> operands = {q, Shared(k), Shared(v)};
    // A window that no step outgrows hides nothing.
    const int64_t window = spec_.windows[layer];
    if (window > 0 && window < graph().dims[0].max) operands.push_back(WindowMask(window));
    if (spec_.score_cap > 0) return CappedHeads(operands);
    Attrs attrs = {{"causal", true}};
    if (spec_.scale > 0) attrs["scale"] = spec_.scale;
    return Add(Op::kAttention, std::move(operands), std::move(attrs));
  }

  // Attention of q, k, v and perhaps a mask, in its parts, since the op has no cap.
  NodeId CappedHeads(const std::vector<NodeId>& operands) {
    const Shape scores = {spec_.heads, t_, t_}, cells = {t_, t_};
    NodeId x = Contract("hid,hjd->hij", operands[0], operands[1]);
    const double head = static_cast<double>(spec_.head);
    const double scale = spec_.scale > 0 ? spec_.scale : 1 / std::sqrt(head);
    x = Capped(Op2(Op::kMul, x, Filled(scale, scores)), spec_.score_cap, scores);
    NodeId seen =
        Add(Op::kNot,
            {Op2(Op::kLessThan, Counted(DType::kI32, cells, 0), Counted(DType::kI32, cells, 1))});
    if (operands.size() > 3) seen = Op2(Op::kAnd, seen, operands[3]);
    x = Add(Op::kSelect, {View(seen, scores, {Expr::Axis(1), Expr::Axis(2)}), x,
                          Filled(-std::numeric_limits<double>::infinity(), scores)});
    return Contract("hij,hjd->hid", Add(Op::kSoftmax, {x}, {{"axis", int64_t{2}}}), operands[2]);
  }

  NodeId Attend(NodeId x, int64_t layer) {
    if (!spec_.family->norms_behind) x = Norm(x, Part::kAttentionNorm, layer);
    const NodeId q = Project(x, layer, spec_.heads, Part::kQ, Part::kQBias, Part::kQNorm),
                 k = Project(x, layer, spec_.kv_heads, Part::kK, Part::kKBias, Part::kKNorm),
                 v = Project(x, layer, spec_.kv_heads, Part::kV, Part::kVBias, std::nullopt);
    const NodeId y = paged_ ? PagedHeads(q, k, v, layer) : WholeHeads(q, k, v, layer);
    const NodeId o = View(Weight(Part::kO, layer), {spec_.width, spec_.heads, spec_.head},
                          {Expr::Axis(0), Expr::Axis(1) * spec_.head + Expr::Axis(2)});
    const NodeId end = Contract(paged_ ? "thd,khd->tk" : "htd,khd->tk", y, o);
    return HasEndNorms(*spec_.family) ? Norm(end, Part::kAttentionEndNorm, layer) : end;
  }

  NodeId Forward(NodeId x, int64_t layer) {
    const FamilyRow& family = *spec_.family;
    if (!family.norms_behind) {
      x = Norm(x, family.sandwich ? Part::kForwardStartNorm : Part::kForwardNorm, layer);
    }
    const NodeId end = family.experts ? Experts(x, layer)
                                      : Gated(x, Matrix(Part::kGate, layer),
                                              Matrix(Part::kUp, layer), Weight(Part::kDown, layer));
    return HasEndNorms(family) ? Norm(end, Part::kForwardEndNorm, layer) : end;
  }

  NodeId Gated(NodeId x, NodeId gate, NodeId up, NodeId down) {
    gate = Contract("tk,nk->tn", x, gate);
    up = Contract("tk,nk->tn", x, up);
    const NodeId gated = spec_.family->gelu
                             ? Add(Op::kGelu, {gate}, {{"approximate", std::string("tanh")}})
                             : Add(Op::kSilu, {gate});
    return Contract("tn,kn->tk", Op2(Op::kMul, gated, up), down);
  }

  // Returns the sum of each row's experts, by their weights. All experts compute all rows, and a
  // row takes what its own gave: no weight of another, not even an infinite one, comes in.
  NodeId Experts(NodeId x, int64_t layer) {
    const Expr experts = spec_.experts;
    const Shape rows = {t_, experts}, wide = {t_, spec_.width};
    const NodeId likely =
        Add(Op::kSoftmax, {Contract("tk,ek->te", x, Weight(Part::kRouter, layer))},
            {{"axis", int64_t{1}}});
    const NodeId hit = Hit(likely);
    NodeId weights = Add(Op::kSelect, {hit, likely, Filled(0, rows)});
    if (spec_.sums_to_one) {
      weights = Op2(Op::kDiv, weights, View(Sum(weights, 1), rows, {Expr::Axis(0)}));
    }
    const NodeId none = Filled(0, wide);
    NodeId all = -1;
    for (int64_t e = 0; e < spec_.experts; ++e) {
      const auto column = [&](NodeId of) { return View(of, wide, {Expr::Axis(0), Expr(e)}); };
      const NodeId y =
          Gated(x, ExpertMatrix(Part::kExpertGate, layer, e),
                ExpertMatrix(Part::kExpertUp, layer, e), ExpertMatrix(Part::kExpertDown, layer, e));
      const NodeId own = Add(Op::kSelect, {column(hit), Op2(Op::kMul, y, column(weights)), none});
      all = e == 0 ? own : Op2(Op::kAdd, all, own);
    }
    return all;
  }

  // Returns bool [T, experts]: whether the expert is one of the row's most likely ones; of equal
  // ones the first.
  NodeId Hit(NodeId likely) {
    const Expr most = spec_.experts_of_row;
    const Shape cells = {t_, Expr(spec_.experts), most};
    const NodeId chosen =
        Add(Op::kTopK, {likely}, {{"axis", int64_t{1}}, {"k", Shape{most}}, {"largest", true}});
    const NodeId taken = View(chosen, cells, {Expr::Axis(0), Expr::Axis(2)});
    const NodeId expert = Counted(DType::kI64, cells, 1);
    const NodeId other =
        Op2(Op::kOr, Op2(Op::kLessThan, expert, taken), Op2(Op::kLessThan, taken, expert));
    const NodeId counted = Sum(Add(Op::kSelect, {other, Filled(0, cells), Filled(1, cells)}), 2);
    return Op2(Op::kLessThan, Filled(0, {t_, Expr(spec_.experts)}), counted);
  }

  const DecoderSpec& spec_;
  const Tensors& tensors_;
  const bool paged_;
  const int64_t block_, context_;
  const Expr t_ = Expr::Symbol("T"), r_ = Expr::Symbol("R"), s_ = Expr::Symbol("S"),
             blocks_ = Expr::Symbol("B"), n_ = Expr::Symbol("N");
  NodeId position_ = -1;
  Angles angles_, local_;                           // local_: of layers with a window
  NodeId sequence_ = -1, table_ = -1, slots_ = -1;  // of form kPaged
  std::map<int64_t, NodeId> masks_;                 // by window
};

}  // namespace

void MatchTensors(const DecoderSpec& spec, const Tensors& tensors,
                  std::vector<ImportRefusal>* refusals) {
  WantedTensors wanted;
  const auto want = [&](Part part, int64_t layer, int64_t expert = 0) {
    wanted.emplace(TensorName(spec.format, part, layer, expert), ShapeOf(spec, part));
  };
  want(Part::kEmbedding, 0);
  want(Part::kFinalNorm, 0);
  if (!spec.tied) want(Part::kLogits, 0);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    for (Part part : LayerParts(*spec.family)) {
      const int64_t each = IsByExpert(spec.format, part) ? spec.experts : 1;
      for (int64_t expert = 0; expert < each; ++expert) want(part, layer, expert);
    }
  }
  MatchWanted(wanted, tensors, refusals);
  for (const auto& [name, tensor] : tensors) {
    if (wanted.contains(name) || IsInertTensor(spec.format, name)) continue;
    const bool tied = spec.tied && name == TensorName(spec.format, Part::kLogits, 0);
    RefuseTensor(name,
                 tied ? "is there, but tie_word_embeddings says that the embedding stands for it"
                      : Cat("is no tensor of family ", spec.family->name),
                 refusals);
  }
}

int64_t ContextOf(const DecoderSpec& spec, const DecoderLimits& limits) {
  return limits.context == 0 ? spec.positions : limits.context;
}

int64_t BlocksOf(int64_t positions, int64_t block) { return (positions + block - 1) / block; }

absl::StatusOr<CheckpointGraph> BuildDecoder(const DecoderSpec& spec, const Tensors& tensors,
                                             const DecoderLimits& limits, DecoderForm form,
                                             const GraphLimits& graph_limits) {
  RETURN_IF_ERROR(CheckLimits(spec, limits, form));
  return Builder(spec, tensors, limits, form, graph_limits).Build();
}

}  // namespace athanor::checkpoint
