#include "tests/fuzz/seeds.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace athanor {
namespace {

constexpr std::string_view kMlp = R"(graph "mlp" {
  dim b in [1, 64]
  %0 = Input "x" : f32[b, 4]
  %1 = Parameter "w" : f32[4, 3]
  %2 = Parameter "bias" : f32[3]
  %3 = Contract "product"(%0, %1) {spec="bk,kn->bn"} : f32[b, 3]
  %4 = IndexMap(%2) {map=map[b, 3]($1)} : f32[b, 3]
  %5 = Add "sum"(%3, %4) : f32[b, 3]
  %6 = Gelu(%5) {approximate="tanh"} : f32[b, 3]
  %7 = Softmax "p"(%6) {axis=1} : f32[b, 3]
  output "p" = %7
  output "x" = %0
  output "again" = %7
}
)";

constexpr std::string_view kAttention = R"(graph "attention" {
  dim b in [0, 4]
  dim s in [1, 8]
  %0 = Input "q" : f16[b, s, 4]
  %1 = Input "mask" : bool[s, 2*s + 1]
  %2 = Parameter "scale" : f16[4]
  %3 = Parameter "bias" : f16[4]
  %4 = LayerNorm(%0, %2, %3) {epsilon=1e-05} : f16[b, s, 4]
  %5 = RmsNorm(%4, %2) {epsilon=0.0} : f16[b, s, 4]
  %6 = IndexMap(%5) {fill=f16[] {0.5}, map=map[b, 2*s + 1, 4]($0, $1 - 1, $2)} : f16[b, 2*s + 1, 4]
  %7 = Attention "a"(%5, %6, %6, %1) {causal=true, scale=0.25} : f16[b, s, 4]
  %8 = Silu(%7) : f16[b, s, 4]
  %9 = Sigmoid(%8) : f16[b, s, 4]
  output "y" = %9
}
)";

constexpr std::string_view kPaged = R"(graph "paged" {
  dim t in [0, 4]
  %0 = Input "q" : f32[t, 2, 4]
  %1 = Parameter "k" : f32[64, 1, 4]
  %2 = Parameter "v" : f32[64, 1, 3]
  %3 = Input "table" : i32[4, 1]
  %4 = Input "sequence" : i32[t]
  %5 = Input "position" : i32[t]
  %6 = Parameter "sink" : f32[2]
  %7 = PagedAttention "a"(%0, %1, %2, %3, %4, %5, %6) {block=16, softcap=4.0, window=5} : f32[t, 2, 3]
  output "y" = %7
}
)";

constexpr std::string_view kTables = R"(graph "tables" {
  dim n in [0, 16]
  dim b in [0, 8]
  %0 = Parameter "table" : f32[7, 3]
  %1 = Input "ids" : i64[n]
  %2 = Input "offsets" : i64[b]
  %3 = Input "rows" : i32[2, n]
  %4 = EmbeddingBag "bag"(%0, %1, %2) {mode="mean"} : f32[b, 3]
  %5 = Gather "g"(%0, %3) {axis=0} : f32[2, n, 3]
  output "bag" = %4
  output "g" = %5
}
)";

constexpr std::string_view kScatter = R"(graph "scatter" {
  dim n in [0, 16]
  %0 = Parameter "table" : bf16[7, 3]
  %1 = Input "ids" : u8[n]
  %2 = Input "updates" : bf16[n, 3]
  %3 = Scatter "s"(%0, %1, %2) {axis=0, mode="add"} : bf16[7, 3]
  %4 = Scatter(%3, %1, %2) {axis=0, mode="set"} : bf16[7, 3]
  %5 = SumReduce(%4) {axes=[0]} : bf16[3]
  %8 = Scatter(%0, %1, %2) {axis=0, mode="mul"} : bf16[7, 3]
  %6 = MaxReduce(%4) {axes=[0, 1]} : bf16[]
  %7 = MulReduce(%2) {axes=[0]} : bf16[3]
  output "sum" = %5
  output "product" = %7
  output "scaled" = %8
  output "max" = %6
}
)";

