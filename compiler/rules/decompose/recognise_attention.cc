// The attention row: matches a softmax of scores contracted with values, in the forms of the
// decomposition rows of Softmax and Attention, and in forms that people write.
//
//   s = scale * contract(q, k)         scale: Mul or Div by a scalar, also of a masked s or
//                                      s - max(s), of q or k where it is at least 1, or none
//   s = select(mask, s, -inf)          and the float and causal forms of ExpandAttention
//   s = s + mask                       a mask of finite numbers
//   e = exp(s - repeat(max(s)))
//   contract(e / repeat(sum(e)), v)    or e * recip, or contract(e, v) / repeat(sum(e))
//
// Maxima and sums may keep axes of size 1 until they are repeated. Attention gives zeros for a
// query without visible keys, but softmax gives NaN. So a mask that may hide every key is
// recognised only with ExpandAttention's selects around it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "compiler/rules/decompose/recognise_match.h"

namespace athanor {

namespace {

class AttentionMatch {
 public:
  AttentionMatch(const RecognitionSite& site, NodeId n) : site_(site), root_(n) {}

  std::optional<Recognised> Run();

 private:
  const Node& node(const Lettered& v) const { return site_.node(v.node); }
  const Node& node(NodeId n) const { return site_.node(n); }
  Lettered Input(const Lettered& v, int i) const { return {node(v).inputs[i], v.letters}; }
  // Take adds a node to the pattern. Below and Source go below permutations (Source also below
  // repetitions), and add those.
  Lettered Take(Lettered v) {
    if (v.node != root_) inner_.push_back(v.node);
    return v;
  }
  Lettered Below(const Lettered& v) { return PermutedSourceOf(site_, v, &inner_); }
  Lettered Source(const Lettered& v) { return UnitSourceOf(site_, v, &inner_); }
  bool Scalar(NodeId n, double value) const { return ScalarValue(site_, n) == value; }
  // Returns the operand that a Mul multiplies by the scalar `value`.
  std::optional<Lettered> Beside(const Lettered& mul, double value);
  double Lowest() const {
    return node(root_).type.dtype == DType::kF64
               ? std::numeric_limits<double>::lowest()
               : static_cast<double>(std::numeric_limits<float>::lowest());
  }

  static bool Has(const Lettered& v, char c) { return v.letters.find(c) != std::string::npos; }
  bool RenameContract(const Lettered& contract, char summed, Lettered* lhs, Lettered* rhs) const;

  bool MatchEnds();  // from the root to exps_ and values_
  struct Quotient {
    Lettered over, under;
  };
  std::optional<Quotient> QuotientOf(const Lettered& v);
  bool MatchDivided(const Lettered& top);
  bool MatchWeights(const Lettered& weights);
  bool MatchTotal(const Lettered& v);
  bool MatchValueContract(const Lettered& sum);
  bool MatchExps();  // from exps_ to scores_
  bool IsPeak(const Lettered& v);
  bool IsNone(const Lettered& v);
  bool MatchMasks();
  bool MatchSelect();
  bool MatchSum();
  double PassFactors(Lettered* v);
  bool IsCausal(const Lettered& condition, bool hides) const;
  bool MatchScoreContract();
  RecognisedOperand PassScale(NodeId n);
  bool MayHideAll() const;
  bool Sizes();
  bool OnlyInnerUsers() const;
  std::optional<Recognised> Result() const;
  RecognisedOperand View(const Lettered& v, const std::string& letters) const {
    return View(v, {v.node, std::nullopt}, letters);
  }
  RecognisedOperand View(const Lettered& v, const RecognisedOperand& source,
                         const std::string& letters) const;

