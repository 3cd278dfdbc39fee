#include "compiler/ir/rows/row_independence.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/rows/row_independence_testing.h"

namespace athanor {
namespace {

// A graph's body over dims b and s in [1, 64] and f in [4, 4], and a part of the reason why rows of
// `dim` are not independent; empty if they are.
struct Case {
  std::string body;
  std::string reason = "";
  std::string dim = "b";
};

Graph GraphOf(const std::string& body) {
  const absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat(
      "graph \"g\" {\n dim b in [1, 64]\n dim s in [1, 64]\n dim f in [4, 4]\n", body, "}"));
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << body;
  if (!graph.ok()) return {};
  EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph) << "\n" << body;
  return *graph;
}

const Case kIndependent[] = {
    // Queries and where they stand have rows; keys, values and the table are the same for all.
    {R"(%0 = Input "q" : f32[b, 4, 5] %1 = Parameter "k" : f32[64, 2, 5] %2 = Parameter "v" : f32[64, 2, 3]
        %3 = Parameter "t" : i32[4, 2] %4 = Input "s" : i32[b] %5 = Input "p" : i32[b]
        %6 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} output "y" = %6)"},
    // Linear layers, with parameters broadcast along the rows.
    {R"(%0 = Input "x" : f32[b, 8] %1 = Parameter "w" : f32[8, 5] %2 = Parameter "o" : f32[5]
        %3 = Contract(%0, %1) {spec="bk,kn->bn"} %4 = IndexMap(%2) {map=map[b, 5]($1)} %5 = Add(%3, %4)
        %6 = Relu(%5) %7 = Constant {value=f32[] {2.0}} %8 = IndexMap(%7) {map=map[b, 5]()}
        %9 = Mul(%6, %8) output "y" = %9)"},
    {R"(%0 = Input "x" : f32[b, 3] %1 = Cos(%0) %2 = Tan(%0) %3 = Asin(%1) %4 = Acos(%1) %5 = Atan(%2)
        %6 = Sinh(%3) %7 = Cosh(%4) %8 = Asinh(%5) %9 = Acosh(%7) %10 = Atanh(%1) %11 = Log1p(%9)
        %12 = Expm1(%6) output "a" = %8 output "b" = %10 output "c" = %11 output "d" = %12)"},
    // Softmax, norms and reductions along other axes.
    {R"(%0 = Input "x" : f32[b, s, 6] %1 = Parameter "g" : f32[6] %2 = Softmax(%0) {axis=1}
        %3 = LayerNorm(%2, %1, %1) {epsilon=1e-5} %4 = RmsNorm(%3, %1) {epsilon=1e-5}
        %5 = SumReduce(%4) {axes=[1]} %6 = MaxReduce(%4) {axes=[1, 2]} %7 = MulReduce(%4) {axes=[2]}
        output "y" = %5 output "m" = %6 output "p" = %7)"},
    {R"(%0 = Input "x" : f32[b, s, 6] %1 = Sort(%0) {axis=1} %2 = TopK(%0) {axis=2, k=shape[3]}
        %3 = Cumulate(%0) {axis=1, op="add"} output "y" = %1 output "t" = %2 output "c" = %3)"},
    {R"(%0 = Input "x" : f32[b, 2, s, 6] %1 = Input "c" : f32[s, 3] %2 = Input "d" : f32[b, 1, s, 2]
        %3 = Rotary(%0, %1, %1) %4 = Rotary(%3, %2, %2) {interleaved=true} output "y" = %4)"},
    {R"(%0 = Input "q" : u8[b, 6] %1 = Input "s" : f32[b] %2 = Input "z" : u8[b] %3 = Parameter "t" : f32[12]
        %4 = Dequantize(%0, %1, %2) {bits=4, dtype=f32} %5 = Dequantize(%0, %3) {axis=1, bits=4, dtype=f32}
        %6 = Parameter "u" : f32[] %7 = Dequantize(%0, %6) {dtype=f16} output "y" = %4 output "t" = %5
        output "u" = %7)"},
    // Loops whose states keep their rows.
    {R"(%0 = Input "x" : f32[b, s, 6] %1 = IndexMap(%0) {map=map[s, b, 6]($1, $0, $2)}
        %2 = Constant {value=f32[] {0.5}} %3 = IndexMap(%2) {map=map[b, 6]()}
        %4 = Scan(%3, %1) {body=graph "" {%0 = Input "i" : i64[] %1 = Input "h" : f32[b, 6]
          %2 = Input "x" : f32[b, 6] %3 = Add(%1, %2) : f32[b, 6] %4 = Softmax(%3) {axis=1} : f32[b, 6]
          output "h" = %4 output "y" = %3}, length=shape[s], result=0, scanned=1, states=1}
        %5 = Scan(%3, %1) {body=graph "" {%0 = Input "i" : i64[] %1 = Input "h" : f32[b, 6]
          %2 = Input "x" : f32[b, 6] %3 = Add(%1, %2) : f32[b, 6] output "h" = %3 output "y" = %3},
          length=shape[s], result=1, scanned=1, states=1}
        %6 = IndexMap(%5) {map=map[b, s, 6]($1, $0, $2)} output "h" = %4 output "y" = %6)"},
    // Reductions of axes before the rows.
    {R"(%0 = Input "x" : f32[b, s, 6] %1 = IndexMap(%0) {map=map[6, s, b]($2, $1, $0)}
        %2 = SumReduce(%1) {axes=[0, 1]} %3 = MaxReduce(%1) {axes=[0]} %4 = IndexMap(%3) {map=map[b, s]($1, $0)}
        output "y" = %2 output "m" = %4)"},
    // Several elements per row: declared so, merged with inner axes, split off again.
    {R"(%0 = Input "x" : f32[2*b, 5] %1 = Softmax(%0) {axis=1} output "y" = %1)"},
    {R"(%0 = Input "x" : f32[b, s, 4] %1 = IndexMap(%0) {map=map[b*s, 4](floordiv($0, s), mod($0, s), $1)}
        %2 = Tanh(%1) output "y" = %2)"},
    {R"(%0 = Input "x" : f32[b, s, 4] %1 = IndexMap(%0) {map=map[4*b*s](floordiv($0, 4*s), mod(floordiv($0, 4), s), mod($0, 4))}
        %2 = Exp(%1) %3 = IndexMap(%2) {map=map[b, s, 4](4*s*$0 + 4*$1 + $2)} %4 = Softmax(%3) {axis=1}
        output "y" = %4 output "z" = %2)"},
    {R"(%0 = Input "x" : f32[b, 6] %1 = IndexMap(%0) {map=map[2*b, 3](floordiv(3*$0 + $1, 6), mod(3*$0 + $1, 6))}
        %2 = Softmax(%1) {axis=1} output "y" = %2)"},
    {R"(%0 = Input "x" : f32[3*b] %1 = IndexMap(%0) {map=map[b, 3](3*$0 + $1)} %2 = Softmax(%1) {axis=1}
        output "y" = %2)"},
    {R"(%0 = Input "x" : f32[s*b, 4] %1 = IndexMap(%0) {map=map[b, s, 4](s*$0 + $1, $2)}
        %2 = Attention(%1, %1, %1) output "y" = %2)"},
    // The order of elements within a row may change.
    {R"(%0 = Input "x" : f32[4*b] %1 = IndexMap(%0) {map=map[4*b](4*floordiv($0, 4) + 3 - mod($0, 4))}
        output "y" = %1)"},
    // Movement that leaves rows alone: slices, pads and joins of columns, gathers by rows.
    {R"(%0 = Input "x" : f32[b, 10] %1 = IndexMap(%0) {fill=f32[] {0.5}, map=map[b, 14]($0, $1 - 2)}
        %2 = IndexMap(%1) {map=map[b, 7]($0, 2*$1)} %3 = IndexMap(%2) {map=map[b, 7]($0, 6 - $1)}
        output "y" = %3 output "p" = %1)"},
    {R"(%0 = Input "x" : f32[b, 3] %1 = Input "z" : f32[b, s]
        %2 = IndexMap(%0) {fill=f32[] {0.0}, map=map[b, s + 3]($0, $1)}
        %3 = IndexMap(%1) {fill=f32[] {0.0}, map=map[b, s + 3]($0, $1 - 3)}
        %4 = Iota {axis=1, dtype=i64, shape=shape[b, s + 3]} %5 = Constant {value=i64[] {3}}
        %6 = IndexMap(%5) {map=map[b, s + 3]()} %7 = LessThan(%4, %6) %8 = Select(%7, %2, %3) output "y" = %8)"},
    {R"(%0 = Parameter "t" : f32[9, 5] %1 = Input "ids" : i32[b, 3] %2 = Gather(%0, %1) {axis=0}
        %3 = SumReduce(%2) {axes=[1]} output "y" = %3)"},
    {R"(%0 = Parameter "t" : f32[5, 9] %1 = Input "ids" : i32[b, 3] %2 = Gather(%0, %1) {axis=1}
        %3 = IndexMap(%2) {map=map[b, 5]($1, $0, 2)} output "y" = %3)"},
    {R"(%0 = Input "x" : f32[b, 6, s] %1 = Input "ids" : u8[2, 3] %2 = Gather(%0, %1) {axis=1} %3 = Exp(%2)
        %4 = Scatter(%0, %1, %3) {axis=1, mode="add"} %5 = Scatter(%4, %1, %3) {axis=1, mode="mul"}
        output "y" = %5)"},
    {R"(%0 = Input "x" : f32[b, 6, s] %1 = IndexMap(%0) {map=map[6, s, b]($2, $0, $1)} %2 = Constant {value=i32[2] {1, 1}}
        %3 = Gather(%1, %2) {axis=0} %4 = Scatter(%1, %2, %3) {axis=0, mode="max"}
        %5 = IndexMap(%4) {map=map[b, s, 6]($2, $1, $0)} output "y" = %5)"},
    // Attention over a batch and over heads, with shared and separate masks; rows lie on none of
    // its axes.
    {R"(%0 = Input "x" : f32[b, s, 8] %1 = IndexMap(%0) {map=map[b, 2, s, 4]($0, $2, 4*$1 + $3)}
        %2 = Attention(%1, %1, %1) {causal=true} %3 = IndexMap(%2) {map=map[b, s, 8]($0, floordiv($2, 4), $1, mod($2, 4))}
        output "y" = %3)"},
    {R"(%0 = Input "x" : f32[b, s, 4] %1 = Input "m" : bool[s, s] %2 = Input "n" : bool[b, s, s]
        %3 = Input "o" : f32[1, s, s] %4 = Attention(%0, %0, %0, %1) %5 = Attention(%4, %0, %4, %2)
        %6 = Attention(%5, %5, %5, %3) output "y" = %6)"},
    {R"(%0 = Input "q" : f32[b, 4] %1 = Parameter "k" : f32[5, 4] %2 = Parameter "v" : f32[5, 3]
        %3 = Input "m" : bool[b, 5] %4 = Attention(%0, %1, %2, %3) output "y" = %4)"},
    // Convolutions and pools along other axes.
    {R"(%0 = Input "x" : f32[b, 4, s] %1 = Parameter "w" : f32[6, 2, 3]
        %2 = Conv(%0, %1) {strides=[1], dilations=[1], begin=shape[1], out=shape[s], group=2}
        %3 = Pool(%2) {mode="max", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[floordiv(s, 2)]}
        output "y" = %2 output "z" = %3)"},
    {R"(%0 = Input "x" : f32[2*b, s, 5, 3] %1 = Pool(%0) {mode="mean", kernel=[2, 2], strides=[1, 1], dilations=[1, 2],
        begin=shape[1, 1], out=shape[s, 3], counted=shape[7, s]} output "y" = %1)"},
    {R"(%0 = Input "x" : f32[s, 4, 7] %1 = Input "z" : f32[b, 6] %2 = Parameter "w" : f32[6, 4, 7]
        %3 = Conv(%0, %2) {strides=[1], dilations=[1], begin=shape[0], out=shape[1]} %4 = SumReduce(%3) {axes=[0, 2]}
        %5 = IndexMap(%4) {map=map[b, 6]($1)} %6 = Add(%1, %5) output "y" = %6)"},
    // Channels are rows: a pool keeps them apart.
    {R"(%0 = Input "x" : f32[b, 3, 5] %1 = IndexMap(%0) {map=map[3, b, 5]($1, $0, $2)}
        %2 = Pool(%1) {mode="sum", kernel=[2], strides=[1], dilations=[1], begin=shape[0], out=shape[4]}
        %3 = IndexMap(%2) {map=map[b, 3, 4]($1, $0, $2)} output "y" = %3)"},
    // Contractions by row, and of values without rows.
    {R"(%0 = Input "x" : f32[b, 4, 5] %1 = Input "z" : f32[b, 5, s] %2 = Contract(%0, %1) {spec="bik,bkj->bij"}
        %3 = Contract(%2, %2) {spec="bij,bkj->bik"} output "y" = %2 output "z" = %3)"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[4, b]($1, $0)} %2 = Parameter "w" : f32[4, 3]
        %3 = Contract(%2, %1) {spec="kn,kb->bn"} output "y" = %3)"},
    {R"(%0 = Input "x" : f32[b] %1 = Input "z" : f32[s] %2 = Contract(%0, %1) {spec="b,s->bs"} output "y" = %2)"},
    // Values without rows may take part in any op and be outputs; so may values that no output
    // needs.
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "z" : f32[s, 4] %2 = Softmax(%1) {axis=0} %3 = SumReduce(%2) {axes=[0]}
        %4 = IndexMap(%3) {map=map[b, 4]($1)} %5 = Add(%0, %4) %6 = SumReduce(%0) {axes=[0]} output "y" = %5
        output "p" = %2)"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Parameter "t" : f32[9, 4] %2 = Input "ids" : i32[s] %3 = Constant {value=i32[2] {0, 1}}
        %4 = EmbeddingBag(%1, %2, %3) {mode="mean"} %5 = Contract(%0, %4) {spec="bk,nk->bn"} output "y" = %5)"},
    {R"(%0 = Input "x" : u32[b, 4] %1 = Input "seed" : u64[] %2 = RandomBits(%1) {shape=shape[4]}
        %3 = IndexMap(%2) {map=map[b, 4]($1)} %4 = Xor(%0, %3) output "y" = %4)"},
    {R"(%0 = Input "x" : f32[b, s] %1 = Iota {axis=1, dtype=f32, shape=shape[b, s]} %2 = Mul(%0, %1)
        output "y" = %2 output "i" = %1)"},
    {R"(%0 = Input "x" : f32[b, s] %1 = Iota {axis=0, dtype=f32, shape=shape[s + 1]} %2 = IndexMap(%1) {map=map[](s)}
        %3 = IndexMap(%2) {map=map[b, s]()} %4 = Div(%0, %3) output "y" = %4)"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "unused" : f32[2*b, s] output "x" = %0)"},
    {R"(%0 = Input "x" : f32[min(b, 64), 4] %1 = Exp(%0) output "y" = %1)"},
    {R"(%0 = Input "x" : f32[f, 4] %1 = Exp(%0) output "y" = %1)", "", "f"},
};

