// The op table's rows, in the order of ATHANOR_OPS, grouped by family.
#include <utility>
#include <vector>

#include "compiler/ir/graph/op.h"
#include "compiler/ir/ops/infer.h"
#include "compiler/ir/ops/reference.h"

namespace athanor {
namespace {

using Rows = std::vector<OpRow>;
using C = DTypeClass;

// In effect no limit.
constexpr int kAnyOperands = 1 << 20;

AttrSpec Required(std::string_view name, AttrType type, std::string_view doc) {
  return {name, type, true, doc, std::nullopt};
}

// An optional attribute. `otherwise` is the value that its absence stands for, if one value does.
AttrSpec Optional(std::string_view name, AttrType type, std::string_view doc,
                  std::optional<AttrValue> otherwise = std::nullopt) {
  return {name, type, false, doc, std::move(otherwise)};
}

#define ATHANOR_ROW(name, op_class, min, max, attrs, infer, ulp, semantics)            \
  rows->push_back(OpRow{Op::k##name, #name, OpClass::op_class, min, max, attrs, infer, \
                        Reference##name, ulp, semantics})
#define ATHANOR_ATTRS(...) (std::vector<AttrSpec>{__VA_ARGS__})
#define ATHANOR_UNARY(name, dtype_class, ulp, semantics) \
  ATHANOR_ROW(name, kElementwise, 1, 1, {}, InferElementwise<dtype_class>, ulp, semantics)
#define ATHANOR_BINARY(name, dtype_class, ulp, semantics) \
  ATHANOR_ROW(name, kElementwise, 2, 2, {}, InferElementwise<dtype_class>, ulp, semantics)

void AddLeaves(Rows* rows) {
  rows->push_back({Op::kInput, "Input", OpClass::kLeaf, 0, 0,
                   ATHANOR_ATTRS(Optional("value", AttrType::kTensor,
                                          "the only contents it takes; others are refused")),
                   InferDeclared, nullptr, 0,
                   "A tensor of the request. Any dtype; the shape may use dims. bool bytes are 0 "
                   "or 1. With `value`, of its dtype and shape, a request whose bytes differ is an "
                   "error."});
  rows->push_back({Op::kParameter, "Parameter", OpClass::kLeaf, 0, 0,
                   ATHANOR_ATTRS(Optional("magnitude", AttrType::kInt,
                                          "every element is finite and at most 2^it in size")),
                   InferDeclared, nullptr, 0,
                   "A weight, fixed for a version of the model. Any dtype; the shape is constant. "
                   "Its magnitude is found from its contents, never stated by a user."});
  ATHANOR_ROW(Constant, kLeaf, 0, 0,
              ATHANOR_ATTRS(Required("value", AttrType::kTensor, "the literal")), InferConstant, 0,
              "The literal, bit for bit. Any dtype and rank. bool bytes are 0 or 1.");
  ATHANOR_ROW(
      Iota, kLeaf, 0, 0,
      ATHANOR_ATTRS(Required("shape", AttrType::kShape, "the result's shape"),
                    Required("axis", AttrType::kInt, "the axis that is counted"),
                    Required("dtype", AttrType::kDType, "the result's dtype")),
      InferIota, 0,
      "Each element is its own coordinate along `axis`, from 0. Integers wrap; floats round "
      "to nearest even, and overflow to infinity. Not for bool.");
  ATHANOR_ROW(
      RandomBits, kLeaf, 1, 1,
      ATHANOR_ATTRS(Required("shape", AttrType::kShape, "the result's shape")), InferRandomBits, 0,
      "u32 random bits from a u64 scalar seed: Philox4x32-10 (Salmon et al. 2011). Element "
      "i in row-major order is word i mod 4 of the block with counter (low 32 bits of "
      "i / 4, high 32 bits of i / 4, 0, 0) and key (low 32 bits, high 32 bits of the seed). "
      "Equal seeds and shapes give equal bits on every backend.");
}

// Semantics are those of C's functions of the same name. These rows stand between Round and Not.
void AddTrigonometry(Rows* rows) {
  ATHANOR_UNARY(Cos, C::kFloats, 4,
                "Cosine of radians, for the whole range of the dtype (full argument reduction). "
                "+-inf and NaN give NaN. f16 and bf16 compute in f32 and round once; f64 in f64.");
  ATHANOR_UNARY(Tan, C::kFloats, 4,
                "Tangent of radians, for the whole range of the dtype. +-inf and NaN give NaN, -0 "
                "gives -0. Precision as Cos.");
  ATHANOR_UNARY(Asin, C::kFloats, 4,
                "Arcsine, in [-pi/2, pi/2]. Outside [-1, 1] and for NaN NaN, -0 gives -0. "
                "Precision as Cos.");
  ATHANOR_UNARY(Acos, C::kFloats, 4,
                "Arccosine, in [0, pi]. Outside [-1, 1] and for NaN NaN, 1 gives +0. Precision as "
                "Cos.");
  ATHANOR_UNARY(Atan, C::kFloats, 4,
                "Arctangent, in [-pi/2, pi/2]. +-inf gives +-pi/2, -0 gives -0, NaN gives NaN. "
                "Precision as Cos.");
  ATHANOR_UNARY(Sinh, C::kFloats, 4,
                "Hyperbolic sine. +-inf and overflow give +-inf, -0 gives -0, NaN gives NaN. "
                "Precision as Cos.");
  ATHANOR_UNARY(
      Cosh, C::kFloats, 4,
      "Hyperbolic cosine. +-inf and overflow give +inf, NaN gives NaN. Precision as Cos.");
  ATHANOR_UNARY(Asinh, C::kFloats, 4,
                "Inverse hyperbolic sine. +-inf gives +-inf, -0 gives -0, NaN gives NaN. Precision "
                "as Cos.");
  ATHANOR_UNARY(Acosh, C::kFloats, 4,
                "Inverse hyperbolic cosine, not negative. Below 1 and for NaN NaN, 1 gives +0, "
                "+inf gives +inf. Precision as Cos.");
  ATHANOR_UNARY(Atanh, C::kFloats, 4,
                "Inverse hyperbolic tangent. +-1 gives +-inf, beyond them and for NaN NaN, -0 "
                "gives -0. Precision as Cos.");
  ATHANOR_UNARY(Log1p, C::kFloats, 4,
                "log(1 + x) without rounding the sum. -1 gives -inf, below it and for NaN NaN, "
                "+inf gives +inf, -0 gives -0. Precision as Cos.");
  ATHANOR_UNARY(Expm1, C::kFloats, 4,
                "e^x - 1 without rounding the power. -inf gives -1, +inf and overflow give +inf, "
                "-0 gives -0, NaN gives NaN. Precision as Cos.");
}

void AddUnary(Rows* rows) {
  ATHANOR_UNARY(
      Log2, C::kFloats, 2,
      "log to base 2. +-0 gives -inf, negative gives NaN, +inf gives +inf, NaN gives NaN. "
      "f16 and bf16 compute in f32 and round once; f64 computes in f64.");
  ATHANOR_UNARY(Exp2, C::kFloats, 2,
                "2^x. -inf gives 0, +inf and overflow give +inf, results below the smallest "
                "subnormal round to 0, NaN gives NaN. f16 and bf16 as Log2.");
  ATHANOR_UNARY(
      Sin, C::kFloats, 2,
      "Sine of radians, for the whole range of the dtype (full argument reduction). +-inf "
      "and NaN give NaN, -0 gives -0. f16 and bf16 as Log2.");
  ATHANOR_UNARY(Sqrt, C::kFloats, 0,
                "Square root, correctly rounded. -0 gives -0, other negatives give NaN.");
  ATHANOR_UNARY(Recip, C::kFloats, 0,
                "1/x, correctly rounded. +-0 gives +-inf, +-inf gives +-0, NaN gives NaN.");
  ATHANOR_UNARY(Exp, C::kFloats, 2, "e^x; edges as Exp2.");
  ATHANOR_UNARY(Log, C::kFloats, 2, "Natural logarithm; edges as Log2.");
  ATHANOR_UNARY(Tanh, C::kFloats, 4,
                "Hyperbolic tangent. +-inf gives +-1, -0 gives -0, NaN gives NaN.");
  ATHANOR_UNARY(Erf, C::kFloats, 4, "Error function. +-inf gives +-1, -0 gives -0, NaN gives NaN.");
  ATHANOR_UNARY(Floor, C::kFloats, 0,
                "The largest integral value not above x. Infinities, NaN and -0 stay themselves.");
  ATHANOR_UNARY(Round, C::kFloats, 0,
                "The nearest integral value, ties to even; the sign is kept, so -0.3 gives -0. "
                "Infinities and NaN stay themselves.");
  AddTrigonometry(rows);
  ATHANOR_UNARY(Not, C::kLogical, 0, "Logical not of bool; every bit flipped for integers.");
  ATHANOR_ROW(Cast, kElementwise, 1, 1,
              ATHANOR_ATTRS(Required("dtype", AttrType::kDType, "the result's dtype")), InferCast,
              0,
              "Converts values between any two dtypes. To bool: x != 0 (NaN is true). From bool: 0 "
              "or 1. Integer to integer wraps (keeps the low bits). Integer to float and float to "
              "float round to nearest even; NaN stays NaN, overflow gives infinity, or NaN where "
              "the dtype has no infinity (f8e4m3, f8e8m0). Float to integer truncates towards "
              "zero, values beyond the range give the nearest bound, NaN gives 0. f8e8m0 holds "
              "2^-127 to 2^127 and NaN only: other values give the nearest of them (ties to the "
              "even code), zero gives 2^-127, negatives and infinities give NaN.");
  ATHANOR_ROW(Bitcast, kElementwise, 1, 1,
              ATHANOR_ATTRS(Required("dtype", AttrType::kDType, "a dtype of the same width")),
              InferBitcast, 0,
              "The same bits read as another dtype of equal width; NaN payloads are kept. Not for "
              "bool.");
}

void AddArithmetic(Rows* rows) {
  ATHANOR_BINARY(Add, C::kNumeric, 0,
                 "a + b. Floats are IEEE, correctly rounded; integers wrap. For bool use Or.");
  ATHANOR_BINARY(Mul, C::kNumeric, 0,
                 "a * b. Floats are IEEE, correctly rounded; integers wrap. For bool use And.");
  ATHANOR_BINARY(Mod, C::kNumeric, 0,
                 "Remainder with the sign of the divisor: a - b*floor(a/b) exactly, so mod(-7, 3) "
                 "is 2 and mod(7, -3) is -2. Integers: mod(a, 0) is 0, mod(minimum, -1) is 0. "
                 "Floats: r = fmod(a, b), plus b where r is not 0 and has the other sign, rounded "
                 "once; a zero result has the sign of b; a finite and b infinite gives a where the "
                 "signs agree or a is 0, else b; a infinite, b zero or any NaN gives NaN.");
  ATHANOR_BINARY(Div, C::kFloats, 0,
                 "a / b, IEEE, correctly rounded: x/0 is infinite, 0/0 is NaN. For integers use "
                 "TruncDiv or FloorDiv.");
  ATHANOR_BINARY(TruncDiv, C::kIntegers, 0,
                 "Quotient rounded towards zero. a / 0 is 0; minimum / -1 wraps to minimum.");
  ATHANOR_BINARY(FloorDiv, C::kIntegers, 0,
                 "Quotient rounded towards minus infinity. a / 0 is 0; minimum / -1 wraps to "
                 "minimum.");
  ATHANOR_BINARY(
      Pow, C::kFloats, 4,
      "a^b with the edges of IEEE 754 pow: pow(x, +-0) and pow(1, y) are 1 even for NaN; "
      "a finite negative a with a finite non-integral b gives NaN; pow(+-0, b < 0) is "
      "infinite, negative only for -0 and an odd integral b.");
  ATHANOR_BINARY(
      Min, C::kComputing, 0,
      "The smaller. A NaN operand gives NaN; of zeros of both signs either may be given; "
      "false is below true.");
  ATHANOR_BINARY(Max, C::kComputing, 0,
                 "The larger. A NaN operand gives NaN; of zeros of both signs either may be given; "
                 "true is above false.");
}

void AddLogic(Rows* rows) {
  ATHANOR_BINARY(And, C::kLogical, 0, "Logical for bool, bitwise for integers.");
  ATHANOR_BINARY(Or, C::kLogical, 0, "Logical for bool, bitwise for integers.");
  ATHANOR_BINARY(Xor, C::kLogical, 0, "Logical for bool, bitwise for integers.");
  ATHANOR_ROW(Shift, kElementwise, 2, 2,
              ATHANOR_ATTRS(Required("direction", AttrType::kString, "\"left\" or \"right\"")),
              InferShift, 0,
              "a shifted by b bits, b of a's dtype. Left fills with zeros; right fills with zeros "
              "for unsigned and with the sign for signed. A b below 0 or not below the width gives "
              "0, or for signed right shifts 0 or -1 by the sign of a.");
  ATHANOR_ROW(LessThan, kElementwise, 2, 2, {}, InferLessThan, 0,
              "a < b as bool. False where either is NaN; -0 and +0 are equal; false < true.");
  ATHANOR_ROW(
      Select, kElementwise, 3, 3, {}, InferSelect, 0,
      "Operand 1 where the bool operand 0 is true, else operand 2, bit for bit; the element "
      "not chosen has no influence, whatever it is. Any dtype.");
}

void AddIndexing(Rows* rows) {
  ATHANOR_ROW(IndexMap, kMovement, 1, 1,
              ATHANOR_ATTRS(Required("map", AttrType::kIndexMap,
                                     "the result's shape; the operand's "
                                     "coordinates over $0, $1, ... and dims"),
                            Optional("fill", AttrType::kTensor,
                                     "a scalar of the operand's dtype, for coordinates outside")),
              InferIndexMap, 0,
              "The result's element ($0, $1, ...) is the operand's element at the map's "
              "coordinates, bit for bit; `fill` where a coordinate is outside the operand. Without "
              "`fill` every coordinate is provably inside. Any dtype.");
  ATHANOR_ROW(
      Gather, kMovement, 2, 2,
      ATHANOR_ATTRS(Required("axis", AttrType::kInt, "data's axis that indices select")),
      InferGather, 0,
      "Operands data and indices (any integer dtype). The result has data's shape with "
      "`axis` replaced by the axes of indices: result[p, i, s] = data[p, indices[i], s]. An "
      "index outside [0, size) is an error (negative ones do not count from the end): "
      "OUT_OF_RANGE in the reference evaluator, the row's error flag at run time, and "
      "nothing outside data is read. Any dtype of data.");
  ATHANOR_ROW(
      Scatter, kMovement, 3, 3,
      ATHANOR_ATTRS(
          Required("axis", AttrType::kInt, "data's axis that indices select"),
          Required("mode", AttrType::kString, "\"set\", \"add\", \"mul\", \"max\" or \"min\"")),
      InferScatter, 0,
      "Operands data, indices (any integer dtype) and updates, shaped as Gather(data, "
      "indices) would be. The result is data with updates[p, i, s] put at [p, indices[i], "
      "s]: `set` replaces, and among equal places the last in row-major order of updates "
      "stays; `add`, `mul`, `max` and `min` combine with what is there as Add, Mul, Max and Min "
      "do, in row-major order of updates; f16 and bf16 sums and products accumulate in f32 "
      "and round once. An index outside is an error as in Gather, and nothing outside is "
      "written. bool has no `add` and no `mul`.");
}

void AddReductions(Rows* rows) {
  const AttrSpec axes =
      Required("axes", AttrType::kInts, "the axes to remove, ascending, each at most once");
  ATHANOR_ROW(
      SumReduce, kReduction, 1, 1, ATHANOR_ATTRS(axes), InferSumReduce, 0,
      "The sum over `axes`, which leave the shape; 0 where they are empty. Integers wrap; "
      "f16 and bf16 accumulate in f32 and round once; f32 in f32, f64 in f64, in any order. "
      "No axes: the operand. To count bools, Cast them to an integer first.");
  ATHANOR_ROW(MaxReduce, kReduction, 1, 1, ATHANOR_ATTRS(axes), InferMaxReduce, 0,
              "The maximum over `axes`, which leave the shape, by the order of Max: any NaN gives "
              "NaN. Where they are empty: -inf, the integer minimum (0 for unsigned), false. No "
              "axes: the operand.");
  ATHANOR_ROW(MulReduce, kReduction, 1, 1, ATHANOR_ATTRS(axes), InferMulReduce, 0,
              "The product over `axes`, which leave the shape; 1 where they are empty. Integers "
              "wrap; f16 and bf16 accumulate in f32 and round once; f32 in f32, f64 in f64, in any "
              "order: a product of some elements that leaves the range may make the result 0, "
              "infinite or NaN where another order's does not. No axes: the operand. For bool use "
              "Not of MaxReduce of Not.");
}

void AddWindows(Rows* rows) {
  const AttrSpec strides =
      Required("strides", AttrType::kInts, "steps of the window, one per spatial axis");
  const AttrSpec dilations =
      Required("dilations", AttrType::kInts, "steps between a window's elements, likewise");
  const AttrSpec begin = Required("begin", AttrType::kShape,
                                  "how far the first window starts before x; may be negative");
  const AttrSpec out = Required("out", AttrType::kShape, "the result's spatial sizes");
  ATHANOR_ROW(
      Conv, kComposite, 2, 2,
      ATHANOR_ATTRS(strides, dilations, begin, out,
                    Optional("group", AttrType::kInt, "groups of channels, each on its own",
                             AttrValue(int64_t{1}))),
      InferConv, 0,
      "Operands x [N, C, D...] and w [M, C/group, K...] of 1 to 6 spatial axes; result [N, M, "
      "out...]. Element [n, m, o...] is the sum over c and k... of x[n, g*C/group + c, p...] "
      "* w[m, c, k...] with p = o*stride + k*dilation - begin on each spatial axis and g = m "
      "/ (M/group), rounded down (cross-correlation: the kernel is not flipped). Where a p "
      "is outside x, x is 0, and its product with an infinite or NaN weight is NaN. Sums as "
      "in Contract.");
  ATHANOR_ROW(
      Pool, kComposite, 1, 1,
      ATHANOR_ATTRS(Required("mode", AttrType::kString, "\"max\", \"mean\" or \"sum\""),
                    Required("kernel", AttrType::kInts, "sizes of the window, likewise"), strides,
                    dilations, begin, out,
                    Optional("counted", AttrType::kShape,
                             "of mean: up to where positions outside x count too")),
      InferPool, 1,
      "Operand x [N, C, D...] of 1 to 6 spatial axes; result [N, C, out...]. The window of "
      "[n, c, o...] is x[n, c, p...] with p = o*stride + k*dilation - begin for k in [0, "
      "kernel) on each spatial axis. `max` is the maximum of what is in x, as MaxReduce; "
      "`sum` the sum of that, as SumReduce; `mean` that sum divided by how many positions "
      "count: those in x, and with `counted` also those that on each axis are in x or in "
      "[-begin, counted - begin). Of nothing: -inf, the integer minimum, false; 0; NaN. f16 "
      "and bf16 sums and their quotient are in f32 and round once.");
}

void AddActivations(Rows* rows) {
  ATHANOR_ROW(
      Contract, kComposite, 2, 2,
      ATHANOR_ATTRS(Required("spec", AttrType::kString, "axes by letter: \"bmk,bkn->bmn\"")),
      InferContract, 0,
      "The sum, over every letter not in the result, of the product of the two operands at "
      "those letters. f16 and bf16 products and sums are in f32 and round once; f32 in f32, "
      "f64 in f64, in any order, fused or not; integers wrap. An empty sum is 0. NaN and "
      "infinities follow from the sum; zeros are never skipped.");
  ATHANOR_ROW(Sigmoid, kComposite, 1, 1, {}, InferElementwise<C::kFloats>, 4,
              "1 / (1 + exp(-x)). -inf gives 0, +inf gives 1, NaN gives NaN.");
  ATHANOR_ROW(Gelu, kComposite, 1, 1,
              ATHANOR_ATTRS(Optional("approximate", AttrType::kString, "\"none\" or \"tanh\"",
                                     AttrValue(std::string("none")))),
              InferGelu, 8,
              "none: x * (1 + erf(x / sqrt(2))) / 2. tanh: x * (1 + tanh(sqrt(2 / pi) * (x + "
              "0.044715 * x^3))) / 2. -inf gives -0, +inf gives +inf, NaN gives NaN. Where the "
              "result is smaller than the operand the error bound is in units of the operand's "
              "last place.");
  ATHANOR_ROW(Silu, kComposite, 1, 1, {}, InferElementwise<C::kFloats>, 4,
              "x / (1 + exp(-x)). -inf gives -0, +inf gives +inf, NaN gives NaN.");
  ATHANOR_ROW(
      Relu, kComposite, 1, 1, {}, InferElementwise<C::kNumeric>, 0,
      "Max(x, 0): NaN gives NaN, -0 gives a zero of either sign. Integers too; unsigned ones "
      "stay themselves.");
}

void AddNorms(Rows* rows) {
  const AttrSpec epsilon =
      Required("epsilon", AttrType::kFloat, "added under the root; finite, not negative");
  ATHANOR_ROW(Softmax, kComposite, 1, 1,
              ATHANOR_ATTRS(Required("axis", AttrType::kInt, "the axis that sums to 1")),
              InferSoftmax, 4,
              "exp(x - m) / sum(exp(x - m)) along `axis`, m its maximum. f16 and bf16 compute in "
              "f32 and round once. A row that holds NaN or +inf, or -inf only, is NaN throughout, "
              "as the definition gives; -inf beside finite values gives 0. An empty axis gives an "
              "empty result.");
  ATHANOR_ROW(
      LayerNorm, kComposite, 3, 3, ATHANOR_ATTRS(epsilon), InferLayerNorm, 4,
      "Operands x, scale, bias; over the last axis: (x - mean) / sqrt(variance + epsilon) * "
      "scale + bias, with variance = mean((x - mean)^2), not that of a sample. f16 and "
      "bf16 compute in f32 and round once. epsilon is rounded to the accumulator's dtype.");
  ATHANOR_ROW(RmsNorm, kComposite, 2, 2, ATHANOR_ATTRS(epsilon), InferRmsNorm, 4,
              "Operands x, scale; over the last axis: x / sqrt(mean(x^2) + epsilon) * scale. "
              "Accumulation and epsilon as LayerNorm.");
}

void AddModels(Rows* rows) {
  ATHANOR_ROW(
      Attention, kComposite, 3, 4,
      ATHANOR_ATTRS(
          Optional("scale", AttrType::kFloat,
                   "factor of the scores; absent means "
                   "1/sqrt(D)"),
          Optional("causal", AttrType::kBool, "hide keys j > i + (Lk - Lq)", AttrValue(false))),
      InferAttention, 8,
      "Operands q [..., Lq, D], k [..., Lk, D], v [..., Lk, Dv], optional mask; result "
      "[..., Lq, Dv]. Scores are scale * sum(q * k) over D; a mask is [Lq, Lk] or of q's "
      "rank with leading axes equal to q's or 1: bool true means attend, false hides; a "
      "float mask, of q's dtype, is added to the scores, and -inf hides. With `causal` "
      "query i attends keys j <= i + (Lk - Lq) only. The result is softmax of the scores "
      "over the keys that are not hidden, times v; a query whose every key is hidden (or "
      "Lk = 0) gives zeros, by definition. Hidden scores have no influence, whatever they hold; "
      "hidden values must be finite, else the result is unspecified. Where every score that is "
      "not hidden is -inf, the result is NaN or zeros. NaN or +inf in a score "
      "that is not hidden gives NaN. f16 and bf16 compute in f32 throughout and round once.");
  ATHANOR_ROW(
      EmbeddingBag, kComposite, 3, 3,
      ATHANOR_ATTRS(Required("mode", AttrType::kString, "\"sum\", \"mean\" or \"max\"")),
      InferEmbeddingBag, 1,
      "Operands table [V, D], ids [N], offsets [B] (any integer dtypes); result [B, D]. Bag "
      "b holds table[id] for id in ids[offsets[b] : offsets[b + 1]], with offsets[B] = N. "
      "`max` propagates NaN; an empty bag gives zeros in every mode. f16 and bf16 "
      "accumulate in f32 and round once. offsets start with 0, never decrease and stay in "
      "[0, N], ids are in [0, V); anything else is an error as in Gather, and nothing "
      "outside the table is read. N > 0 needs B > 0.");
}

void AddOrder(Rows* rows) {
  const AttrSpec axis = Required("axis", AttrType::kInt, "the axis along which it runs");
  ATHANOR_ROW(
      Sort, kMovement, 1, 1,
      ATHANOR_ATTRS(axis,
                    Optional("descending", AttrType::kBool, "the largest first", AttrValue(false))),
      InferSort, 0,
      "Positions along `axis`, i64, in the order of their elements; equal elements in the "
      "order of their positions, either way. NaN is above all numbers and equal to NaN: "
      "last, or with `descending` first. -0 and +0 are equal, false is below true. An empty "
      "axis gives an empty result.");
  ATHANOR_ROW(
      TopK, kComposite, 1, 1,
      ATHANOR_ATTRS(
          axis,
          Required("k", AttrType::kShape, "one size: how many; provably at most that of the axis"),
          Optional("largest", AttrType::kBool, "the largest, not the smallest", AttrValue(true))),
      InferTopK, 0,
      "The first k positions, i64, of Sort along `axis`, descending for `largest`: of equal "
      "elements those of the lowest positions, and NaN before every number for `largest`, "
      "after them else.");
  ATHANOR_ROW(
      Cumulate, kComposite, 1, 1,
      ATHANOR_ATTRS(
          axis, Required("op", AttrType::kString, "\"add\" or \"mul\""),
          Optional("exclusive", AttrType::kBool, "without the element itself", AttrValue(false)),
          Optional("reverse", AttrType::kBool, "from the last to the first", AttrValue(false))),
      InferCumulate, 0,
      "Each element becomes the sum or product of the elements up to it along `axis`; with "
      "`exclusive` of those before it, of none 0 or 1. Only what it includes has influence. "
      "Integers wrap; f16 and bf16 accumulate in f32 and round each result once; f32 in "
      "f32, f64 in f64, in any order, as SumReduce and MulReduce.");
}

void AddTransformers(Rows* rows) {
  ATHANOR_ROW(
      Rotary, kComposite, 3, 3,
      ATHANOR_ATTRS(Optional("interleaved", AttrType::kBool,
                             "pairs are neighbours, not of two halves", AttrValue(false))),
      InferRotary, 0,
      "Operands x [..., L, D], cos and sin [L, R/2] or of x's rank with leading axes equal to "
      "x's or 1; R is twice their last axis and at most D. The first R elements of each row "
      "are pairs, i and i + R/2, with `interleaved` 2i and 2i + 1: (a, b) becomes (a * cos - "
      "b * sin, b * cos + a * sin) with element i of cos and sin. The others stay, bit for "
      "bit. f16 and bf16 compute in f32 and round once.");
  ATHANOR_ROW(
      Dequantize, kComposite, 2, 3,
      ATHANOR_ATTRS(Required("dtype", AttrType::kDType, "the result's dtype, a float"),
                    Optional("bits", AttrType::kInt,
                             "of an element: packed's width; or 4 or 2, packed in u8 or i8"),
                    Optional("size", AttrType::kShape,
                             "one size: the last axis of what is packed; else all of it"),
                    Optional("axis", AttrType::kInt,
                             "the result's axis that scales differ "
                             "along",
                             AttrValue(int64_t{0})),
                    Optional("block", AttrType::kInt,
                             "elements along `axis` that share a scale; 0: each has its own",
                             AttrValue(int64_t{0}))),
      InferDequantize, 1,
      "Operands packed (integers of up to 32 bits), scale (a float), optional zero (packed's "
      "dtype, scale's shape): (value - zero) * scale. Of fewer `bits` than packed's, values "
      "lie along the last axis, lowest bits first, signed if packed's dtype is. scale has "
      "rank 0, or rank 1 and the size of `axis`, or with `block` the result's rank and, "
      "along `axis`, one element per block, the last of which may be short. The difference "
      "is exact; it and scale are converted to the result's dtype, of f16 and bf16 to f32, "
      "multiplied there and rounded to the result's dtype.");
}

void AddControl(Rows* rows) {
  ATHANOR_ROW(
      Scan, kControl, 0, kAnyOperands,
      ATHANOR_ATTRS(
          Required("body", AttrType::kGraph, "what a step computes, over the dims around"),
          Required("states", AttrType::kInt, "operands that are the first states"),
          Required("scanned", AttrType::kInt, "operands after them that are sliced"),
          Required("result", AttrType::kInt, "which of the body's outputs this is"),
          Required("length", AttrType::kShape, "one size: the number of steps"),
          Optional("reverse", AttrType::kBool, "slices and elements from the last on",
                   AttrValue(false))),
      InferScan, 0,
      "Operands states, scanned, captured. The body runs `length` times, one step after another: "
      "its inputs are the step's number from 0 (i64[]), the states, slice number step along axis 0 "
      "of each scanned operand, and the captured operands; its outputs are the next states, of the "
      "states' types, then elements. The result is a state after the last step, without steps the "
      "operand bit for bit; or the elements, element number step along a new axis 0, of size "
      "`length`. With `reverse` slices and elements number length - 1 - step. Each step means what "
      "its ops do.");
}

#undef ATHANOR_BINARY
#undef ATHANOR_UNARY
#undef ATHANOR_ATTRS
#undef ATHANOR_ROW

}  // namespace

absl::Span<const OpRow> OpTable() {
  static const Rows& table = *[] {
    auto* rows = new Rows;
    AddLeaves(rows);
    AddUnary(rows);
    AddArithmetic(rows);
    AddLogic(rows);
    AddIndexing(rows);
    AddReductions(rows);
    AddWindows(rows);
    AddActivations(rows);
    AddNorms(rows);
    AddModels(rows);
    AddOrder(rows);
    AddTransformers(rows);
    AddControl(rows);
    return rows;
  }();
  return table;
}

}  // namespace athanor