constexpr std::string_view kFloats = R"(graph "floats" {
  dim b in [1, 4]
  %0 = Input "x" : f64[b, 2]
  %1 = Input "y" : f64[b, 2]
  %2 = Log2(%0) : f64[b, 2]
  %3 = Exp2(%2) : f64[b, 2]
  %4 = Sin(%3) : f64[b, 2]
  %5 = Sqrt(%4) : f64[b, 2]
  %6 = Recip(%5) : f64[b, 2]
  %7 = Exp(%6) : f64[b, 2]
  %8 = Log(%7) : f64[b, 2]
  %9 = Tanh(%8) : f64[b, 2]
  %10 = Erf(%9) : f64[b, 2]
  %11 = Floor(%10) : f64[b, 2]
  %12 = Round(%11) : f64[b, 2]
  %13 = Mul(%12, %1) : f64[b, 2]
  %14 = Mod(%13, %1) : f64[b, 2]
  %15 = Div(%14, %0) : f64[b, 2]
  %16 = Pow(%15, %1) : f64[b, 2]
  %17 = Min(%16, %0) : f64[b, 2]
  %18 = Max(%17, %1) : f64[b, 2]
  %19 = LessThan(%18, %0) : bool[b, 2]
  %20 = Select "chosen"(%19, %0, %18) : f64[b, 2]
  %21 = Relu(%20) : f64[b, 2]
  %22 = Cast(%21) {dtype=bf16} : bf16[b, 2]
  output "y" = %22
}
)";

constexpr std::string_view kTrigonometry = R"(graph "trigonometry" {
  dim b in [1, 4]
  %0 = Input "x" : f16[b, 3]
  %1 = Cos(%0) : f16[b, 3]
  %2 = Tan(%1) : f16[b, 3]
  %3 = Asin(%1) : f16[b, 3]
  %4 = Acos(%1) : f16[b, 3]
  %5 = Atan(%0) : f16[b, 3]
  %6 = Sinh(%5) : f16[b, 3]
  %7 = Cosh(%6) : f16[b, 3]
  %8 = Asinh(%0) : f16[b, 3]
  %9 = Acosh(%7) : f16[b, 3]
  %10 = Atanh(%1) : f16[b, 3]
  %11 = Log1p(%9) : f16[b, 3]
  %12 = Expm1(%8) : f16[b, 3]
  output "tan" = %2
  output "asin" = %3
  output "acos" = %4
  output "atanh" = %10
  output "log1p" = %11
  output "expm1" = %12
}
)";

constexpr std::string_view kIntegers = R"(graph "integers" {
  dim b in [1, 4]
  %0 = Input "x" : i32[b]
  %1 = Input "seed" : u64[]
  %2 = RandomBits(%1) {shape=shape[b]} : u32[b]
  %3 = Bitcast(%2) {dtype=i32} : i32[b]
  %4 = TruncDiv(%0, %3) : i32[b]
  %5 = FloorDiv(%4, %0) : i32[b]
  %6 = And(%5, %3) : i32[b]
  %7 = Or(%6, %0) : i32[b]
  %8 = Xor(%7, %3) : i32[b]
  %9 = Not(%8) : i32[b]
  %10 = Shift(%9, %0) {direction="right"} : i32[b]
  %11 = Iota {axis=0, dtype=i32, shape=shape[b]} : i32[b]
  %12 = Add(%10, %11) : i32[b]
  %13 = Cast(%12) {dtype=u16} : u16[b]
  %14 = Cast(%13) {dtype=i8} : i8[b]
  %15 = Cast(%14) {dtype=i16} : i16[b]
  output "y" = %12
  output "narrow" = %15
}
)";

constexpr std::string_view kOrder = R"(graph "order" {
  dim b in [1, 4]
  %0 = Input "x" : f32[b, 5]
  %1 = Sort(%0) {axis=1, descending=true} : i64[b, 5]
  %2 = TopK(%0) {axis=1, k=shape[2], largest=false} : i64[b, 2]
  %3 = Cumulate(%0) {axis=1, exclusive=true, op="add", reverse=true} : f32[b, 5]
  %4 = Cumulate(%1) {axis=1, op="mul"} : i64[b, 5]
  output "order" = %1
  output "top" = %2
  output "sums" = %3
  output "products" = %4
}
)";

constexpr std::string_view kQuantized = R"(graph "quantized" {
  dim s in [1, 4]
  %0 = Input "x" : f32[2, s, 6]
  %1 = Input "cos" : f32[s, 2]
  %2 = Input "sin" : f32[1, s, 3]
  %3 = Parameter "packed" : i8[2, 3]
  %4 = Parameter "scale" : f32[2, 2]
  %5 = Parameter "zero" : i8[2, 2]
  %6 = Rotary(%0, %1, %1) : f32[2, s, 6]
  %7 = Rotary(%6, %2, %2) {interleaved=true} : f32[2, s, 6]
  %8 = Dequantize(%3, %4, %5) {axis=1, bits=4, block=3, dtype=f32, size=shape[5]} : f32[2, 5]
  output "rotated" = %7
  output "weights" = %8
}
)";