const Case kRefused[] = {
    // Ops that mix rows.
    {R"(%0 = Input "x" : f32[b, 4] %1 = Softmax "p"(%0) {axis=0} output "y" = %1)",
     "\"p\" (Softmax): normalises across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = SumReduce "t"(%0) {axes=[0]} output "y" = %1)",
     "\"t\" (SumReduce): sums across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = MaxReduce(%0) {axes=[0, 1]} output "y" = %1)",
     "%1 (MaxReduce): takes the maximum across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = MulReduce(%0) {axes=[0]} output "y" = %1)",
     "%1 (MulReduce): multiplies across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[4, b]($1, $0)} %2 = Input "c" : f32[4, 0]
        %3 = Rotary(%1, %2, %2) output "y" = %3)",
     "%3 (Rotary): rotates across the rows of dim b"},
    {R"(%0 = Input "q" : u8[b] %1 = Parameter "s" : f32[] %2 = Dequantize(%0, %1) {bits=4, dtype=f32}
        output "y" = %2)",
     "%2 (Dequantize): unpacks or shares a scale across the rows of dim b"},
    {R"(%0 = Input "q" : u8[2*b, 3] %1 = Input "s" : f32[b, 3] %2 = Dequantize(%0, %1) {block=2, dtype=f32}
        output "y" = %2)",
     "%2 (Dequantize): unpacks or shares a scale across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Constant {value=f32[4] {0.0, 0.0, 0.0, 0.0}}
        %2 = Scan(%1, %0) {body=graph "" {%0 = Input "i" : i64[] %1 = Input "h" : f32[4]
          %2 = Input "x" : f32[4] %3 = Add(%1, %2) : f32[4] output "h" = %3}, length=shape[b],
          result=0, scanned=1, states=1} output "y" = %2)",
     "%2 (Scan): its length, b, varies with the size of dim b"},
    {R"(%0 = Input "x" : f32[b, 4]
        %1 = Scan(%0) {body=graph "" {%0 = Input "i" : i64[] %1 = Input "h" : f32[b, 4]
          %2 = Softmax(%1) {axis=0} : f32[b, 4] output "h" = %2}, length=shape[3], result=0,
          scanned=0, states=1} output "y" = %1)",
     "%1 (Scan): in its body, %2 (Softmax): normalises across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Sort(%0) {axis=0} output "y" = %1)",
     "%1 (Sort): sorts across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = TopK(%0) {axis=0, k=shape[1]} output "y" = %1)",
     "%1 (TopK): selects across the rows of dim b"},
    {R"(%0 = Input "x" : f32[3*b] %1 = Cumulate(%0) {axis=0, op="mul"} output "y" = %1)",
     "%1 (Cumulate): accumulates across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = LayerNorm(%0, %0, %0) {epsilon=1e-5} output "y" = %1)",
     "%1 (LayerNorm): normalises across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = RmsNorm(%0, %0) {epsilon=1e-5} output "y" = %1)",
     "%1 (RmsNorm): normalises across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Contract(%0, %0) {spec="ka,kc->ac"} output "y" = %1)",
     "%1 (Contract): sums across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = Contract(%0, %0) {spec="a,c->ac"} output "y" = %1)",
     "%1 (Contract): pairs each row of dim b of operand 0 with every row of operand 1"},
    {R"(%0 = Input "x" : f32[b, 3, 5] %1 = IndexMap(%0) {map=map[3, b, 5]($1, $0, $2)} %2 = Input "w" : f32[2, s, 3]
        %3 = IndexMap(%2) {map=map[2, b, 3]($0, 0, $2)}
        %4 = Conv(%1, %3) {strides=[1], dilations=[1], begin=shape[0], out=shape[3]} output "y" = %4)",
     "%4 (Conv): sums across the rows of dim b"},
    {R"(%0 = Input "x" : f32[3, 4, 5] %1 = Input "w" : f32[b, 4, 3]
        %2 = Conv(%0, %1) {strides=[1], dilations=[1], begin=shape[0], out=shape[3]} output "y" = %2)",
     "%2 (Conv): sums across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4, 5] %1 = Parameter "w" : f32[2, 4, 3]
        %2 = Conv(%0, %1) {strides=[1], dilations=[1], begin=shape[b - 1], out=shape[3]} output "y" = %2)",
     "%2 (Conv): begin, [b - 1], varies with the size of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[4, 2, b]($2, $0)}
        %2 = Pool(%1) {mode="max", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[3]} output "y" = %2)",
     "%2 (Pool): slides its window across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4, 5]
        %1 = Pool(%0) {mode="mean", kernel=[2], strides=[2], dilations=[1], begin=shape[0], out=shape[3], counted=shape[b]}
        output "y" = %1)",
     "%1 (Pool): counted, [b], varies with the size of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Attention(%0, %0, %0) output "y" = %1)",
     "%1 (Attention): attends across the rows of dim b"},
    {R"(%0 = Input "q" : f32[b, 4] %1 = Parameter "k" : f32[5, 4] %2 = Attention(%0, %1, %1) {causal=true}
        output "y" = %2)",
     "%2 (Attention): attends across the rows of dim b"},
    {R"(%0 = Input "q" : f32[5, 4] %1 = Input "x" : f32[b, 4] %2 = Attention(%0, %1, %1) output "y" = %2)",
     "%2 (Attention): attends across the rows of dim b"},
    {R"(%0 = Input "q" : f32[5, 4] %1 = Input "m" : bool[b, 5] %2 = IndexMap(%1) {map=map[5, b]($1, $0)}
        %3 = Input "x" : f32[b, 4] %4 = Attention(%0, %3, %3, %2) output "y" = %4)",
     "%4 (Attention): attends across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "ids" : i32[b] %2 = Gather(%0, %1) {axis=0} output "y" = %2)",
     "%2 (Gather): selects by index across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "ids" : i32[2] %2 = Gather(%0, %1) {axis=0} output "y" = %2)",
     "%2 (Gather): selects by index across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "ids" : i32[b] %2 = Gather(%0, %1) {axis=1} output "y" = %2)",
     "%2 (Gather): pairs each row of dim b of operand 0 with every row of operand 1"},
    {R"(%0 = Parameter "t" : f32[7, 3] %1 = Input "ids" : i32[b] %2 = Input "u" : f32[b, 3]
        %3 = Scatter(%0, %1, %2) {axis=0, mode="add"} output "y" = %3)",
     "%3 (Scatter): writes by index across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 3] %1 = Input "ids" : i32[2] %2 = Input "u" : f32[2, 3]
        %3 = Scatter(%0, %1, %2) {axis=0, mode="set"} output "y" = %3)",
     "%3 (Scatter): writes by index across the rows of dim b"},
    {R"(%0 = Input "x" : f32[9, 4] %1 = Input "ids" : i64[b] %2 = Input "u" : f32[b, 4]
        %3 = Scatter(%0, %1, %2) {axis=0, mode="mul"} output "y" = %3)",
     "%3 (Scatter): writes by index across the rows of dim b"},
    {R"(%0 = Parameter "t" : f32[9, 4] %1 = Input "ids" : i64[s] %2 = Input "offsets" : i32[b]
        %3 = EmbeddingBag "bag"(%0, %1, %2) {mode="sum"} output "y" = %3)",
     "\"bag\" (EmbeddingBag): its offsets count ids across the rows of dim b"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Iota {axis=0, dtype=f32, shape=shape[b, 4]} %2 = Add(%0, %1) output "y" = %2)",
     "%1 (Iota): counts the rows of dim b"},
    {R"(%0 = Input "x" : u32[b, 4] %1 = Input "seed" : u64[] %2 = RandomBits(%1) {shape=shape[b, 4]}
        %3 = Xor(%0, %2) output "y" = %3)",
     "%2 (RandomBits): numbers its words across the rows of dim b"},
    // The number of rows as a value.
    {R"(%0 = Input "x" : f32[b] %1 = Iota {axis=0, dtype=f32, shape=shape[b + 1]} %2 = IndexMap(%1) {map=map[](b)}
        %3 = IndexMap(%2) {map=map[b]()} %4 = Div(%0, %3) output "y" = %4)",
     "%1 (Iota): axis 0 has size b + 1, not a number of elements for each row of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = Iota {axis=0, dtype=f32, shape=shape[65]} %2 = IndexMap(%1) {map=map[](b)}
        %3 = IndexMap(%2) {map=map[b]()} %4 = Div(%0, %3) output "y" = %4)",
     "%2 (IndexMap): coordinate 0, b, varies with the size of dim b"},
    {R"(%0 = Input "x" : f32[b, 64] %1 = IndexMap(%0) {map=map[b, 1]($0, b - 1)} output "y" = %1)",
     "%1 (IndexMap): coordinate 1, b - 1, varies with the size of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = Parameter "t" : f32[64] %2 = IndexMap(%1) {map=map[b]($0)} %3 = Add(%0, %2)
        output "y" = %3)",
     "%2 (IndexMap): coordinate 0, $0, varies with the row of dim b"},
    {R"(%0 = Input "x" : f32[64*b] %1 = IndexMap(%0) {map=map[b](64*$0 + b - 1)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b"},
    // Movement between rows: transposes, slices, flips, shifts, pads, joins, copies.
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[4, b]($1, $0)} output "y" = %1)",
     "output \"y\": has its rows of dim b on axis 1; they must be on axis 0"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[4](0, $0)} output "y" = %1)",
     "%1 (IndexMap): takes single rows of dim b: its result, [4], has none"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[b, 4](0, $1)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b: coordinate 0 is 0"},
    {R"(%0 = Input "x" : f32[2*b] %1 = IndexMap(%0) {map=map[b]($0)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b: coordinate 0 is $0"},
    {R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {map=map[b](b - $0 - 1)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[b]($0 - 1)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b: coordinate 0 is $0 - 1"},
    {R"(%0 = Input "x" : f32[3*b] %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[b, 5](3*$0 + $1 - 1)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b: coordinate 0 is 3*$0 + $1 - 1"},
    {R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[b + 2]($0 - 1)} output "y" = %1)",
     "%1 (IndexMap): axis 0 has size b + 2, not a number of elements for each row of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[2*b]($0)} output "y" = %1)",
     "%1 (IndexMap): may read another row of dim b: coordinate 0 is $0"},
    {R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {map=map[b, b]($1)} output "y" = %1)",
     "%1 (IndexMap): axes 0 and 1 of [b, b] both have dim b; rows are on one"},
    // Splits and merges that separate elements of one row.
    {R"(%0 = Input "x" : f32[6*b] %1 = IndexMap(%0) {map=map[6, b](b*$0 + $1)} %2 = IndexMap(%1) {map=map[b, 6]($1, $0)}
        output "y" = %2)",
     "%1 (IndexMap): may read another row of dim b"},
    {R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {map=map[floordiv(b, 2), 2](2*$0 + $1)} output "y" = %1)",
     "%1 (IndexMap): axis 0 has size floordiv(b, 2), not a number of elements for each row"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = IndexMap(%0) {map=map[4, b]($1, $0)}
        %2 = IndexMap(%1) {map=map[4*b](floordiv($0, b), mod($0, b))} output "y" = %2)",
     "%2 (IndexMap): "},
    {R"(%0 = Input "x" : f32[b, 4, s] %1 = IndexMap(%0) {map=map[4*b, s](mod($0, b), floordiv($0, b), $1)}
        output "y" = %1)",
     "%1 (IndexMap): "},
    // Inputs, outputs and dims.
    {R"(%0 = Input "x" : f32[4, b] %1 = SumReduce(%0) {axes=[0]} output "y" = %1)",
     "\"x\" (Input): has dim b on axis 1; rows must be on axis 0"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "z" : f32[b + 1] output "y" = %0)",
     "\"z\" (Input): axis 0 has size b + 1"},
    {R"(%0 = Input "x" : f32[b, 4] %1 = Input "z" : f32[b, b] output "y" = %0)",
     "\"z\" (Input): axes 0 and 1 of [b, b] both have dim b"},
    {R"(%0 = Input "x" : f32[b*b] output "y" = %0)", "\"x\" (Input): axis 0 has size b*b"},
    {R"(%0 = Input "x" : f32[b, 4] output "y" = %0)", "no input has rows of dim s", "s"},
    {R"(%0 = Input "x" : f32[b, s] output "y" = %0)", "\"x\" (Input): has dim s on axis 1", "s"},
    {R"(%0 = Parameter "q" : f32[5, 4, 5] %1 = Input "k" : f32[16*b, 2, 5] %2 = Parameter "t" : i32[4, 2]
        %3 = Parameter "s" : i32[5] %4 = PagedAttention(%0, %1, %1, %2, %3, %3) {block=16} output "y" = %4)",
     "%4 (PagedAttention): attends across the rows of dim b"},
    {R"(%0 = Input "q" : f32[b, 4, 5] %1 = Parameter "k" : f32[64, 2, 5] %2 = Parameter "t" : i32[4, 2]
        %3 = Input "s" : i32[b] %4 = Parameter "p" : i32[1] %5 = IndexMap(%4) {map=map[b](0)}
        %6 = PagedAttention(%0, %1, %1, %2, %5, %3) {block=16} %7 = StateRead "r" : f32[s]
        %8 = Input "i" : i32[b] %9 = Gather(%7, %8) {axis=0} output "y" = %6 output "z" = %9)",
     "\"r\" (StateRead): is a state, which all calls share"},
    {R"(%0 = Input "x" : f32[b, 4] output "y" = %0)",
     "\"c\" is not a dim of the graph; its dims: b, s, f", "c"},
};