  const RecognitionSite& site_;
  const NodeId root_;
  std::vector<NodeId> inner_;
  Lettered exps_, values_, scores_, peak_, queries_, keys_, mask_;
  RecognisedOperand query_source_, key_source_;  // without their scales
  std::string result_;                           // letters of the root
  std::string batch_;
  char q_ = 0, k_ = 0, v_ = 0, d_ = 0;
  std::map<char, Expr> extents_;
  bool guarded_ = false;  // gives zeros for queries without visible keys
  bool divided_last_ = false;
  bool causal_ = false;
  bool finite_mask_ = false;
  double scale_ = 1;
  int factors_ = 0;  // number of factors in scale_
};

// A factor that moves in the expression may neither overflow nor vanish on the way.
constexpr double kLeastMoved = 0x1p-32, kMostMoved = 0x1p32;

std::optional<Lettered> AttentionMatch::Beside(const Lettered& mul, double value) {
  if (node(mul).op != Op::kMul) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    if (Scalar(node(mul).inputs[1 - i], value)) return Input(mul, i);
  }
  return std::nullopt;
}

// Returns the operands of a contraction in the letters of its result; `summed` is the one letter
// that it sums over.
bool AttentionMatch::RenameContract(const Lettered& contract, char summed, Lettered* lhs,
                                    Lettered* rhs) const {
  const Node& n = node(contract);
  if (n.op != Op::kContract) return false;
  ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(n.attrs, "spec"));
  std::map<char, char> names;
  for (size_t i = 0; i < spec.result.size(); ++i) names[spec.result[i]] = contract.letters[i];
  for (std::string* side : {&spec.lhs, &spec.rhs}) {
    for (char& c : *side) {
      if (!names.contains(c)) {
        if (names.size() > spec.result.size()) return false;
        names[c] = summed;
      }
      c = names[c];
    }
  }
  *lhs = {n.inputs[0], spec.lhs};
  *rhs = {n.inputs[1], spec.rhs};
  return true;
}

bool AttentionMatch::MatchEnds() {
  const Node& root = node(root_);
  if (!IsFloat(root.type.dtype) || AccumulatorOf(root.type.dtype) != root.type.dtype) return false;
  const size_t rank = root.type.shape.size();
  if (rank > 20) return false;
  const Lettered top{root_, std::string("abcdefghijklmnopqrst").substr(0, rank)};
  result_ = top.letters;
  if (root.op == Op::kContract) {
    for (int weights = 0; weights < 2; ++weights) {
      inner_.clear();
      if (!MatchValueContract(top)) return false;
      if (weights == 1) std::swap(exps_, values_);
      if (MatchWeights(exps_)) return true;
    }
    return false;
  }
  if (root.op == Op::kSelect) {
    guarded_ = true;
    return Scalar(root.inputs[1], 0) && MatchDivided(Below(Input(top, 2))) &&
           IsNone(Source(Input(top, 0)));
  }
  return MatchDivided(top);
}

// Sets exps_ to operand 0 and values_ to operand 1, in the letters of the result.
bool AttentionMatch::MatchValueContract(const Lettered& sum) {
  k_ = 'z';
  if (!RenameContract(sum, k_, &exps_, &values_)) return false;
  Take(sum);
  return Has(exps_, k_) && Has(values_, k_);
}

// Matches a / b, or a * repeat(recip(b)).
std::optional<AttentionMatch::Quotient> AttentionMatch::QuotientOf(const Lettered& v) {
  if (node(v).op == Op::kDiv) return Quotient{Input(v, 0), Input(v, 1)};
  if (node(v).op != Op::kMul) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    if (node(UnitSourceOf(site_, Input(v, 1 - i))).op != Op::kRecip) continue;
    return Quotient{Input(v, i), Input(Take(Source(Input(v, 1 - i))), 0)};
  }
  return std::nullopt;
}

// Matches contract(e, v) / repeat(sum(e)).
bool AttentionMatch::MatchDivided(const Lettered& top) {
  const std::optional<Quotient> quotient = QuotientOf(top);
  if (!quotient) return false;
  divided_last_ = true;
  Take(top);
  const Lettered sum = Below(quotient->over);
  const size_t before = inner_.size();
  for (int weights = 0; weights < 2; ++weights) {
    inner_.resize(before);
    if (!MatchValueContract(sum)) return false;
    if (weights == 1) std::swap(exps_, values_);
    exps_ = Below(exps_);
    if (node(exps_).op == Op::kExp && MatchTotal(quotient->under)) return true;
  }
  return false;
}

// Matches e / repeat(sum(e)).
bool AttentionMatch::MatchWeights(const Lettered& given) {
  const Lettered weights = Take(Below(given));
  const std::optional<Quotient> quotient = QuotientOf(weights);
  if (!quotient) return false;
  exps_ = Below(quotient->over);
  return node(exps_).op == Op::kExp && MatchTotal(quotient->under);
}

