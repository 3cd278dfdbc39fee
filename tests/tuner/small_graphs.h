// Small graphs of every shape that matters to rewriting, fusion and schedules: chains, diamonds,
// recurrences, repeated bodies, reductions between maps, contractions, tables, masks, low
// precision.
#ifndef ATHANOR_TESTS_TUNER_SMALL_GRAPHS_H_
#define ATHANOR_TESTS_TUNER_SMALL_GRAPHS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Bodies of graphs; each has dims b and s, both in [1, 64].
inline constexpr const char* kSmallGraphs[] = {
    // A chain, a diamond, and both again with outputs inside.
    R"(%0 = Input "x" : f32[b, s] %1 = Exp(%0) %2 = Tanh(%1) %3 = Sqrt(%1) output "y" = %3
       output "z" = %2)",
    R"(%0 = Input "x" : f32[b, s] %1 = Input "y" : f32[b, s] %2 = Add(%0, %1) %3 = Exp2(%2)
       %4 = Sin(%2) %5 = Mul(%3, %0) %6 = Add(%5, %4) output "w" = %6)",
    R"(%0 = Input "x" : f32[b, 19] %1 = Exp(%0) %2 = Add(%1, %0) %3 = Mul(%2, %1) %4 = Max(%3, %0)
       %5 = Mul(%4, %2) output "y" = %5 output "m" = %3)",
    // Reductions next to maps.
    R"(%0 = Input "x" : f32[b, 37] %1 = Softmax(%0) {axis=1} %2 = Tanh(%1) output "y" = %2)",
    R"(%0 = Input "x" : f32[b, s, 24] %1 = Parameter "g" : f32[24] %2 = Parameter "o" : f32[24]
       %3 = LayerNorm(%0, %1, %2) {epsilon=1e-5} %4 = RmsNorm(%3, %1) {epsilon=1e-5}
       %5 = Add(%4, %0) output "y" = %5)",
    R"(%0 = Input "x" : f32[b, 33] %1 = SumReduce(%0) {axes=[1]} %2 = Sqrt(%1) %3 = Recip(%2)
       %4 = IndexMap(%3) {map=map[b, 33]($0)} %5 = Mul(%0, %4) output "y" = %5 output "r" = %3)",
    R"(%0 = Input "x" : f64[b, 9, s] %1 = MaxReduce(%0) {axes=[0, 2]} %2 = Exp(%0)
       %3 = SumReduce(%2) {axes=[2]} output "m" = %1 output "s" = %3)",
    // Layers that would rather have their stream in another order of axes: attention over heads,
    // with an output inside; contractions along the wrong axis, of a value with several uses.
    R"(%0 = Input "x" : f32[b, s, 4, 8] %1 = IndexMap(%0) {map=map[b, 4, s, 8]($0, $2, $1, $3)}
       %2 = Attention(%1, %1, %1) {scale=0.5} %3 = IndexMap(%2) {map=map[b, s, 4, 8]($0, $2, $1, $3)}
       %4 = Add(%0, %3) %5 = IndexMap(%4) {map=map[b, 4, s, 8]($0, $2, $1, $3)}
       %6 = Attention(%5, %5, %5) {scale=0.5} %7 = IndexMap(%6) {map=map[b, s, 4, 8]($0, $2, $1, $3)}
       %8 = Add(%4, %7) %9 = IndexMap(%8) {map=map[b, 4, s, 8]($0, $2, $1, $3)}
       %10 = Attention(%9, %9, %9) {scale=0.5}
       %11 = IndexMap(%10) {map=map[b, s, 4, 8]($0, $2, $1, $3)} %12 = Add(%8, %11)
       %13 = Tanh(%12) output "y" = %13 output "h" = %8)",
    R"(%0 = Input "x" : f32[b, 1, s] %1 = Input "z" : f32[b, s, s] %2 = Exp(%0)
       %3 = Contract(%2, %1) {spec="bmk,bnk->bmn"} %4 = Tanh(%3)
       %5 = Contract(%1, %4) {spec="bnk,bmk->bmn"} %6 = Add(%5, %4)
       %7 = IndexMap(%6) {map=map[b, s, 1]($0, $2, $1)} %8 = Exp(%7)
       %9 = Contract(%4, %8) {spec="bmk,bkn->bmn"} output "y" = %9 output "t" = %7)",
    // Contractions with ops before and after.
    R"(%0 = Input "x" : f32[b, 40] %1 = Parameter "w" : f32[40, 50] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Parameter "o" : f32[50] %4 = IndexMap(%3) {map=map[b, 50]($1)} %5 = Add(%2, %4)
       %6 = Gelu(%5) output "y" = %6)",
    R"(%0 = Input "x" : f32[b, 31] %1 = Exp(%0) %2 = Parameter "w" : f32[31, 17]
       %3 = Contract(%1, %2) {spec="bk,kn->bn"} %4 = Tanh(%3) %5 = Parameter "v" : f32[17, 31]
       %6 = Contract(%4, %5) {spec="bk,kn->bn"} %7 = Add(%6, %1) output "y" = %7)",
    R"(%0 = Input "x" : f32[b, 20, 8] %1 = Input "z" : f32[b, 8, s] %2 = Contract(%0, %1) {spec="bik,bkj->bij"}
       %3 = Silu(%2) %4 = IndexMap(%3) {map=map[b, s, 20]($0, $2, $1)} output "y" = %4)",
    R"(%0 = Input "x" : f32[s, b] %1 = Input "z" : f32[s, 21] %2 = Contract(%0, %1) {spec="kb,kn->nb"}
       %3 = Max(%2, %2) %4 = Add(%2, %3) output "y" = %4)",
    R"(%0 = Input "x" : bf16[b, 64] %1 = Parameter "w" : bf16[64, 32] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Exp(%2) %4 = Softmax(%2) {axis=1} %5 = Add(%3, %4) output "y" = %5)",
    R"(%0 = Input "x" : f32[b, 96] %1 = Parameter "w" : f32[96, 48] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = IndexMap(%2) {map=map[b, 4, 12]($0, 12*$1 + $2)} %4 = Mul(%3, %3) %5 = SumReduce(%4) {axes=[2]}
       output "h" = %3 output "n" = %5)",
    R"(%0 = Input "x" : i32[b, 13] %1 = Input "w" : i32[13, 7] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Mul(%2, %2) %4 = LessThan(%2, %3) %5 = Select(%4, %2, %3) output "y" = %5)",
    // Attention, whole and with its neighbours.
    R"(%0 = Input "q" : f32[b, 2, s, 16] %1 = Input "k" : f32[b, 2, s, 16] %2 = Input "v" : f32[b, 2, s, 16]
       %3 = Attention(%0, %1, %2) {causal=true} %4 = IndexMap(%3) {map=map[b, s, 32]($0, floordiv($2, 16), $1, mod($2, 16))}
       %5 = Tanh(%4) output "y" = %5)",
    // Movement and tables.
    R"(%0 = Parameter "t" : f32[100, 12] %1 = Input "ids" : i64[b] %2 = Gather(%0, %1) {axis=0}
       %3 = Input "p" : f32[b, 12] %4 = Add(%2, %3) %5 = Softmax(%4) {axis=1} output "y" = %5 output "e" = %2)",
    R"(%0 = Input "x" : f32[b, s] %1 = IndexMap(%0) {map=map[s, b]($1, $0)} %2 = Exp(%1)
       %3 = IndexMap(%2) {map=map[b, s]($1, $0)} %4 = Mul(%3, %0) output "y" = %4 output "t" = %2)",
    R"(%0 = Input "x" : f32[b, 10] %1 = IndexMap(%0) {fill=f32[] {0.5}, map=map[b, 14]($0, $1 - 2)}
       %2 = Tanh(%1) %3 = SumReduce(%2) {axes=[1]} output "y" = %3 output "p" = %1)",
    // Recurrences and repeated bodies.
    R"(%0 = Input "x" : f32[b, 11] %1 = Sin(%0) %2 = Exp2(%1) %3 = Sin(%1) %4 = Exp2(%3) %5 = Sin(%3)
       %6 = Exp2(%5) output "a" = %2 output "b" = %4 output "c" = %6 output "x" = %5)",
    R"(%0 = Input "x" : f32[b, 12] %1 = Constant {value=f32[] {1.5}} %2 = IndexMap(%1) {map=map[b, 12]()}
       %3 = Constant {value=f32[] {0.25}} %4 = IndexMap(%3) {map=map[b, 12]()}
       %5 = Constant {value=f32[] {-3.0}} %6 = IndexMap(%5) {map=map[b, 12]()} %7 = Mul(%0, %2)
       %8 = Mul(%7, %4) %9 = Mul(%8, %6) %10 = Add(%9, %0) output "y" = %10 output "z" = %9)",
    R"(%0 = Input "x" : f32[b, 16] %1 = Mul(%0, %0) %2 = Constant {value=f32[] {2.0}} %3 = IndexMap(%2) {map=map[b, 16]()}
       %4 = Add(%1, %3) %5 = Log2(%4) %6 = Mul(%5, %3) %7 = Mul(%6, %3) %8 = Constant {value=f32[] {0.25}}
       %9 = IndexMap(%8) {map=map[b, 16]()} %10 = Mul(%7, %9) %11 = Exp2(%10) %12 = Add(%11, %3) %13 = Log2(%12)
       %14 = Mul(%13, %3) %15 = Mul(%14, %9) %16 = Exp2(%15) output "y" = %11 output "z" = %16)",
    R"(%0 = Input "x" : f32[b, 16] %1 = Parameter "w" : f32[16, 16] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Tanh(%2) %4 = Add(%3, %0) %5 = Contract(%4, %1) {spec="bk,kn->bn"} %6 = Tanh(%5) %7 = Add(%6, %4)
       %8 = Contract(%7, %1) {spec="bk,kn->bn"} %9 = Tanh(%8) %10 = Add(%9, %7) output "m" = %4 output "y" = %10)",
    R"(%0 = Input "x" : f32[b, 10] %1 = Iota {axis=1, dtype=f32, shape=shape[b, 10]} %2 = Sin(%1)
       %3 = Mul(%0, %2) %4 = Iota {axis=1, dtype=f32, shape=shape[b, 10]} %5 = Sin(%4) %6 = Mul(%3, %5)
       %7 = Add(%6, %0) output "y" = %7)",
    // Outputs that are inputs, literals, views and each other.
    R"(%0 = Input "x" : f32[b, s] %1 = Constant {value=f32[3] {1.0, 2.0, -0.0}} %2 = Exp(%0)
       %3 = IndexMap(%0) {map=map[s, b]($1, $0)} output "x" = %0 output "c" = %1 output "y" = %2 output "v" = %3
       output "z" = %2)",
    // Slice and pad, stack, running sum, variance.
    R"(%0 = Input "x" : f32[b, 15] %1 = IndexMap(%0) {map=map[b, 7]($0, 2*$1 + 1)}
       %2 = IndexMap(%1) {fill=f32[] {0.0}, map=map[b, 15]($0, $1 - 4)} %3 = Add(%2, %0) output "y" = %3)",
    R"(%0 = Input "x" : f32[b, 9] %1 = Input "z" : f32[b, 9] %2 = Exp(%1)
       %3 = IndexMap(%0) {fill=f32[] {0.0}, map=map[b, 2, 9]($0 + 64*$1, $2)}
       %4 = IndexMap(%2) {fill=f32[] {0.0}, map=map[b, 2, 9]($0 + 64*$1 - 64, $2)} %5 = Add(%3, %4)
       %6 = SumReduce(%5) {axes=[2]} output "y" = %5 output "s" = %6)",
    R"(%0 = Input "x" : f32[b, 13] %1 = Iota {axis=0, dtype=i32, shape=shape[13, 13]}
       %2 = Iota {axis=1, dtype=i32, shape=shape[13, 13]} %3 = LessThan(%2, %1) %4 = Cast(%3) {dtype=f32}
       %5 = Contract(%0, %4) {spec="bk,nk->bn"} %6 = Add(%5, %0) output "y" = %6)",
    R"(%0 = Input "x" : f32[b, 21] %1 = SumReduce(%0) {axes=[1]} %2 = Constant {value=f32[] {0.047619048}}
       %3 = IndexMap(%2) {map=map[b]()} %4 = Mul(%1, %3) %5 = Constant {value=f32[] {-1.0}} %6 = IndexMap(%5) {map=map[b]()}
       %7 = Mul(%4, %6) %8 = IndexMap(%7) {map=map[b, 21]($0)} %9 = Add(%0, %8) %10 = Mul(%9, %9)
       %11 = SumReduce(%10) {axes=[1]} %12 = Mul(%11, %3) %13 = Sqrt(%12) output "v" = %12 output "d" = %13)",
    // Unary after binary over permuted and repeated operands, with reductions between.
    R"(%0 = Input "x" : f32[b, s] %1 = Input "z" : f32[s, b] %2 = IndexMap(%1) {map=map[b, s]($1, $0)}
       %3 = Mul(%0, %2) %4 = Exp2(%3) %5 = Recip(%4) %6 = MaxReduce(%5) {axes=[0]}
       %7 = IndexMap(%6) {map=map[b, s]($1)} %8 = Add(%5, %7) %9 = Sqrt(%8) output "y" = %9)",
    R"(%0 = Input "x" : f16[b, 18] %1 = Exp2(%0) %2 = Recip(%1) %3 = Mul(%2, %0) %4 = SumReduce(%3) {axes=[1]}
       output "y" = %3 output "s" = %4)",
    R"(%0 = Input "x" : bf16[b, 26] %1 = Mul(%0, %0) %2 = SumReduce(%1) {axes=[1]}
       %3 = Constant {value=bf16[] {0.01}} %4 = IndexMap(%3) {map=map[b]()} %5 = Add(%2, %4) %6 = Sqrt(%5)
       %7 = Recip(%6) %8 = IndexMap(%7) {map=map[b, 26]($0)} %9 = Mul(%0, %8) output "y" = %9)",
    // Contractions that share an operand, follow each other, read views.
    R"(%0 = Input "x" : f32[b, 24] %1 = Parameter "q" : f32[24, 16] %2 = Parameter "k" : f32[24, 16] %3 = Parameter "v" : f32[24, 8]
       %4 = Contract(%0, %1) {spec="bk,kn->bn"} %5 = Contract(%0, %2) {spec="bk,kn->bn"} %6 = Contract(%0, %3) {spec="bk,kn->bn"}
       %7 = Parameter "o" : f32[16] %8 = IndexMap(%7) {map=map[b, 16]($1)} %9 = Add(%4, %8) %10 = Mul(%9, %5)
       output "y" = %10 output "v" = %6)",
    R"(%0 = Input "x" : f32[b, 20] %1 = Parameter "g" : f32[20, 28] %2 = Parameter "u" : f32[20, 28] %3 = Contract(%0, %1) {spec="bk,kn->bn"}
       %4 = Silu(%3) %5 = Contract(%0, %2) {spec="bk,kn->bn"} %6 = Mul(%4, %5) %7 = Parameter "d" : f32[28, 20]
       %8 = Contract(%6, %7) {spec="bk,kn->bn"} %9 = Add(%8, %0) output "y" = %9)",
    R"(%0 = Input "x" : f32[b, 7] %1 = Parameter "w" : f32[13, 7] %2 = IndexMap(%1) {map=map[7, 13]($1, $0)}
       %3 = Contract(%0, %2) {spec="bk,kn->bn"} %4 = Parameter "v" : f32[13, 5] %5 = Contract(%3, %4) {spec="bk,kn->bn"}
       output "y" = %5)",
    R"(%0 = Input "x" : f32[1, s] %1 = Input "z" : f32[s, 1] %2 = Contract(%0, %1) {spec="mk,kn->mn"}
       %3 = Contract(%1, %0) {spec="mk,kn->mn"} output "y" = %2 output "o" = %3)",
    R"(%0 = Input "x" : f32[b, 6, 6, 3] %1 = IndexMap(%0) {map=map[b, 3, 3, 2, 2, 3]($0, 2*$1 + $3, 2*$2 + $4, $5)}
       %2 = Parameter "w" : f32[2, 2, 3, 8] %3 = Contract(%1, %2) {spec="bhwijc,ijco->bhwo"} %4 = Max(%3, %3)
       output "y" = %4)",
    R"(%0 = Input "x" : f16[b, 40] %1 = Parameter "w" : f16[40, 24] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Constant {value=f16[] {0.5}} %4 = IndexMap(%3) {map=map[b, 24]()} %5 = Mul(%2, %4) %6 = SumReduce(%5) {axes=[0]}
       output "y" = %5 output "s" = %6)",
    // Gather and scatter.
    R"(%0 = Input "x" : f32[17] %1 = Input "ids" : i64[b, s] %2 = Gather(%0, %1) {axis=0} %3 = Mul(%2, %2) output "y" = %3)",
    R"(%0 = Input "x" : f32[b, 30] %1 = Input "ids" : i32[4] %2 = Gather(%0, %1) {axis=1} %3 = Exp(%2)
       %4 = Scatter(%0, %1, %3) {axis=1, mode="set"} %5 = Tanh(%4) output "y" = %5)",
    R"(%0 = Input "x" : bf16[19, 6] %1 = Input "ids" : i64[b] %2 = Input "u" : bf16[b, 6]
       %3 = Scatter(%0, %1, %2) {axis=0, mode="add"} output "y" = %3)",
    R"(%0 = Input "x" : bool[b, 9] %1 = Input "ids" : i64[3] %2 = Input "u" : bool[b, 3]
       %3 = Scatter(%0, %1, %2) {axis=1, mode="set"} %4 = Not(%3) output "y" = %4)",
    // Masks: rows hidden whole, infinities that are not selected.
    R"(%0 = Input "x" : f32[b, 14] %1 = Input "m" : bool[b, 14] %2 = Constant {value=f32[] {-inf}}
       %3 = IndexMap(%2) {map=map[b, 14]()} %4 = Select(%1, %0, %3) %5 = MaxReduce(%4) {axes=[1]}
       %6 = Constant {value=f32[] {inf}} %7 = IndexMap(%6) {map=map[b, 14]()} %8 = Select(%1, %7, %0) output "m" = %5 output "y" = %8)",
    R"(%0 = Input "x" : i64[b, 8] %1 = MaxReduce(%0) {axes=[1]} %2 = IndexMap(%1) {map=map[b, 8]($0)} %3 = LessThan(%0, %2)
       %4 = Iota {axis=1, dtype=i64, shape=shape[b, 8]} %5 = Constant {value=i64[] {-8}} %6 = IndexMap(%5) {map=map[b, 8]()}
       %7 = Mod(%4, %6) %8 = Select(%3, %6, %7) %9 = MaxReduce(%8) {axes=[1]} output "i" = %9)",
    // The middle of a recommendation model: bags, pairwise products, and ops after them.
    R"(%0 = Parameter "t" : f32[50, 8] %1 = Input "ids" : i64[s] %2 = Input "offsets" : i32[b]
       %3 = EmbeddingBag(%0, %1, %2) {mode="sum"} %4 = Input "d" : f32[b, 8]
       %5 = IndexMap(%3) {fill=f32[] {0.0}, map=map[b, 2, 8]($0 + 64*$1, $2)}
       %6 = IndexMap(%4) {fill=f32[] {0.0}, map=map[b, 2, 8]($0 + 64*$1 - 64, $2)} %7 = Add(%5, %6)
       %8 = Contract(%7, %7) {spec="bid,bjd->bij"} output "y" = %8)",
};

inline absl::StatusOr<Graph> ParseSmallGraph(const char* body) {
  return ParseGraph(
      absl::StrCat("graph \"g\" {\n dim b in [1, 64]\n dim s in [1, 64]\n", body, "}"));
}

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_SMALL_GRAPHS_H_