TEST(RowIndependenceTest, Proves) {
  std::mt19937 rng(1);
  for (const Case& c : kIndependent) {
    const Graph graph = GraphOf(c.body);
    const RowProof proof = ProveRowIndependent(graph, c.dim);
    EXPECT_TRUE(proof.independent) << proof.reason << "\n" << c.body;
    EXPECT_EQ(proof.reason, "") << c.body;
    if (!proof.independent) continue;
    ASSERT_EQ(proof.inputs.size(), graph.InputIds().size());
    ASSERT_EQ(proof.outputs.size(), graph.outputs.size());
    for (int64_t b : {1, 2, 7}) {
      for (int64_t s : {1, 3}) {
        EXPECT_EQ(TryRandomRows(graph, c.dim, proof, {{"b", b}, {"s", s}, {"f", 4}}, rng),
                  absl::OkStatus())
            << c.body << " b = " << b << " s = " << s;
      }
    }
  }
}

TEST(RowIndependenceTest, Refuses) {
  for (const Case& c : kRefused) {
    const RowProof proof = ProveRowIndependent(GraphOf(c.body), c.dim);
    EXPECT_FALSE(proof.independent) << c.body;
    EXPECT_NE(proof.reason.find(c.reason), std::string::npos)
        << c.body << "\nwas refused because of " << proof.reason << "\nnot of " << c.reason;
    EXPECT_TRUE(proof.inputs.empty() && proof.outputs.empty()) << c.body;
  }
}