constexpr std::string_view kMaps = R"(graph "maps" {
  dim h in [4, 9]
  dim k in [1, 3]
  %0 = Input "image" : u8[2*h + k, 5]
  %1 = Input "like" : u32[k, min(h, 6)]
  %6 = Input "axes" {value=i64[2] {0, -1}} : i64[2]
  %2 = IndexMap "window"(%0) {map=map[h, k, 5](2*$0 + $1, 4 - $2)} : u8[h, k, 5]
  %3 = IndexMap(%2) {map=map[5*h, k](floordiv($0, 5), $1, $0 - 5*floordiv($0, 5))} : u8[5*h, k]
  %4 = IndexMap "pad"(%3) {fill=u8[] {9}, map=map[5*h + 2, max(k, 2)]($0 - 1, $1)} : u8[5*h + 2, max(k, 2)]
  %5 = IndexMap(%1) {map=map[3](0, 3)} : u32[3]
  output "pad" = %4
  output "like" = %5
  output "axes" = %6
}
)";

constexpr std::string_view kWindows = R"(graph "windows" {
  dim b in [0, 3]
  dim s in [3, 9]
  %0 = Input "x" : f32[b, 4, s, 5]
  %1 = Parameter "w" : f32[6, 2, 3, 1]
  %2 = Parameter "d" : f32[6, 1, 2, 2]
  %3 = Conv "conv"(%0, %1) {begin=shape[1, 0], dilations=[1, 1], group=2, out=shape[s, 3], strides=[1, 2]} : f32[b, 6, s, 3]
  %4 = Conv(%3, %2) {begin=shape[-1, s - 3], dilations=[2, 1], group=6, out=shape[s - 2, 4], strides=[1, 1]} : f32[b, 6, s - 2, 4]
  %5 = Pool "max"(%4) {begin=shape[1, 1], dilations=[1, 1], kernel=[2, 3], mode="max", out=shape[floordiv(s, 2), 2], strides=[2, 3]} : f32[b, 6, floordiv(s, 2), 2]
  %6 = Pool "mean"(%4) {begin=shape[1, 1], counted=shape[s, 6], dilations=[1, 1], kernel=[2, 3], mode="mean", out=shape[floordiv(s, 2), 2], strides=[2, 3]} : f32[b, 6, floordiv(s, 2), 2]
  output "max" = %5
  output "mean" = %6
}
)";

constexpr std::string_view kLoops = R"(graph "loops" {
  dim n in [0, 4]
  %0 = Input "h" : f32[3]
  %1 = Input "x" : f32[n, 3]
  %2 = Scan "last"(%0, %1) {body=graph "body" {
  %0 = Input "step" : i64[]
  %1 = Input "h" : f32[3]
  %2 = Input "x" : f32[3]
  %3 = Add(%1, %2) : f32[3]
  output "h" = %3
  output "y" = %0
}, length=shape[n], result=0, reverse=true, scanned=1, states=1} : f32[3]
  %3 = Scan(%2, %0) {body=graph "body" {
  %0 = Input "step" : i64[]
  %1 = Input "h" : f32[3]
  %2 = Input "c" : f32[3]
  %3 = Scan(%1, %2) {body=graph "inner" {
  %0 = Input "step" : i64[]
  %1 = Input "h" : f32[3]
  %2 = Input "c" : f32[3]
  %3 = Mul(%1, %2) : f32[3]
  output "h" = %3
}, length=shape[2], result=0, scanned=0, states=1} : f32[3]
  output "h" = %3
  output "y" = %1
}, length=shape[n + 1], result=1, scanned=0, states=1} : f32[n + 1, 3]
  output "last" = %2
  output "y" = %3
}
)";

constexpr std::string_view kConstants = R"(graph "constants" {
  %0 = Constant {value=f32[2] {1.5, -2}} : f32[2]
  %1 = Constant {value=bool[3] {true, false, true}} : bool[3]
  %2 = Constant {value=f8e4m3[2] {1, 2}} : f8e4m3[2]
  %3 = Cast(%2) {dtype=f16} : f16[2]
  %4 = Constant {value=u8[2, 0] {}} : u8[2, 0]
  %5 = Bitcast(%2) {dtype=f8e5m2} : f8e5m2[2]
  %6 = Bitcast(%5) {dtype=i8} : i8[2]
  output "c" = %0
  output "t" = %1
  output "h" = %3
  output "empty" = %4
  output "bits" = %6
}
)";

}  // namespace

std::vector<Graph> SeedGraphs() {
  std::vector<Graph> graphs;
  for (std::string_view text :
       {kMlp, kAttention, kPaged, kTables, kScatter, kFloats, kTrigonometry, kIntegers, kOrder,
        kQuantized, kMaps, kWindows, kLoops, kConstants}) {
    absl::StatusOr<Graph> graph = ParseGraph(text);
    if (!graph.ok()) {
      std::fprintf(stderr, "seed: %s\n%.60s...\n", graph.status().ToString().c_str(), text.data());
      std::abort();
    }
    graphs.push_back(*std::move(graph));
  }
  return graphs;
}

}  // namespace athanor
