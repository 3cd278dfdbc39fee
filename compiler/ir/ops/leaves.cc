// Leaves: Input, Parameter, StateRead, Constant, Iota, RandomBits.
#include <string>

#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/ir/value/message.h"
#include "compiler/ir/value/philox.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::StatusOr<TensorType> InferDeclared(TypeSpan, const Attrs&, const Bounds&) {
  return Invalid(
      "its type is declared, not inferred: add it with GraphBuilder::Input, Parameter or State");
}

absl::StatusOr<TensorType> InferConstant(TypeSpan, const Attrs& attrs, const Bounds&) {
  const Tensor& value = GetAttr<Tensor>(attrs, "value");
  TensorType type{value.dtype, {}};
  for (int64_t size : value.shape) type.shape.push_back(size);
  return type;
}

absl::StatusOr<TensorType> InferIota(TypeSpan, const Attrs& attrs, const Bounds&) {
  const TensorType type{GetAttr<DType>(attrs, "dtype"), GetAttr<Shape>(attrs, "shape")};
  RETURN_IF_ERROR(CheckDType("the result", type.dtype, DTypeClass::kNumeric));
  RETURN_IF_ERROR(CheckAxis("axis", GetAttr<int64_t>(attrs, "axis"), type.shape));
  return type;
}

absl::StatusOr<TensorType> InferRandomBits(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  if (inputs[0].dtype != DType::kU64) {
    return Unimplemented("the seed has dtype ", DTypeName(inputs[0].dtype),
                         ", but the op takes u64: convert it with Cast(dtype=u64)");
  }
  RETURN_IF_ERROR(CheckRank("the seed", inputs[0].shape, 0));
  return TensorType{DType::kU32, GetAttr<Shape>(attrs, "shape")};
}

uint32_t RandomWord(uint64_t seed, int64_t index) {
  return Philox(static_cast<uint64_t>(index) / 4, seed)[index % 4];
}

ATHANOR_REFERENCE(Constant) {
  result->bytes = GetAttr<Tensor>(attrs, "value").bytes;
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Iota) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  Tensor coordinate = Tensor::Zeros(DType::kI64, result->shape);
  ForEachElement(result->shape, [&](int64_t position, const std::vector<int64_t>& at) {
    coordinate.data<int64_t>()[position] = at[axis];
  });
  return OpInfo(Op::kCast).reference({&coordinate}, {}, dims, result);
}

ATHANOR_REFERENCE(RandomBits) {
  const uint64_t seed = LoadScalar(*inputs[0], 0).u;
  for (int64_t i = 0; i < result->elements(); ++i) {
    StoreScalar(*result, i, Scalar::Unsigned(result->dtype, RandomWord(seed, i)));
  }
  return absl::OkStatus();
}

ValueFacts ParameterValues(const ValueQuery& query) {
  const auto it = query.attrs.find(kMagnitude);
  if (it == query.attrs.end()) return {};
  ValueFacts facts{.no_plus_infinity = true, .no_minus_infinity = true};
  const auto magnitude = static_cast<int>(std::get<int64_t>(it->second));
  if (magnitude <= LargestExponent(query.result)) facts.magnitude = magnitude;
  return facts;
}

ValueFacts ConstantValues(const ValueQuery& query) {
  return ValueFactsOf(GetAttr<Tensor>(query.attrs, "value"));
}

absl::Status SampleIota(Cutter& cutter, NodeId n) {
  RETURN_IF_ERROR(cutter.Spend(n, Count(cutter.Wanted(n))));
  cutter.RecipeOf(n) = [&cutter, n]() -> absl::StatusOr<NodeId> {
    const auto axis = GetAttr<int64_t>(cutter.graph().node(n).attrs, "axis");
    Positions coordinates;
    for (int64_t p : cutter.Wanted(n))
      coordinates.push_back(CoordinatesOf(cutter.ShapeOf(n), p)[axis]);
    return cutter.Add(Op::kCast, {cutter.IndexLiteral({Count(coordinates)}, coordinates)},
                      {{"dtype", cutter.graph().node(n).type.dtype}});
  };
  return absl::OkStatus();
}