TEST(RowIndependenceTest, EveryOpKeepsRowsApartSomewhereAndWhatCanMixThemIsRefused) {
  std::set<Op> kept, blamed;
  for (const Case& c : kIndependent) kept.merge(OpsOf(GraphOf(c.body)));
  for (const Case& c : kRefused) {
    for (const OpRow& row : OpTable()) {
      if (c.reason.find(absl::StrCat("(", std::string(row.name), ")")) != std::string::npos) {
        blamed.insert(row.op);
      }
    }
  }
  for (const OpRow& row : OpTable()) {
    // The ElementwiseOpsInEveryDType test covers the others.
    const bool elementwise = row.op_class == OpClass::kElementwise || row.op == Op::kSigmoid ||
                             row.op == Op::kGelu || row.op == Op::kSilu || row.op == Op::kRelu;
    const bool fixed = row.op == Op::kParameter || row.op == Op::kConstant;
    // States are refused where they are read.
    EXPECT_TRUE(elementwise || IsState(row.op) || kept.contains(row.op)) << row.name;
    EXPECT_TRUE(elementwise || fixed || IsStateWrite(row.op) || blamed.contains(row.op))
        << row.name;
  }
}

TEST(RowIndependenceTest, SaysWhereRowsAre) {
  const Graph graph = GraphOf(R"(%0 = Input "x" : f32[2*b, s] %1 = Input "z" : f32[s]
      %2 = IndexMap(%0) {map=map[2*b*s](floordiv($0, s), mod($0, s))} output "y" = %2 output "z" = %1)");
  const RowProof proof = ProveRowIndependent(graph, "b");
  ASSERT_TRUE(proof.independent) << proof.reason;
  EXPECT_EQ(proof.inputs[0].axis, 0);
  EXPECT_EQ(proof.inputs[0].per_row, Expr(2));
  EXPECT_FALSE(proof.inputs[1].any());
  EXPECT_EQ(proof.outputs[0].axis, 0);
  EXPECT_EQ(proof.outputs[0].per_row, 2 * Expr::Symbol("s"));
  EXPECT_FALSE(proof.outputs[1].any());
}

