// The attention row: a softmax of scores contracted with values, in the forms that the
// decomposition rows of Softmax and Attention have and that people write.
//
//   s = scale * contract(q, k)                     scale: Mul or Div by a scalar, or none
//   s = select(mask, s, -inf)                      and the float and causal forms of
//   ExpandAttention e = exp(s - repeat(max(s))) contract(e / repeat(sum(e)), v)                or e
//   * recip, or contract(e, v) / repeat(sum(e))
//
// Attention gives zeros for a query with no key left, softmax gives NaN: a mask that may hide every
// key is recognised only with ExpandAttention's selects around it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "compiler/rules/recognise_match.h"

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
  // Takes a node into the pattern and goes below its permutations (or repetitions).
  Lettered Take(Lettered v) {
    if (v.node != root_) inner_.push_back(v.node);
    return v;
  }
  Lettered Below(const Lettered& v) { return PermutedSourceOf(site_, v, &inner_); }
  Lettered Source(const Lettered& v) { return SourceOf(site_, v, &inner_); }
  bool Scalar(NodeId n, double value) const { return ScalarValue(site_, n) == value; }
  // The operand of a Mul beside the scalar `value`.
  std::optional<Lettered> Beside(const Lettered& mul, double value);
  double Lowest() const {
    return node(root_).type.dtype == DType::kF64
               ? std::numeric_limits<double>::lowest()
               : static_cast<double>(std::numeric_limits<float>::lowest());
  }

  static bool Has(const Lettered& v, char c) { return v.letters.find(c) != std::string::npos; }
  bool RenameContract(const Lettered& contract, char summed, Lettered* lhs, Lettered* rhs) const;

  bool MatchEnds();  // from the root to exps_ and values_
  bool MatchDivided(const Lettered& top);
  bool MatchWeights(const Lettered& weights);
  bool MatchTotal(const Lettered& v);
  bool MatchValueContract(const Lettered& sum);
  bool MatchExps();  // from exps_ to scores_
  bool IsPeak(const Lettered& v);
  bool IsNone(const Lettered& v);
  bool MatchMasks();
  bool IsCausal(const Lettered& condition, bool hides) const;
  bool MatchScale();
  bool MatchScoreContract();
  bool MayHideAll() const;
  bool Sizes();
  bool OnlyInnerUsers() const;
  std::optional<Recognised> Result() const;
  RecognisedOperand View(const Lettered& v, const std::string& letters) const;

  const RecognitionSite& site_;
  const NodeId root_;
  std::vector<NodeId> inner_;
  Lettered exps_, values_, scores_, peak_, queries_, keys_, mask_;
  std::string result_;  // letters of the root
  std::string batch_;
  char q_ = 0, k_ = 0, v_ = 0, d_ = 0;
  std::map<char, Expr> extents_;
  bool guarded_ = false;  // zeros where no key is left
  bool divided_last_ = false;
  bool causal_ = false;
  double scale_ = 1;
};

std::optional<Lettered> AttentionMatch::Beside(const Lettered& mul, double value) {
  if (node(mul).op != Op::kMul) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    if (Scalar(node(mul).inputs[1 - i], value)) return Input(mul, i);
  }
  return std::nullopt;
}

// The operands of a contraction in the letters of its result, `summed` for the one letter it sums
// over.
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
  return root.op == Op::kDiv && MatchDivided(top);
}

// Sets exps_ to operand 0 and values_ to operand 1, in the letters of the result.
bool AttentionMatch::MatchValueContract(const Lettered& sum) {
  k_ = 'z';
  if (!RenameContract(sum, k_, &exps_, &values_)) return false;
  Take(sum);
  return Has(exps_, k_) && Has(values_, k_);
}

// contract(e, v) / repeat(sum(e))
bool AttentionMatch::MatchDivided(const Lettered& top) {
  if (node(top).op != Op::kDiv) return false;
  divided_last_ = true;
  Take(top);
  const Lettered sum = Below(Input(top, 0));
  const size_t before = inner_.size();
  for (int weights = 0; weights < 2; ++weights) {
    inner_.resize(before);
    if (!MatchValueContract(sum)) return false;
    if (weights == 1) std::swap(exps_, values_);
    exps_ = Below(exps_);
    if (node(exps_).op == Op::kExp && MatchTotal(Input(top, 1))) return true;
  }
  return false;
}

// e / repeat(sum(e)), or e * repeat(recip(sum(e)))
bool AttentionMatch::MatchWeights(const Lettered& given) {
  const Lettered weights = Take(Below(given));
  const Op op = node(weights).op;
  if (op == Op::kDiv) {
    exps_ = Below(Input(weights, 0));
    return node(exps_).op == Op::kExp && MatchTotal(Input(weights, 1));
  }
  if (op != Op::kMul) return false;
  for (int i = 0; i < 2; ++i) {
    exps_ = PermutedSourceOf(site_, Input(weights, i));
    const Lettered factor = SourceOf(site_, Input(weights, 1 - i));
    if (node(exps_).op != Op::kExp || node(factor).op != Op::kRecip) continue;
    Below(Input(weights, i));
    Source(Input(weights, 1 - i));
    return MatchTotal(Input(Take(factor), 0));
  }
  return false;
}

// A SumReduce of exps_ over the keys, repeated along any axis.
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