// Matches a SumReduce of exps_ over the keys, repeated along any axis.
bool AttentionMatch::MatchTotal(const Lettered& v) {
  const Lettered total = Take(Source(v));
  if (node(total).op != Op::kSumReduce) return false;
  std::string letters = exps_.letters;
  const auto& axes = GetAttr<std::vector<int64_t>>(node(total).attrs, "axes");
  // The sum may read the exponentials through a permutation of its own.
  Lettered operand{node(total).inputs[0], total.letters};
  if (axes.size() != 1 || axes[0] > static_cast<int64_t>(operand.letters.size())) return false;
  operand.letters.insert(static_cast<size_t>(axes[0]), 1, k_);
  return Below(operand) == exps_;
}

bool AttentionMatch::IsPeak(const Lettered& v) {
  if (node(v).op != Op::kMaxReduce) return false;
  const auto& axes = GetAttr<std::vector<int64_t>>(node(v).attrs, "axes");
  Lettered operand = Input(v, 0);
  if (axes.size() != 1 || axes[0] > static_cast<int64_t>(operand.letters.size())) return false;
  operand.letters.insert(static_cast<size_t>(axes[0]), 1, k_);
  Take(v);
  return Below(operand) == scores_;
}

// Matches peak < lowest, which is true only for -inf.
bool AttentionMatch::IsNone(const Lettered& v) {
  if (node(v).op != Op::kLessThan || !Scalar(node(v).inputs[1], Lowest())) return false;
  Take(v);
  peak_ = Source(Input(v, 0));
  return true;
}

// Matches exp(s - repeat(max(s))); if guarded_, with the maximum replaced by 0 where it is -inf.
bool AttentionMatch::MatchExps() {
  Take(exps_);
  Lettered difference = Below(Input(exps_, 0));
  // Matches exp(f * (s - max(s))). A negative factor would turn the maximum into a minimum.
  scale_ = PassFactors(&difference);
  if (!(scale_ >= kLeastMoved && scale_ <= 1)) return false;
  Take(difference);
  if (node(difference).op != Op::kAdd) return false;
  const size_t before = inner_.size();
  for (int i = 0; i < 2; ++i) {
    inner_.resize(before);
    scores_ = Below(Input(difference, i));
    Lettered minus = Source(Input(difference, 1 - i));
    std::optional<Lettered> base = Beside(minus, -1);
    if (!base) continue;
    Take(minus);
    Lettered peak = Source(*base);
    if (!guarded_) {
      if (IsPeak(peak)) return true;
      continue;
    }
    const Node& select = node(peak);
    if (select.op != Op::kSelect || !Scalar(select.inputs[1], 0)) continue;
    Take(peak);
    const Lettered expected = peak_;
    if (!IsNone(Input(peak, 0)) || peak_.node != expected.node) continue;
    // The guard around the result reads the same maximum, without the axis of the keys.
    if (Source(Input(peak, 2)) == peak_ && peak_ == expected && IsPeak(peak_)) return true;
  }
  return false;
}

// Reports whether keys are hidden exactly where key > query + (keys - queries).
bool AttentionMatch::IsCausal(const Lettered& condition, bool hides) const {
  const Node& less = node(condition);
  if (less.op != Op::kLessThan) return false;
  const Shape& shape = less.type.shape;
  Bounds bounds = site_.bounds;
  std::vector<Expr> at;
  for (size_t i = 0; i < shape.size(); ++i) {
    at.push_back(Expr::Axis(static_cast<int>(i)));
    bounds.SetExtent(*at.back().symbol(), shape[i]);
  }
  std::optional<Expr> a = IndexValue(site_, less.inputs[0], at, bounds);
  std::optional<Expr> b = IndexValue(site_, less.inputs[1], at, bounds);
  if (!a || !b) return false;
  const size_t q = condition.letters.find(q_), k = condition.letters.find(k_);
  // Both forms hide a key where the expression is not negative.
  const Expr ours = at[k] - at[q] - shape[k] + shape[q] - 1;
  return bounds.ProvablyEqual(ours, hides ? *b - *a - 1 : *a - *b);
}