// Tests each elementwise op in each dtype that it takes, with one and with three elements per row.
TEST(RowIndependenceTest, ElementwiseOpsInEveryDType) {
  std::mt19937 rng(2);
  for (const OpRow& row : OpTable()) {
    const bool activation =
        row.op == Op::kSigmoid || row.op == Op::kGelu || row.op == Op::kSilu || row.op == Op::kRelu;
    if (row.op_class != OpClass::kElementwise && !activation) continue;
    int tried = 0;
    for (const DTypeRow& dtype : kDTypes) {
      for (int per_row : {1, 3}) {
        Graph graph;
        graph.dims = {{"b", 1, 9}};
        GraphBuilder builder(&graph);
        std::vector<NodeId> operands;
        for (int i = 0; i < row.min_inputs; ++i) {
          const DType own = row.op == Op::kSelect && i == 0 ? DType::kBool : dtype.dtype;
          const TensorType type{own, {per_row * Expr::Symbol("b"), 2}};
          operands.push_back(builder.Input(absl::StrCat("x", i), type).value());
        }
        Attrs attrs;
        if (row.op == Op::kShift) attrs["direction"] = std::string("left");
        if (row.op == Op::kCast || row.op == Op::kBitcast) attrs["dtype"] = dtype.dtype;
        const absl::StatusOr<NodeId> y = builder.Add(row.op, operands, attrs);
        if (!y.ok()) continue;
        builder.Output("y", *y);
        const RowProof proof = ProveRowIndependent(graph, "b");
        ASSERT_TRUE(proof.independent) << proof.reason;
        EXPECT_EQ(proof.outputs[0].per_row, Expr(per_row));
        EXPECT_EQ(TryRandomRows(graph, "b", proof, {{"b", 5}}, rng, 100), absl::OkStatus())
            << row.name;
        ++tried;
      }
    }
    EXPECT_GT(tried, 0) << row.name;
  }
}

// The trial, which the other tests rely on, detects wrong proofs.
TEST(RowIndependenceTest, TrialFindsWrongProofs) {
  std::mt19937 rng(3);
  for (
      const char* body :
      {R"(%0 = Input "x" : f32[b, 4] %1 = Softmax(%0) {axis=0} output "y" = %1)",
       R"(%0 = Input "x" : i32[b] %1 = Iota {axis=0, dtype=i32, shape=shape[b]} %2 = Add(%0, %1) output "y" = %2)",
       R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {map=map[b](b - $0 - 1)} output "y" = %1)",
       R"(%0 = Input "x" : f32[b] %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[b]($0 - 1)} output "y" = %1)"}) {
    const Graph graph = GraphOf(body);
    ASSERT_FALSE(ProveRowIndependent(graph, "b").independent);
    RowProof wrong;
    wrong.independent = true;
    wrong.inputs = wrong.outputs = {{0, 1}};
    EXPECT_EQ(TryRandomRows(graph, "b", wrong, {{"b", 6}, {"s", 2}, {"f", 4}}, rng).code(),
              absl::StatusCode::kInternal)
        << body;
  }
}

}  // namespace
}  // namespace athanor