absl::Status SampleRandomBits(Cutter& cutter, NodeId n) {
  RETURN_IF_ERROR(cutter.Spend(n, Count(cutter.Wanted(n))));
  absl::StatusOr<Positions> seed = cutter.IndexValues(cutter.graph().node(n).inputs[0], {0});
  if (!seed.ok()) return seed.status();
  const Cutter::Handle guard = cutter.PullIfInexact(cutter.graph().node(n).inputs[0], {0});
  cutter.RecipeOf(n) = [&cutter, n, guard, seed = static_cast<uint64_t>((*seed)[0])] {
    Tensor words = Tensor::Zeros(cutter.graph().node(n).type.dtype, {Count(cutter.Wanted(n))});
    for (int64_t i = 0; i < words.elements(); ++i) {
      StoreScalar(words, i, Scalar::Unsigned(words.dtype, RandomWord(seed, cutter.Wanted(n)[i])));
    }
    return cutter.Guarded(cutter.Literal(std::move(words)), {guard});
  };
  return absl::OkStatus();
}

}  // namespace

void AddLeaves(Rows* rows) {
  ATHANOR_DECLARED(Input,
                   ATHANOR_ATTRS(Optional("value", AttrType::kTensor,
                                          "the only contents it takes; others are refused")),
                   "A tensor of the request. Any dtype; the shape may use dims. bool bytes are 0 "
                   "or 1. With `value`, of its dtype and shape, a request whose bytes differ is an "
                   "error.",
                   .form = OpForm::kOperand, .rounding = Rounding::kKeeps);
  ATHANOR_DECLARED(Parameter,
                   ATHANOR_ATTRS(Optional("magnitude", AttrType::kInt,
                                          "every element is finite and at most 2^it in size")),
                   "A weight, fixed for a version of the model. Any dtype; the shape is constant. "
                   "Its magnitude is found from its contents, never stated by a user.",
                   .form = OpForm::kOperand, .rounding = Rounding::kKeeps,
                   .values = ParameterValues);
  ATHANOR_DECLARED(
      StateRead,
      ATHANOR_ATTRS(Optional("role", AttrType::kString,
                             "\"keys\" or \"values\" of attention by blocks, else \"\"",
                             AttrValue(std::string()))),
      "A tensor that outlives a call, as calls before left it. Its name is the state's. Any dtype; "
      "axis 0 is its slots, and the other sizes are constant. A state of keys or values is [slots, "
      "heads, width].",
      .form = OpForm::kOperand, .rounding = Rounding::kKeeps);
  ATHANOR_ROW(Constant, kLeaf, 0, 0,
              ATHANOR_ATTRS(Required("value", AttrType::kTensor, "the literal")), InferConstant, 0,
              "The literal, bit for bit. Any dtype and rank. bool bytes are 0 or 1.",
              .form = OpForm::kLiteral, .rounding = Rounding::kKeeps, .values = ConstantValues);
  ATHANOR_ROW(
      Iota, kLeaf, 0, 0,
      ATHANOR_ATTRS(Required("shape", AttrType::kShape, "the result's shape"),
                    Required("axis", AttrType::kInt, "the axis that is counted"),
                    Required("dtype", AttrType::kDType, "the result's dtype")),
      InferIota, 0,
      "Each element is its own coordinate along `axis`, from 0. Integers wrap; floats round "
      "to nearest even, and overflow to infinity. Not for bool.",
      .form = OpForm::kCount, .rounding = Rounding::kKeeps, .sample = SampleIota);
  ATHANOR_ROW(
      RandomBits, kLeaf, 1, 1,
      ATHANOR_ATTRS(Required("shape", AttrType::kShape, "the result's shape")), InferRandomBits, 0,
      "u32 random bits from a u64 scalar seed: Philox4x32-10 (Salmon et al. 2011). Element "
      "i in row-major order is word i mod 4 of the block with counter (low 32 bits of "
      "i / 4, high 32 bits of i / 4, 0, 0) and key (low 32 bits, high 32 bits of the seed). "
      "Equal seeds and shapes give equal bits on every backend.",
      .form = OpForm::kRandom, .rounding = Rounding::kKeeps, .flops = kFunction,
      .sample = SampleRandomBits);
}

}  // namespace athanor
