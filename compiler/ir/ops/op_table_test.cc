#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr Op kAllOps[] = {
#define ATHANOR_X(name) Op::k##name,
    ATHANOR_OPS(ATHANOR_X)
#undef ATHANOR_X
};

// An inference: operand types, the text that follows the operands in the text form, and the
// expected result type or, after "!", a part of the expected error.
struct Case {
  Op op;
  std::vector<std::string> operands;
  std::string rest;
  std::string expected;
};

std::string TextOf(const Case& c) {
  std::string text = "graph \"case\" {\n dim b in [1, 64]\n dim n in [0, 8]\n";
  std::vector<std::string> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const bool state = i == 0 && c.op == Op::kStateWrite;
    text += Cat(" %", i, state ? " = StateRead \"in" : " = Input \"in", i, "\" : ", c.operands[i],
                "\n");
    operands.push_back(Cat("%", i));
  }
  text += Cat(" %", operands.size(), " = ", OpName(c.op));
  if (!operands.empty()) text += "(" + absl::StrJoin(operands, ", ") + ")";
  text += Cat(" ", c.rest, "\n output \"y\" = %", operands.size(), "\n");
  if (c.op == Op::kStateWrite) text += Cat(" update %", operands.size(), "\n");
  return text + "}\n";
}

// A Scan whose body leaves a state of this type unchanged.
std::string Passing(std::string_view type) {
  return Cat("{body=graph \"\" {%0 = Input \"i\" : i64[] %1 = Input \"h\" : ", type,
             " output \"h\" = %1}, length=shape[n], result=0, scanned=0, states=1}");
}

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {Op::kInput, {}, "\"x\" : f8e4m3[b, 2*n + 1]", "f8e4m3[b, 2*n + 1]"},
      {Op::kInput, {}, "\"x\" : f32[]", "f32[]"},
      {Op::kInput, {}, "\"x\" : f32[c]", "!\"c\" in \"c\" is not a dim of the graph"},
      {Op::kInput, {}, "\"x\" : f32[b - 2]", "!axis 0 has size b - 2, which can be -1"},
      {Op::kInput, {}, "\"x\" : f32[-1]", "!axis 0 has size -1"},
      {Op::kInput, {}, ": f32[1]", "!has no name"},
      {Op::kInput, {}, "\"x\" : f32[4294967296, 4294967296, b]", "!more than 2^63 bytes"},
      {Op::kInput, {}, "\"x\" {value=i64[2] {1, -2}} : i64[2]", "i64[2]"},
      {Op::kInput, {}, "\"x\" {value=i64[2] {1, -2}} : i64[3]", "!is of type i64[2], the input of"},
      {Op::kInput, {}, "\"x\" {value=i64[2] {1, -2}} : i32[2]", "!they must be equal"},
      {Op::kInput, {}, "\"x\" {value=i64[2] {1, -2}} : i64[b]", "!the input of type i64[b]"},
      {Op::kInput, {}, "\"x\" {value=i64[2] {1, -2}} : i64[]", "!they must be equal"},
      {Op::kInput,
       {},
       "\"x\" {magnitude=3} : f32[2]",
       "!no attribute \"magnitude\"; it takes value"},
      {Op::kParameter, {}, "\"w\" : bf16[16, 0]", "bf16[16, 0]"},
      {Op::kParameter, {}, "\"w\" {magnitude=20} : f32[3]", "f32[3]"},
      {Op::kParameter, {}, "\"w\" : f32[b]", "!a parameter's shape must be constant"},
      {Op::kParameter, {}, "\"w\" {magnitude=20} : i8[3]", "!elements of dtype i8 have none"},
      {Op::kParameter, {}, "\"w\" {finite=true} : f32[3]", "!no attribute"},
      {Op::kConstant, {}, "{value=i64[2] {1, -2}}", "i64[2]"},
      {Op::kConstant, {}, "{value=i64[3] {1, -2}}", "!has 16 bytes; it needs 24"},
      {Op::kConstant, {}, "{value=3}", "!is of type int; it must be of type tensor"},
      {Op::kConstant, {}, "", "!attribute value (tensor: the literal) is missing"},
      {Op::kIota, {}, "{shape=shape[b, 3], axis=1, dtype=i32}", "i32[b, 3]"},
      {Op::kIota, {}, "{shape=shape[b, 3], axis=2, dtype=i32}", "!axis=2 is not an axis of"},
      {Op::kIota, {}, "{shape=shape[b, 3], axis=0, dtype=bool}", "!the result has dtype bool"},
      {Op::kRandomBits, {"u64[]"}, "{shape=shape[b, 3]}", "u32[b, 3]"},
      {Op::kRandomBits, {"u32[]"}, "{shape=shape[b, 3]}", "!Cast(dtype=u64)"},
      {Op::kRandomBits, {"u64[2]"}, "{shape=shape[b, 3]}", "!of rank 1; its rank must be 0"},
      {Op::kNot, {"bool[b]"}, "", "bool[b]"},
      {Op::kNot, {"u8[b]"}, "", "u8[b]"},
      {Op::kNot, {"f32[b]"}, "", "!operand 0 has dtype f32, but the op takes bool and integers"},
      {Op::kCast, {"f8e5m2[b]"}, "{dtype=f16}", "f16[b]"},
      {Op::kCast, {"f32[b]"}, "{dtype=\"f16\"}", "!is of type string; it must be of type dtype"},
      {Op::kBitcast, {"f32[b]"}, "{dtype=u32}", "u32[b]"},
      {Op::kBitcast, {"f32[b]"}, "{dtype=u64}", "!the widths must be equal"},
      {Op::kBitcast, {"bool[b]"}, "{dtype=u8}", "!Cast(dtype=u8)"},
      {Op::kShift, {"i32[b]", "i32[b]"}, "{direction=\"left\"}", "i32[b]"},
      {Op::kShift, {"i32[b]", "i32[b]"}, "{direction=\"up\"}", "!must be \"left\" or \"right\""},
      {Op::kShift, {"f32[b]", "f32[b]"}, "{direction=\"left\"}", "!Cast(dtype=i64)"},
      {Op::kLessThan, {"f64[b]", "f64[b]"}, "", "bool[b]"},
      {Op::kLessThan, {"f8e4m3[b]", "f8e4m3[b]"}, "", "!storage-only"},
      {Op::kSelect, {"bool[b]", "f8e5m2[b]", "f8e5m2[b]"}, "", "f8e5m2[b]"},
      {Op::kSelect, {"u8[b]", "f32[b]", "f32[b]"}, "", "!must be bool"},
      {Op::kSelect, {"bool[b]", "f32[b]", "f16[b]"}, "", "!convert operand 2 with Cast(dtype=f32)"},
      {Op::kSelect, {"bool[]", "f32[b]", "f32[b]"}, "", "!nothing is broadcast implicitly"},
      {Op::kIndexMap, {"f8e4m3[b, 4]"}, "{map=map[4, b]($1, $0)}", "f8e4m3[4, b]"},
      {Op::kIndexMap, {"f32[4]"}, "{map=map[b, 4]($1)}", "f32[b, 4]"},
      {Op::kIndexMap, {"f32[b, 4]"}, "{map=map[4*b](floordiv($0, 4), mod($0, 4))}", "f32[4*b]"},
      {Op::kIndexMap, {"f32[b]"}, "{map=map[b + 2]($0 - 1), fill=f32[] {0.0}}", "f32[b + 2]"},
      {Op::kIndexMap, {"f32[b]"}, "{map=map[b + 2]($0 - 1)}", "!give `fill` for elements outside"},
      {Op::kIndexMap, {"f32[b]"}, "{map=map[b]($0, 0)}", "!has 2 coordinates"},
      {Op::kIndexMap, {"f32[b]"}, "{map=map[b]($1)}", "!neither a dim of the graph nor one of $0"},
      {Op::kIndexMap, {"f32[b]"}, "{map=map[b]($0), fill=f32[1] {0.0}}", "!must be a scalar"},
      {Op::kIndexMap, {"f32[b]"}, "{map=map[b]($0), fill=f16[] {0.0}}", "!fill has f16"},
      {Op::kGather, {"f8e4m3[b, 5, n]", "i32[3, 2]"}, "{axis=1}", "f8e4m3[b, 3, 2, n]"},
      {Op::kGather, {"f32[5]", "i64[]"}, "{axis=0}", "f32[]"},
      {Op::kGather, {"f32[5]", "i64[b, b, 2]"}, "{axis=0}", "f32[b, b, 2]"},
      {Op::kGather, {"f32[b]", "f32[3]"}, "{axis=0}", "!indices, operand 1, has dtype f32"},
      {Op::kGather, {"f32[]", "i64[3]"}, "{axis=0}", "!the shape [] has no axes"},
      {Op::kScatter, {"f32[b, 5]", "i64[2]", "f32[b, 2]"}, "{axis=1, mode=\"add\"}", "f32[b, 5]"},
      {Op::kScatter, {"bool[5]", "i64[]", "bool[]"}, "{axis=0, mode=\"set\"}", "bool[5]"},
      {Op::kScatter,
       {"bool[5]", "i64[]", "bool[]"},
       "{axis=0, mode=\"add\"}",
       "!use Or, And or Xor"},
      {Op::kScatter, {"f32[5]", "i64[2]", "f32[3]"}, "{axis=0, mode=\"set\"}", "!must be equal"},
      {Op::kScatter, {"bf16[5]", "i64[2]", "bf16[2]"}, "{axis=0, mode=\"mul\"}", "bf16[5]"},
      {Op::kScatter, {"bool[5]", "i64[2]", "bool[2]"}, "{axis=0, mode=\"mul\"}", "!use Or, And"},
      {Op::kScatter, {"f32[5]", "i64[2]", "f32[2]"}, "{axis=0, mode=\"sub\"}", "!\"add\", \"mul\""},
      {Op::kSumReduce, {"f16[b, 3, n]"}, "{axes=[0, 2]}", "f16[3]"},
      {Op::kSumReduce, {"f16[b, 3]"}, "{axes=[]}", "f16[b, 3]"},
      {Op::kSumReduce, {"f16[b, 3]"}, "{axes=[1, 0]}", "!in ascending order"},
      {Op::kSumReduce, {"f16[b, 3]"}, "{axes=[0, 0]}", "!in ascending order"},
      {Op::kSumReduce, {"f16[b, 3]"}, "{axes=[-1]}", "!must be in [0, 1]"},
      {Op::kSumReduce, {"bool[b, 3]"}, "{axes=[0]}", "!Cast(dtype=i32)"},
      {Op::kMaxReduce, {"bool[b, 3]"}, "{axes=[1]}", "bool[b]"},
      {Op::kMaxReduce, {"f8e4m3[b, 3]"}, "{axes=[1]}", "!storage-only"},
      {Op::kMulReduce, {"i8[b, 3, n]"}, "{axes=[0, 2]}", "i8[3]"},
      {Op::kMulReduce, {"f16[b, 3]"}, "{axes=[]}", "f16[b, 3]"},
      {Op::kMulReduce, {"f16[b, 3]"}, "{axes=[2]}", "!must be in [0, 1]"},
      {Op::kMulReduce, {"bool[b, 3]"}, "{axes=[0]}", "!Cast(dtype=i32)"},
      {Op::kConv,
       {"f32[b, 6, n, 2*b]", "f32[4, 3, 3, n]"},
       "{strides=[1, 2], dilations=[2, 1], begin=shape[-1, n], out=shape[b + 3, n], group=2}",
       "f32[b, 4, b + 3, n]"},
      {Op::kConv,
       {"i32[0, 3*n, 5]", "i32[b, 3*n, 1]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[5]}",
       "i32[0, b, 5]"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[6, 2, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7]}",
       "!x has 4 channels (axis 1), w takes 2 (axis 1) in each of 1 groups"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 2, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7], group=2}",
       "!w gives 5 channels (axis 0), which group=2 does not provably divide"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7], group=0}",
       "!group=0 must be 1 or more"},
      {Op::kConv,
       {"f32[b, 4]", "f32[5, 4]"},
       "{strides=[], dilations=[], begin=shape[], out=shape[]}",
       "!it needs the axes [N, C] and 1 to 6 spatial axes after them"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7]}",
       "!w, operand 1, has shape [5, 4] of rank 2; its rank must be 3"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4, 3]"},
       "{strides=[1, 1], dilations=[1], begin=shape[0], out=shape[7]}",
       "!strides holds 2 values; x has 1 spatial axes"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4, 3]"},
       "{strides=[1], dilations=[0], begin=shape[0], out=shape[7]}",
       "!dilations holds 0; each must be 1 or more"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7, 7]}",
       "!out holds 2 values"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[n - 1]}",
       "!axis 2 has size n - 1, which can be -1"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f32[5, 4, 3]"},
       "{strides=[2305843009213693952], dilations=[1], begin=shape[0], out=shape[7]}",
       "!which can be beyond 2^60"},
      {Op::kConv,
       {"f32[b, 4, 9]", "f16[5, 4, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7]}",
       "!convert w with Cast(dtype=f32)"},
      {Op::kConv,
       {"bool[b, 4, 9]", "bool[5, 4, 3]"},
       "{strides=[1], dilations=[1], begin=shape[0], out=shape[7]}",
       "!x, operand 0, has dtype bool"},
      {Op::kPool,
       {"bool[b, n, 9, b]"},
       "{mode=\"max\", kernel=[2, 3], strides=[2, 1], dilations=[1, 1], begin=shape[0, n], "
       "out=shape[n, 2]}",
       "bool[b, n, n, 2]"},
      {Op::kPool,
       {"bf16[b, n, 9]"},
       "{mode=\"mean\", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[n], "
       "counted=shape[9 + b]}",
       "bf16[b, n, n]"},
      {Op::kPool,
       {"i8[b, n, 9]"},
       "{mode=\"sum\", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[n]}",
       "i8[b, n, n]"},
      {Op::kPool,
       {"f32[b, n, 9]"},
       "{mode=\"sum\", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[n], "
       "counted=shape[9]}",
       "!counted sets the divisor of a mean"},
      {Op::kPool,
       {"f32[b, n, 9]"},
       "{mode=\"min\", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[n]}",
       "!mode=\"min\" must be"},
      {Op::kPool,
       {"i8[b, n, 9]"},
       "{mode=\"mean\", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[n]}",
       "!x, operand 0, has dtype i8"},
      {Op::kPool,
       {"f32[b, n, 9]"},
       "{mode=\"max\", kernel=[0], strides=[2], dilations=[1], begin=shape[0], out=shape[n]}",
       "!kernel holds 0; each must be 1 or more"},
      {Op::kPool,
       {"f32[b, n, 9, 9]"},
       "{mode=\"max\", kernel=[4097, 4096], strides=[2, 1], dilations=[1, 1], begin=shape[0, 0], "
       "out=shape[n, n]}",
       "!kernel has more than 16777216 positions"},
      {Op::kPool,
       {"f32[b, 2, 2, 2, 2, 2, 2, 2, 2]"},
       "{mode=\"max\", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[n]}",
       "!and 1 to 6 spatial axes after them"},
      {Op::kContract, {"f32[b, 4]", "f32[4, 3]"}, "{spec=\"mk,kn->mn\"}", "f32[b, 3]"},
      {Op::kContract, {"i8[b, n]", "i8[b]"}, "{spec=\"ab,a->b\"}", "i8[n]"},
      {Op::kContract, {"f32[b]", "f32[n]"}, "{spec=\"a,b->\"}", "f32[]"},
      {Op::kContract,
       {"f32[b, 4]", "f32[5, 3]"},
       "{spec=\"mk,kn->mn\"}",
       "!letter k: axis 1 of operand 0 has size 4, axis 0 of operand 1 has size 5"},
      {Op::kContract, {"f32[b, n]", "f32[b, 3]"}, "{spec=\"mk,kn->mn\"}", "!which is not proved"},
      {Op::kContract, {"f32[b, 4]", "f32[4, 3]"}, "{spec=\"mk,kn->mx\"}", "!is in neither operand"},
      {Op::kContract, {"f32[b, 4]", "f32[4, 3]"}, "{spec=\"mkk,kn->mn\"}", "!occurs twice"},
      {Op::kContract, {"f32[b, 4]", "f32[4, 3]"}, "{spec=\"m,kn->mn\"}", "!one letter per axis"},
      {Op::kContract, {"f32[b, 4]", "f16[4, 3]"}, "{spec=\"mk,kn->mn\"}", "!Cast(dtype=f32)"},
      {Op::kContract, {"bool[b]", "bool[b]"}, "{spec=\"a,a->\"}", "!use Or, And or Xor"},
      {Op::kGelu, {"bf16[b]"}, "", "bf16[b]"},
      {Op::kGelu, {"bf16[b]"}, "{approximate=\"tanh\"}", "bf16[b]"},
      {Op::kGelu, {"bf16[b]"}, "{approximate=\"fast\"}", "!must be \"none\" or \"tanh\""},
      {Op::kRelu, {"i32[b]"}, "", "i32[b]"},
      {Op::kRelu, {"bool[b]"}, "", "!operand 0 has dtype bool"},
      {Op::kSoftmax, {"f32[b, n]"}, "{axis=1}", "f32[b, n]"},
      {Op::kSoftmax, {"f32[b, n]"}, "{axis=-1}", "!axis=-1 is not an axis"},
      {Op::kSoftmax, {"i32[b, n]"}, "{axis=1}", "!Cast(dtype=f32)"},
      {Op::kLayerNorm, {"f32[b, 6]", "f32[6]", "f32[6]"}, "{epsilon=1e-05}", "f32[b, 6]"},
      {Op::kLayerNorm,
       {"f32[b, 6]", "f32[6]", "f32[5]"},
       "{epsilon=1e-05}",
       "!axis 1 of x, operand 0, has size 6, axis 0 of bias, operand 2, has size 5"},
      {Op::kLayerNorm, {"f32[]", "f32[6]", "f32[6]"}, "{epsilon=1e-05}", "!has rank 0"},
      {Op::kLayerNorm, {"f32[b, 6]", "f32[6]", "f32[6]"}, "{epsilon=inf}", "!must be finite"},
      {Op::kLayerNorm,
       {"f32[b, 6]", "f32[6]"},
       "{epsilon=1.0}",
       "!has 2 operands; LayerNorm takes 3"},
      {Op::kRmsNorm, {"f16[b, n]", "f16[n]"}, "{epsilon=0.0}", "f16[b, n]"},
      {Op::kRmsNorm, {"f16[b, n]", "f32[n]"}, "{epsilon=0.0}", "!Cast(dtype=f16)"},
      {Op::kRmsNorm, {"f16[b, n]", "f16[n]"}, "{epsilon=0}", "!is of type int"},
      {Op::kStateRead, {}, "\"kv\" {role=\"keys\"} : f32[16*n, 2, 4]", "f32[16*n, 2, 4]"},
      {Op::kStateRead, {}, "\"s\" : i8[b]", "i8[b]"},
      {Op::kStateRead,
       {},
       "\"s\" {role=\"heads\"} : f32[n, 2, 4]",
       "!must be \"keys\", \"values\""},
      {Op::kStateRead, {}, "\"s\" {role=\"values\"} : f32[n, 4]", "!is [slots, heads, width]"},
      {Op::kStateRead, {}, "\"s\" : f32[]", "!has its slots on axis 0"},
      {Op::kStateRead, {}, "\"s\" : f32[n, b]", "!axis 1 has size b; only"},
      {Op::kStateRead, {}, ": f32[n]", "!has no name"},
      {Op::kStateWrite, {"f32[n, 2, 4]", "i64[b]", "f32[b, 2, 4]"}, "", "f32[n, 2, 4]"},
      {Op::kStateWrite, {"i8[n]", "i32[3]", "i8[3]"}, "", "i8[n]"},
      {Op::kStateWrite, {"f32[n, 2]", "i8[b]", "f32[b, 2]"}, "", "!the op takes i32 or i64"},
      {Op::kStateWrite, {"f32[n, 2]", "i32[b, 1]", "f32[b, 1, 2]"}, "", "!index, operand 1,"},
      {Op::kStateWrite, {"f32[n, 2]", "i32[b]", "f32[n, 2]"}, "", "!must be equal"},
      {Op::kStateWrite, {"f32[n, 2]", "i32[b]", "f16[b, 2]"}, "", "!dtype"},
      {Op::kPagedAttention,
       {"f32[b, 6, 4]", "f32[n, 3, 4]", "f32[n, 3, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=16}",
       "f32[b, 6, 5]"},
      {Op::kPagedAttention,
       {"f32[b, 6, 4]", "f32[n, 3, 4]", "f32[n, 3, 5]", "i32[2, n]", "i32[b]", "i32[b]", "f32[6]"},
       "{block=32, scale=0.5, softcap=30.0, window=7}",
       "f32[b, 6, 5]"},
      {Op::kPagedAttention,
       {"f32[b, 6, 4]", "f32[n, 3, 4]", "f32[n, 3, 5]", "i32[2, n]", "i32[b]", "i32[b]", "f32[3]"},
       "{block=16}",
       "!sink, operand 6,"},
      {Op::kPagedAttention,
       {"f32[b, 6, 4]", "f32[n, 4, 4]", "f32[n, 4, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=16}",
       "!q has 6 heads, axis 1, and k has 4"},
      {Op::kPagedAttention,
       {"f32[b, n, 4]", "f32[n, 1, 4]", "f32[n, 1, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=16}",
       "!both must be constant"},
      {Op::kPagedAttention,
       {"f32[b, 1, 4]", "f32[n, 1, 4]", "f32[n, 1, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=24}",
       "!block=24 must be a multiple of 16"},
      {Op::kPagedAttention,
       {"f32[b, 1, 4]", "f32[n, 1, 4]", "f32[n, 1, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=16, window=0}",
       "!window=0 must be in [1,"},
      {Op::kPagedAttention,
       {"f32[b, 1, 4]", "f32[n, 1, 4]", "f32[n, 1, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=16, softcap=0.0}",
       "!softcap=0 must be finite and above 0"},
      {Op::kPagedAttention,
       {"f32[b, 1, 4]", "f32[n, 1, 4]", "f32[n, 1, 5]", "i64[2, n]", "i32[b]", "i32[b]"},
       "{block=16}",
       "!the op takes i32"},
      {Op::kPagedAttention,
       {"f32[b, 1, 4]", "f32[n, 1, 4]", "f32[b, 1, 5]", "i32[2, n]", "i32[b]", "i32[b]"},
       "{block=16}",
       "!v, operand 2,"},
      {Op::kPagedAttention,
       {"f32[b, 1, 4]", "f32[n, 1, 4]", "f32[n, 1, 5]", "i32[2, n]", "i32[n]", "i32[b]"},
       "{block=16}",
       "!sequence, operand 4,"},
      {Op::kAttention,
       {"f32[b, n, 4]", "f32[b, 7, 4]", "f32[b, 7, 5]"},
       "{causal=true}",
       "f32[b, n, 5]"},
      {Op::kAttention,
       {"f32[n, 4]", "f32[n, 4]", "f32[n, 4]", "bool[n, n]"},
       "{scale=0.5}",
       "f32[n, 4]"},
      {Op::kAttention,
       {"f32[b, 2, n, 4]", "f32[b, 2, 7, 4]", "f32[b, 2, 7, 4]", "f32[b, 1, n, 7]"},
       "",
       "f32[b, 2, n, 4]"},
      {Op::kAttention,
       {"f32[b, n, 4]", "f32[b, 7, 3]", "f32[b, 7, 5]"},
       "",
       "!axis 2 of q has size 4, axis 2 of k has size 3"},
      {Op::kAttention,
       {"f32[b, n, 4]", "f32[b, 7, 4]", "f32[b, 8, 5]"},
       "",
       "!axis 1 of k has size 7, axis 1 of v has size 8"},
      {Op::kAttention, {"f32[4]", "f32[4]", "f32[4]"}, "", "!at least the axes [Lq, D]"},
      {Op::kAttention, {"f32[n, 4]", "f32[n, 4]", "f32[n, 4]", "i8[n, n]"}, "", "!must be bool or"},
      {Op::kAttention,
       {"f32[n, 4]", "f32[3, 4]", "f32[3, 4]", "bool[n, n]"},
       "",
       "!axis 0 of k has size 3, axis 1 of mask"},
      {Op::kAttention,
       {"f32[b, n, 4]", "f32[b, n, 4]", "f32[b, n, 4]", "bool[n]"},
       "",
       "!its rank must be 2 or 3"},
      {Op::kEmbeddingBag, {"f16[10, 4]", "i64[n]", "i32[b]"}, "{mode=\"mean\"}", "f16[b, 4]"},
      {Op::kEmbeddingBag, {"f16[10, 4]", "i64[n]", "i32[b]"}, "{mode=\"min\"}", "!must be \"sum\""},
      {Op::kEmbeddingBag, {"i8[10, 4]", "i64[n]", "i32[b]"}, "{mode=\"sum\"}", "!table, operand 0"},
      {Op::kEmbeddingBag,
       {"f16[10, 4]", "i64[n, 2]", "i32[b]"},
       "{mode=\"sum\"}",
       "!ids, operand 1"},
      {Op::kSort, {"bf16[b, n]"}, "{axis=1}", "i64[b, n]"},
      {Op::kSort, {"bool[b, n]"}, "{axis=0, descending=true}", "i64[b, n]"},
      {Op::kSort, {"f32[b, n]"}, "{axis=-1}", "!axis=-1 is not an axis"},
      {Op::kSort, {"f32[]"}, "{axis=0}", "!the shape [] has no axes"},
      {Op::kSort,
       {"f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]"},
       "{axis=15}",
       "i64[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]"},
      {Op::kTopK, {"f32[b, 10]"}, "{axis=1, k=shape[3]}", "i64[b, 3]"},
      {Op::kTopK, {"f32[b, 10]"}, "{axis=1, k=shape[n], largest=false}", "i64[b, n]"},
      {Op::kTopK, {"u8[b, 2*n]"}, "{axis=1, k=shape[n]}", "i64[b, n]"},
      {Op::kTopK, {"f32[b, n]"}, "{axis=1, k=shape[3]}", "!k=3 is not provably at most n"},
      {Op::kTopK, {"f32[b, 10]"}, "{axis=1, k=shape[11]}", "!not provably at most 10"},
      {Op::kTopK, {"f32[b, 10]"}, "{axis=1, k=shape[-1]}", "!must not be negative"},
      {Op::kTopK, {"f32[b, 10]"}, "{axis=1, k=shape[1, 2]}", "!k holds 2 sizes; it must hold one"},
      {Op::kTopK, {"f32[b, 10]"}, "{axis=1, k=3}", "!is of type int"},
      {Op::kCumulate, {"i8[b, n]"}, "{axis=1, op=\"mul\", reverse=true}", "i8[b, n]"},
      {Op::kCumulate, {"f16[b]"}, "{axis=0, op=\"add\", exclusive=true}", "f16[b]"},
      {Op::kCumulate, {"f16[b]"}, "{axis=0, op=\"max\"}", "!must be \"add\" or \"mul\""},
      {Op::kCumulate, {"bool[b]"}, "{axis=0, op=\"add\"}", "!Cast(dtype=i32)"},
      {Op::kCumulate, {"f16[b]"}, "{axis=1, op=\"add\"}", "!axis=1 is not an axis"},
      {Op::kRotary, {"f16[b, n, 8]", "f16[n, 4]", "f16[n, 4]"}, "", "f16[b, n, 8]"},
      {Op::kRotary,
       {"f32[b, 3, n, 9]", "f32[b, 1, n, 2]", "f32[b, 1, n, 2]"},
       "{interleaved=true}",
       "f32[b, 3, n, 9]"},
      {Op::kRotary, {"f32[n, 8]", "f32[n, 5]", "f32[n, 5]"}, "", "!rotates 10 elements, twice"},
      {Op::kRotary,
       {"f32[n, 8]", "f32[3, 4]", "f32[3, 4]"},
       "",
       "!axis 0 of x has size n, axis 0 of"},
      {Op::kRotary, {"f32[n, 8]", "f32[n, 4]", "f32[n, 3]"}, "", "!must be equal"},
      {Op::kRotary, {"f32[n, 8]", "f16[n, 4]", "f16[n, 4]"}, "", "!Cast(dtype=f32)"},
      {Op::kRotary, {"f32[b, n, 8]", "f32[4]", "f32[4]"}, "", "!its rank must be 2 or 3"},
      {Op::kRotary, {"f32[8]", "f32[4]", "f32[4]"}, "", "!at least the axes [L, D]"},
      {Op::kRotary, {"i8[n, 8]", "i8[n, 4]", "i8[n, 4]"}, "", "!x, operand 0, has dtype i8"},
      {Op::kScan, {"f32[b]"}, Passing("f32[b]"), "f32[b]"},
      {Op::kScan, {"f32[b]"}, Passing("f32[n]"), "!operand 0"},
      {Op::kDequantize, {"i8[b, 6]", "f32[]"}, "{dtype=f16}", "f16[b, 6]"},
      {Op::kDequantize, {"u8[b, 6]", "f16[b]", "u8[b]"}, "{dtype=f32}", "f32[b, 6]"},
      {Op::kDequantize, {"u8[5, 6]", "f32[5]", "u8[5]"}, "{bits=4, dtype=bf16}", "bf16[5, 12]"},
      {Op::kDequantize, {"i8[6]", "f32[]"}, "{bits=2, dtype=f32, size=shape[23]}", "f32[23]"},
      {Op::kDequantize,
       {"u8[b, 16]", "f32[b, 3]"},
       "{axis=1, bits=4, block=12, dtype=f32}",
       "f32[b, 32]"},
      {Op::kDequantize, {"i32[b]", "f64[]"}, "{dtype=f64}", "f64[b]"},
      {Op::kDequantize, {"i64[b]", "f64[]"}, "{dtype=f64}", "!integers of up to 32 bits"},
      {Op::kDequantize, {"f32[b]", "f64[]"}, "{dtype=f64}", "!packed, operand 0, has dtype f32"},
      {Op::kDequantize, {"u8[b]", "f64[]"}, "{dtype=i8}", "!the result has dtype i8"},
      {Op::kDequantize, {"u8[b]", "i8[]"}, "{dtype=f32}", "!scale, operand 1, has dtype i8"},
      {Op::kDequantize, {"u8[b]", "f32[]"}, "{bits=3, dtype=f32}", "!bits=3 must be 8"},
      {Op::kDequantize, {"i16[b]", "f32[]"}, "{bits=4, dtype=f32}", "!packed in u8 or i8"},
      {Op::kDequantize, {"u8[]", "f32[]"}, "{bits=4, dtype=f32}", "!needs an axis to unpack"},
      {Op::kDequantize, {"u8[6]", "f32[]"}, "{dtype=f32, size=shape[6]}", "!leave it out"},
      {Op::kDequantize,
       {"u8[6]", "f32[]"},
       "{bits=4, dtype=f32, size=shape[13]}",
       "!size=13 is not provably at most 12"},
      {Op::kDequantize, {"u8[6]", "f32[5]"}, "{dtype=f32}", "!axis 0 of scale"},
      {Op::kDequantize, {"u8[6]", "f32[6]"}, "{axis=1, dtype=f32}", "!axis=1 is not an axis"},
      {Op::kDequantize, {"u8[6, 2]", "f32[6, 2]"}, "{dtype=f32}", "!must be 1"},
      {Op::kDequantize, {"u8[6]", "f32[2]"}, "{block=4, dtype=f32}", "f32[6]"},
      {Op::kDequantize, {"u8[6]", "f32[]"}, "{block=4, dtype=f32}", "!so it has no blocks"},
      {Op::kDequantize, {"u8[6]", "f32[3]"}, "{block=4, dtype=f32}", "!the result's blocks"},
      {Op::kDequantize, {"u8[6]", "f32[2]"}, "{block=-4, dtype=f32}", "!must not be negative"},
      {Op::kDequantize, {"u8[6]", "f32[]", "i8[]"}, "{dtype=f32}", "!zero, operand 2,"},
      {Op::kDequantize, {"u8[6]", "f32[]", "u8[6]"}, "{dtype=f32}", "!must be equal"},
  };
  return cases;
}

// The ops that take operands of one type and no attributes: their class of dtypes is the whole
// rule.
struct Alike {
  Op op;
  int operands;
  std::string_view right, wrong;  // dtypes
};
constexpr Alike kAlike[] = {
    {Op::kLog2, 1, "f32", "i32"},     {Op::kExp2, 1, "f16", "bool"},
    {Op::kSin, 1, "f64", "u8"},       {Op::kSqrt, 1, "bf16", "f8e4m3"},
    {Op::kRecip, 1, "f32", "i8"},     {Op::kExp, 1, "f64", "i64"},
    {Op::kLog, 1, "f32", "f8e8m0"},   {Op::kTanh, 1, "f32", "u32"},
    {Op::kErf, 1, "f32", "i16"},      {Op::kFloor, 1, "f32", "i32"},
    {Op::kRound, 1, "f16", "i32"},    {Op::kAdd, 2, "i64", "bool"},
    {Op::kCos, 1, "f32", "i32"},      {Op::kTan, 1, "f64", "u8"},
    {Op::kAsin, 1, "f16", "bool"},    {Op::kAcos, 1, "bf16", "i8"},
    {Op::kAtan, 1, "f32", "f8e4m3"},  {Op::kSinh, 1, "f64", "i64"},
    {Op::kCosh, 1, "f32", "u64"},     {Op::kAsinh, 1, "f16", "i16"},
    {Op::kAcosh, 1, "f32", "f8e5m2"}, {Op::kAtanh, 1, "bf16", "u16"},
    {Op::kLog1p, 1, "f64", "u32"},    {Op::kExpm1, 1, "f32", "f8e8m0"},
    {Op::kMul, 2, "f32", "bool"},     {Op::kMod, 2, "u8", "f8e5m2"},
    {Op::kDiv, 2, "f32", "i32"},      {Op::kTruncDiv, 2, "i8", "f32"},
    {Op::kFloorDiv, 2, "u64", "f64"}, {Op::kPow, 2, "f32", "i32"},
    {Op::kMin, 2, "bool", "f8e4m3"},  {Op::kMax, 2, "i16", "f8e4m3"},
    {Op::kAnd, 2, "bool", "f32"},     {Op::kOr, 2, "u16", "f16"},
    {Op::kXor, 2, "i32", "bf16"},     {Op::kSigmoid, 1, "f32", "i32"},
    {Op::kSilu, 1, "bf16", "u8"},
};

std::vector<Case> AllCases() {
  std::vector<Case> cases = Cases();
  for (const Alike& row : kAlike) {
    const auto operands = [&](std::string_view dtype) {
      return std::vector<std::string>(row.operands, Cat(dtype, "[b, 3]"));
    };
    cases.push_back({row.op, operands(row.right), "", Cat(row.right, "[b, 3]")});
    cases.push_back({row.op, operands(row.wrong), "", Cat("!has dtype ", row.wrong, ", but")});
    cases.push_back({row.op, {}, "", "!has 0 operands"});
    cases.push_back({row.op, operands(row.right), "{extra=1}", "!has no attribute \"extra\""});
    if (row.operands != 2) continue;
    const std::string type = Cat(row.right, "[b, 3]");
    cases.push_back(
        {row.op, {type, Cat(row.right, "[3, b]")}, "", "!nothing is broadcast implicitly"});
    cases.push_back({row.op, {type, row.right == "i32" ? "i64[b, 3]" : "i32[b, 3]"}, "", "!i32"});
  }
  return cases;
}

TEST(OpTable, InfersTheTypesOfItsCases) {
  for (const Case& c : AllCases()) {
    const std::string text = TextOf(c);
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    if (c.expected[0] == '!') {
      const std::string wanted = c.expected.substr(1);
      ASSERT_FALSE(graph.ok()) << text;
      const std::string message(graph.status().message());
      EXPECT_NE(message.find(wanted), std::string::npos) << text << message;
      EXPECT_NE(message.find(OpName(c.op)), std::string::npos) << text << message;
      EXPECT_TRUE(absl::IsInvalidArgument(graph.status()) || absl::IsUnimplemented(graph.status()))
          << graph.status();
    } else {
      ASSERT_TRUE(graph.ok()) << text << graph.status();
      EXPECT_EQ(TypeToString(graph->nodes.back().type), c.expected) << text;
    }
  }
}

TEST(OpTable, EveryOpHasRightAndWrongCases) {
  std::set<Op> right, wrong;
  for (const Case& c : AllCases()) (c.expected[0] == '!' ? wrong : right).insert(c.op);
  for (Op op : kAllOps) {
    EXPECT_TRUE(right.contains(op)) << OpName(op) << " lacks a case that infers";
    EXPECT_TRUE(wrong.contains(op)) << OpName(op) << " lacks a case that is refused";
  }
}

TEST(OpTable, EveryOpHasOneCompleteRow) {
  ASSERT_EQ(OpTable().size(), std::size(kAllOps));
  for (size_t i = 0; i < std::size(kAllOps); ++i) {
    const OpRow& row = OpTable()[i];
    EXPECT_EQ(row.op, kAllOps[i]) << "rows stand in the order of ATHANOR_OPS";
    EXPECT_EQ(&OpInfo(row.op), &row);
    EXPECT_EQ(row.name, OpName(row.op));
    EXPECT_EQ(ParseOp(row.name), row.op);
    EXPECT_LE(row.min_inputs, row.max_inputs) << row.name;
    EXPECT_NE(row.infer, nullptr) << row.name;
    EXPECT_EQ(row.reference == nullptr, IsDeclared(row.op)) << row.name;
    EXPECT_GE(row.ulp, 0) << row.name;
    EXPECT_GT(row.semantics.size(), 5u) << row.name;
    EXPECT_EQ(row.semantics.back(), '.') << row.name;
  }
  EXPECT_EQ(ParseOp("NoSuchOp"), std::nullopt);
}

TEST(OpTable, AttributesAreDescribed) {
  for (const OpRow& row : OpTable()) {
    std::set<std::string_view> names;
    for (const AttrSpec& spec : row.attrs) {
      EXPECT_TRUE(names.insert(spec.name).second) << row.name << " " << spec.name;
      EXPECT_FALSE(spec.doc.empty()) << row.name << " " << spec.name;
      if (!spec.otherwise) continue;
      EXPECT_FALSE(spec.required) << row.name << " " << spec.name;
      EXPECT_EQ(static_cast<AttrType>(spec.otherwise->index()), spec.type) << row.name;
    }
  }
}

// Repeats every case that infers, with its first operand's dtype replaced by f8e4m3 everywhere.
TEST(OpTable, StorageDTypesOnlyMove) {
  const std::set<Op> movers = {Op::kCast, Op::kBitcast, Op::kIndexMap, Op::kGather, Op::kSelect};
  int refused = 0;
  for (Case c : AllCases()) {
    if (c.expected[0] == '!' || c.operands.empty() || movers.contains(c.op)) continue;
    // Left out: a seed is not data, and a body's inputs would have to have the storage dtype too.
    if (c.op == Op::kRandomBits || c.op == Op::kScan) continue;
    const std::string dtype = c.operands[0].substr(0, c.operands[0].find('['));
    for (std::string& operand : c.operands) {
      if (operand.starts_with(dtype + "[")) operand.replace(0, dtype.size(), "f8e4m3");
    }
    const absl::StatusOr<Graph> graph = ParseGraph(TextOf(c));
    EXPECT_TRUE(absl::IsUnimplemented(graph.status())) << TextOf(c) << graph.status();
    ++refused;
  }
  EXPECT_GT(refused, 40);
}

}  // namespace
}  // namespace athanor