// While v = f * w: replaces v by w. Returns the product of the factors f.
double AttentionMatch::PassFactors(Lettered* v) {
  double product = 1;
  while (node(*v).op == Op::kMul || node(*v).op == Op::kDiv) {
    const bool divides = node(*v).op == Op::kDiv;
    std::optional<double> factor = ScalarValue(site_, node(*v).inputs[1]);
    const int side = factor || divides ? 0 : 1;
    if (side == 1) factor = ScalarValue(site_, node(*v).inputs[0]);
    if (!factor) break;
    product *= divides ? 1 / *factor : *factor;
    ++factors_;
    *v = Below(Input(Take(*v), side));
  }
  return product;
}

// Goes from the scores that softmax sees down to those of the contraction.
bool AttentionMatch::MatchMasks() {
  while (true) {
    const double factor = PassFactors(&scores_);
    const Op op = node(scores_).op;
    const bool masked = op == Op::kSelect || op == Op::kAdd;
    scale_ *= factor;
    if (!masked) return std::isfinite(scale_);
    // A hidden score must stay hidden.
    if (!(factor > 0) || !std::isfinite(factor)) return false;
    if (op == Op::kSelect ? !MatchSelect() : !MatchSum()) return false;
  }
}

bool AttentionMatch::MatchSelect() {
  const double hidden = -std::numeric_limits<double>::infinity();
  const bool hides = Scalar(node(scores_).inputs[1], hidden);
  if (!hides && !Scalar(node(scores_).inputs[2], hidden)) return false;
  const Lettered select = Take(scores_);
  const Lettered condition = Input(select, 0);
  scores_ = Below(Input(select, hides ? 2 : 1));
  if (!causal_ && IsCausal(condition, hides)) return causal_ = true;
  if (mask_.node >= 0) return false;
  if (!hides) {
    mask_ = condition;
    return true;
  }
  const Lettered inner = UnitSourceOf(site_, condition);
  if (node(inner).op == Op::kNot) {
    mask_ = Input(inner, 0);
    return true;
  }
  // A mask that is added, and that hides a key where it is -inf.
  const Node& less = node(condition);
  if (less.op != Op::kLessThan || !Scalar(less.inputs[1], Lowest())) return false;
  mask_ = Input(condition, 0);
  const Lettered sum = Take(scores_);
  if (scale_ != 1 || node(sum).op != Op::kAdd) return false;
  const int side = node(sum).inputs[1] == mask_.node ? 0 : 1;
  if (Input(sum, 1 - side) != mask_) return false;
  scores_ = Below(Input(sum, side));
  return true;
}

// Matches a mask that is added and never infinite.
bool AttentionMatch::MatchSum() {
  if (scale_ != 1 || mask_.node >= 0) return false;
  for (int i = 0; i < 2; ++i) {
    if (!FiniteRange(site_, node(scores_).inputs[1 - i])) continue;
    mask_ = Input(scores_, 1 - i);
    finite_mask_ = true;
    scores_ = Below(Input(Take(scores_), i));
    return true;
  }
  return false;
}

// Returns `n` without a scale that Attention can apply. Attention scales sums of products, so a
// scale below 1 stays in place: it keeps sums finite that overflow without it.
RecognisedOperand AttentionMatch::PassScale(NodeId n) {
  std::optional<ScaledOperand> scaled = ScaledOperandOf(site_, n);
  if (!scaled) return {n, std::nullopt};
  const double magnitude = std::abs(scaled->factor);
  if (!(magnitude >= 1 && magnitude <= kMostMoved)) return {n, std::nullopt};
  scale_ *= scaled->factor;
  ++factors_;
  return std::move(scaled->operand);
}

bool AttentionMatch::MatchScoreContract() {
  d_ = 'y';
  if (!RenameContract(scores_, d_, &queries_, &keys_)) return false;
  Take(scores_);
  if (Has(queries_, k_)) std::swap(queries_, keys_);
  query_source_ = PassScale(queries_.node);
  key_source_ = PassScale(keys_.node);
  return Has(queries_, q_) && !Has(queries_, k_) && Has(queries_, d_) && Has(keys_, k_) &&
         !Has(keys_, q_) && Has(keys_, d_);
}

// Assigns the letters: batch axes are in the weights and in the values, v only in the values, q
// only in the weights. If there are several axes like q, the last one is q; keys and values repeat
// along the others.
bool AttentionMatch::Sizes() {
  for (char c : result_) {
    if (!Has(exps_, c)) {
      if (v_ != 0) return false;
      v_ = c;
    } else if (!Has(values_, c)) {
      q_ = c;
    }
  }
  for (char c : result_) {
    if (c != q_ && c != v_) batch_ += c;
  }
  return q_ != 0 && v_ != 0 && exps_.letters.size() == batch_.size() + 2;
}

