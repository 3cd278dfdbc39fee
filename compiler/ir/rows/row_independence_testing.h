// Tests a proof of row independence on values, with the reference evaluator.
//
//   absl::Status held = TryRows(graph, "b", proof, {{"b", 7}, {"s", 3}}, inputs, rng);
//   // OK: the rows in several calls, in another order, beside rows of NaN, infinities and copies
//   // of others gave the same; INTERNAL says what differed; OUT_OF_RANGE: the inputs have an index
//   // outside its tensor, and nothing was tried
#ifndef ATHANOR_COMPILER_IR_ROWS_ROW_INDEPENDENCE_TESTING_H_
#define ATHANOR_COMPILER_IR_ROWS_ROW_INDEPENDENCE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/rows/row_independence.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

// Compares bits, but any two NaNs are equal: which NaN two operands give may depend on how a loop
// was vectorised.
inline bool SameElements(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.bytes == b.bytes) return true;
  const size_t size = DTypeBytes(a.dtype);
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (a.bytes.compare(i * size, size, b.bytes, i * size, size) == 0) continue;
    if (!IsFloat(a.dtype)) return false;
    if (!std::isnan(LoadScalar(a, i).f) || !std::isnan(LoadScalar(b, i).f)) return false;
  }
  return true;
}

class RowTrial {
 public:
  // `inputs` are the inputs, then the parameters, as for Evaluate, at the sizes `dims`.
  RowTrial(const Graph& graph, std::string_view dim, const RowProof& proof, Expr::Env dims,
           std::vector<Tensor> inputs)
      : graph_(graph),
        dim_(dim),
        proof_(proof),
        dims_(std::move(dims)),
        inputs_(std::move(inputs)),
        rows_(dims_.find(dim)->second) {}

  absl::Status Run(std::mt19937& rng) {
    ASSIGN_OR_RETURN(whole_, Evaluate(graph_, inputs_, &dims_));
    if (rows_ == 0) return absl::OkStatus();
    absl::Status s = TryParts(rng);
    if (s.ok()) s = TryOrder(rng);
    for (double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity(), 0.25}) {
      if (s.ok()) s = TryOthers(value, rng);
    }
    return s;
  }

 private:
  using Tensors = std::vector<Tensor>;
  using Spans = std::vector<std::pair<int64_t, int64_t>>;  // rows [first, second)

  // Returns the rows of a value in these spans, concatenated; the whole value if it has no rows.
  Tensor Rows(const Tensor& value, const RowProof::Rows& rows, const Spans& spans) const {
    if (!rows.any()) return value;
    Tensor taken{value.dtype, value.shape, {}};
    const size_t row = value.bytes.size() / rows_;
    int64_t count = 0;
    for (const auto& [first, last] : spans) {
      taken.bytes += value.bytes.substr(first * row, (last - first) * row);
      count += last - first;
    }
    taken.shape[0] = value.shape[0] / rows_ * count;
    return taken;
  }

  Tensors InputsAt(const Spans& spans) const {
    Tensors taken = inputs_;
    for (size_t i = 0; i < proof_.inputs.size(); ++i) {
      taken[i] = Rows(inputs_[i], proof_.inputs[i], spans);
    }
    return taken;
  }

  absl::Status Compare(const Tensors& values, const Spans& spans, const std::string& what) const {
    for (size_t o = 0; o < whole_.size(); ++o) {
      if (SameElements(values[o], Rows(whole_[o], proof_.outputs[o], spans))) continue;
      return absl::InternalError(
          Cat("output ", Quoted(graph_.outputs[o].name), " differs: ", what));
    }
    return absl::OkStatus();
  }

  absl::Status TryCall(const Spans& spans, int64_t count, const std::string& what) const {
    Expr::Env dims = dims_;
    dims.insert_or_assign(dim_, count);
    const absl::StatusOr<Tensors> values = Evaluate(graph_, InputsAt(spans), &dims);
    if (!values.ok()) {
      return absl::InternalError(Cat(what, ": ", std::string(values.status().message())));
    }
    return Compare(*values, spans, what);
  }

  // Calls once per row if the dim may be 1, and over random cuts.
  absl::Status TryParts(std::mt19937& rng) const {
    const auto dim = std::find_if(graph_.dims.begin(), graph_.dims.end(),
                                  [&](const Dim& d) { return d.name == dim_; });
    const int64_t least = std::max<int64_t>(dim->min, 1);
    for (int64_t cut :
         {least, rows_ >= 2 * least ? least + static_cast<int64_t>(rng() % (rows_ - 2 * least + 1))
                                    : rows_}) {
      for (int64_t first = 0; first < rows_;) {
        const int64_t last = rows_ - first - cut < least ? rows_ : first + cut;
        const absl::Status s = TryCall({{first, last}}, last - first,
                                       Cat("rows ", first, " to ", last - 1, " by themselves"));
        if (!s.ok()) return s;
        first = last;
      }
    }
    return absl::OkStatus();
  }

  absl::Status TryOrder(std::mt19937& rng) const {
    Spans order;
    for (int64_t row = 0; row < rows_; ++row) order.push_back({row, row + 1});
    std::shuffle(order.begin(), order.end(), rng);
    return TryCall(order, rows_, "rows in another order");
  }

  // Fills one row's floats with `value` and copies another row's integers into it.
  void Overwrite(Tensor* input, int64_t row, int64_t from, double value) const {
    const int64_t count = input->elements() / rows_;
    const size_t bytes = input->bytes.size() / rows_;
    for (int64_t i = 0; i < count && IsFloat(input->dtype); ++i) {
      StoreScalar(*input, row * count + i, Scalar::Float(input->dtype, value));
    }
    if (!IsFloat(input->dtype)) {
      input->bytes.replace(row * bytes, bytes, input->bytes.substr(from * bytes, bytes));
    }
  }

  // Checks that the contents of one row change no other row.
  absl::Status TryOthers(double value, std::mt19937& rng) const {
    const auto row = static_cast<int64_t>(rng() % rows_),
               from = static_cast<int64_t>(rng() % rows_);
    Tensors inputs = inputs_;
    for (size_t i = 0; i < proof_.inputs.size(); ++i) {
      if (proof_.inputs[i].any()) Overwrite(&inputs[i], row, from, value);
    }
    const absl::StatusOr<Tensors> values = Evaluate(graph_, inputs, &dims_);
    // The changed float led to an index outside its tensor.
    if (values.status().code() == absl::StatusCode::kOutOfRange) return absl::OkStatus();
    if (!values.ok()) return absl::InternalError(std::string(values.status().message()));
    const Spans others = {{0, row}, {row + 1, rows_}};
    Tensors kept;
    for (size_t o = 0; o < values->size(); ++o) {
      kept.push_back(Rows((*values)[o], proof_.outputs[o], others));
    }
    return Compare(kept, others, Cat("beside a row of ", value));
  }

  const Graph& graph_;
  const std::string dim_;
  const RowProof& proof_;
  const Expr::Env dims_;
  const Tensors inputs_;
  const int64_t rows_;
  Tensors whole_;
};