// peak < lowest, which only -inf is
bool AttentionMatch::IsNone(const Lettered& v) {
  if (node(v).op != Op::kLessThan || !Scalar(node(v).inputs[1], Lowest())) return false;
  Take(v);
  peak_ = Input(v, 0);
  return true;
}

// exp(s - repeat(max(s))), the maximum replaced by 0 where it is -inf if guarded_
bool AttentionMatch::MatchExps() {
  Take(exps_);
  const Lettered difference = Take(Below(Input(exps_, 0)));
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
    // The guard around the result reads the same maximum, without the axis that `v` has.
    if (Input(peak, 2) == peak_ && peak_ == expected && IsPeak(peak_)) return true;
  }
  return false;
}

// hidden where key > query + (keys - queries)
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
  // Both are hidden where the expression is not negative.
  const Expr ours = at[k] - at[q] - shape[k] + shape[q] - 1;
  return bounds.ProvablyEqual(ours, hides ? *b - *a - 1 : *a - *b);
}

bool AttentionMatch::MatchMasks() {
  const double hidden = -std::numeric_limits<double>::infinity();
  while (node(scores_).op == Op::kSelect) {
    const bool hides = Scalar(node(scores_).inputs[1], hidden);
    if (mask_.node >= 0 || (!hides && !Scalar(node(scores_).inputs[2], hidden))) return false;
    const Lettered select = Take(scores_);
    const Lettered condition = Input(select, 0);
    scores_ = Below(Input(select, hides ? 2 : 1));
    if (!causal_ && IsCausal(condition, hides)) {
      causal_ = true;
    } else if (!hides) {
      mask_ = condition;
    } else {
      // A mask that is added, and hides where it is -inf.
      const Node& less = node(condition);
      if (less.op != Op::kLessThan || !Scalar(less.inputs[1], Lowest())) return false;
      mask_ = Input(condition, 0);
      const Lettered sum = Take(scores_);
      if (node(sum).op != Op::kAdd) return false;
      const int side = node(sum).inputs[1] == mask_.node ? 0 : 1;
      if (Input(sum, 1 - side) != mask_) return false;
      scores_ = Below(Input(sum, side));
    }
  }
  return true;
}

bool AttentionMatch::MatchScale() {
  const Node& n = node(scores_);
  if (n.op != Op::kMul && n.op != Op::kDiv) return true;
  for (int i = 0; i < (n.op == Op::kMul ? 2 : 1); ++i) {
    std::optional<double> factor = ScalarValue(site_, n.inputs[1 - i]);
    if (!factor) continue;
    scale_ = n.op == Op::kMul ? *factor : 1 / *factor;
    scores_ = Below(Input(Take(scores_), i));
    return std::isfinite(scale_);
  }
  return false;
}

bool AttentionMatch::MatchScoreContract() {
  d_ = 'y';
  if (!RenameContract(scores_, d_, &queries_, &keys_)) return false;
  Take(scores_);
  if (Has(queries_, k_)) std::swap(queries_, keys_);
  return Has(queries_, q_) && !Has(queries_, k_) && Has(queries_, d_) && Has(keys_, k_) &&
         !Has(keys_, q_) && Has(keys_, d_);
}

// Which letter is what: batch axes weigh and are weighed, v is only in the values, q only in the
// weights. Of several such axes the last is q; the keys and values repeat along the others.
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
  if (mask_.node >= 0) return true;
  // The first query sees the first keys - queries + 1 keys.
  if (causal_ && !site_.bounds.NonNegative(keys - queries)) return true;
  // Without keys the sum is 0 / 0 if the division comes last.
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

// `v` as a tensor with the axes `letters`: permuted, and repeated along those it lacks.
RecognisedOperand AttentionMatch::View(const Lettered& v, const std::string& letters) const {
  if (v.letters == letters) return {v.node, std::nullopt};
  IndexMap map;
  for (char c : letters) map.shape.push_back(extents_.at(c));
  for (char c : v.letters) map.coordinates.push_back(Expr::Axis(static_cast<int>(letters.find(c))));
  return {v.node, std::move(map)};
}

std::optional<Recognised> AttentionMatch::Result() const {
  Recognised r;
  r.op = Op::kAttention;
  r.operands = {View(queries_, batch_ + q_ + d_), View(keys_, batch_ + k_ + d_),
                View(values_, batch_ + k_ + v_)};
  if (mask_.node >= 0) r.operands.push_back(View(mask_, batch_ + q_ + k_));
  if (causal_) r.attrs["causal"] = true;
  // The usual scale is left out, as it is where a composite is written; it may have been rounded
  // twice.
  const double usual = 1 / std::sqrt(static_cast<double>(*extents_.at(d_).constant()));
  const double unit = node(root_).type.dtype == DType::kF32 ? 0x1p-23 : 0x1p-52;
  if (std::abs(scale_ - usual) > unit * usual) r.attrs["scale"] = scale_;
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
  if (!MatchEnds() || !Sizes() || !MatchExps() || !MatchMasks() || !MatchScale() ||
      !MatchScoreContract()) {
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
  if (op != Op::kContract && op != Op::kSelect && op != Op::kDiv) return std::nullopt;
  return AttentionMatch(site, n).Run();
}

}  // namespace athanor