bool AttentionMatch::MayHideAll() const {
  const Expr &queries = extents_.at(q_), &keys = extents_.at(k_);
  if (mask_.node >= 0 && !finite_mask_) return true;
  // The first query sees only the first keys - queries + 1 keys.
  if (causal_ && !site_.bounds.NonNegative(keys - queries)) return true;
  // Without keys, the sum is 0 / 0 if the division comes last.
  return divided_last_ && !site_.bounds.NonNegative(keys - 1);
}

bool AttentionMatch::OnlyInnerUsers() const {
  for (NodeId n : inner_) {
    if (n == root_) continue;
    if (site_.is_output[n]) return false;
    for (NodeId user : site_.users[n]) {
      if (user != root_ && std::find(inner_.begin(), inner_.end(), user) == inner_.end())
        return false;
    }
  }
  return true;
}

// Returns `v`, which is read from `source`, as a tensor with the axes `letters`: permuted, and
// repeated along those it lacks.
RecognisedOperand AttentionMatch::View(const Lettered& v, const RecognisedOperand& source,
                                       const std::string& letters) const {
  if (v.letters == letters) return source;
  IndexMap map;
  for (char c : letters) map.shape.push_back(extents_.at(c));
  for (char c : v.letters) {
    map.coordinates.push_back(c == kUnitLetter ? Expr(0)
                                               : Expr::Axis(static_cast<int>(letters.find(c))));
  }
  if (source.view) map.coordinates = Compose(*source.view, map.coordinates);
  return {source.node, std::move(map)};
}

std::optional<Recognised> AttentionMatch::Result() const {
  Recognised r;
  r.op = Op::kAttention;
  r.operands = {View(queries_, query_source_, batch_ + q_ + d_),
                View(keys_, key_source_, batch_ + k_ + d_), View(values_, batch_ + k_ + v_)};
  if (mask_.node >= 0) r.operands.push_back(View(mask_, batch_ + q_ + k_));
  if (causal_) r.attrs["causal"] = true;
  // The default scale is omitted, as in a composite. Each factor, and the root, may have been
  // rounded.
  const double usual = 1 / std::sqrt(static_cast<double>(*extents_.at(d_).constant()));
  const double unit = node(root_).type.dtype == DType::kF32 ? 0x1p-23 : 0x1p-52;
  if (std::abs(scale_ - usual) > std::max(factors_, 1) * unit * usual) r.attrs["scale"] = scale_;
  const std::string own = batch_ + q_ + v_;
  if (own != result_) {
    IndexMap map;
    for (char c : result_) map.shape.push_back(extents_.at(c));
    for (char c : own) map.coordinates.push_back(Expr::Axis(static_cast<int>(result_.find(c))));
    r.view = std::move(map);
  }
  return r;
}

std::optional<Recognised> AttentionMatch::Run() {
  if (!MatchEnds() || !Sizes() || !MatchExps() || !MatchMasks() || !MatchScoreContract()) {
    return std::nullopt;
  }
  for (const Lettered* v : {&queries_, &keys_, &values_}) {
    for (size_t i = 0; i < v->letters.size(); ++i) extents_[v->letters[i]] = node(*v).type.shape[i];
  }
  const bool sized =
      std::all_of(batch_.begin(), batch_.end(), [&](char c) { return extents_.contains(c); });
  if (!sized || !extents_.at(d_).constant() || !extents_.at(v_).constant()) return std::nullopt;
  if (*extents_.at(d_).constant() < 1) return std::nullopt;
  if (!guarded_ && MayHideAll()) return std::nullopt;
  if (!OnlyInnerUsers()) return std::nullopt;
  return Result();
}

}  // namespace

std::optional<Recognised> MatchAttention(const RecognitionSite& site, NodeId n) {
  const Op op = site.node(n).op;
  const bool last = op == Op::kContract || op == Op::kSelect || op == Op::kDiv || op == Op::kMul;
  if (!last) return std::nullopt;
  return AttentionMatch(site, n).Run();
}

}  // namespace athanor