inline absl::Status TryRows(const Graph& graph, std::string_view dim, const RowProof& proof,
                            Expr::Env dims, std::vector<Tensor> inputs, std::mt19937& rng) {
  return RowTrial(graph, dim, proof, std::move(dims), std::move(inputs)).Run(rng);
}

// Returns integers in [0, limit), valid as indices into that many elements.
inline Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, int64_t limit,
                           std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) {
    const uint64_t bits = rng();
    const uint64_t integer = bits % static_cast<uint64_t>(dtype == DType::kBool ? 2 : limit);
    StoreScalar(t, i,
                IsFloat(dtype)    ? Scalar::Float(dtype, static_cast<double>(bits % 4096) / 512 - 4)
                : IsSigned(dtype) ? Scalar::Signed(dtype, static_cast<int64_t>(integer))
                                  : Scalar::Unsigned(dtype, integer));
  }
  return t;
}

inline absl::Status TryRandomRows(const Graph& graph, std::string_view dim, const RowProof& proof,
                                  const Expr::Env& dims, std::mt19937& rng, int64_t limit = 4) {
  std::vector<Tensor> inputs;
  for (const std::vector<NodeId>& ids : {graph.InputIds(), graph.ParameterIds()}) {
    for (NodeId id : ids) {
      const TensorType& type = graph.node(id).type;
      const std::vector<int64_t> shape = ConcreteShape(type.shape, dims).value();
      inputs.push_back(RandomTensor(type.dtype, shape, limit, rng));
    }
  }
  return TryRows(graph, dim, proof, dims, std::move(inputs), rng);
}

// Returns the ops that the outputs depend on.
inline std::set<Op> OpsOf(const Graph& graph) {
  std::set<Op> ops;
  for (const Node& node : Canonicalize(graph).nodes) ops.insert(node.op);
  return ops;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_ROWS_ROW_INDEPENDENCE_TESTING_H_
