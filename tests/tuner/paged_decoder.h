// A small decoder with states, for tests: rows T of sequences S, whose keys and values lie in
// blocks, and logits of the wanted rows R.
#ifndef ATHANOR_TESTS_TUNER_PAGED_DECODER_H_
#define ATHANOR_TESTS_TUNER_PAGED_DECODER_H_

namespace athanor {

// Has one layer: 4 query heads of width 16 over 2 of keys and values.
inline constexpr char kPagedDecoder[] = R"(graph "decoder" {
  dim T in [1, 64] dim S in [1, 8] dim B in [1, 8] dim R in [0, 64] dim N in [1, 4096]
  %0 = Input "ids" : i32[T]
  %1 = Input "sequence" : i32[T]
  %2 = Input "position" : i32[T]
  %3 = Input "table" : i32[S, B]
  %4 = Input "wanted" : i32[R]
  %5 = Parameter "embedding" : f32[50, 64]
  %6 = Parameter "gain" : f32[64]
  %7 = Parameter "wq" : f32[4, 16, 64]
  %8 = Parameter "wk" : f32[2, 16, 64]
  %9 = Parameter "wo" : f32[4, 16, 64]
  %10 = StateRead "k" {role="keys"} : f32[16*N, 2, 16]
  %11 = StateRead "v" {role="values"} : f32[16*N, 2, 16]
  %12 = Gather(%5, %0) {axis=0}
  %13 = RmsNorm(%12, %6) {epsilon=1e-5}
  %14 = Contract(%13, %7) {spec="tk,hdk->thd"}
  %15 = Contract(%13, %8) {spec="tk,hdk->thd"}
  %16 = Constant {value=i32[] {16}}
  %17 = IndexMap(%16) {map=map[T]()}
  %18 = FloorDiv(%2, %17)
  %19 = Iota {axis=1, dtype=i32, shape=shape[T, B]}
  %20 = IndexMap(%18) {map=map[T, B]($0)}
  %21 = LessThan(%19, %20)
  %22 = LessThan(%20, %19)
  %23 = Or(%21, %22)
  %24 = Gather(%3, %1) {axis=0}
  %25 = Constant {value=i32[] {0}}
  %26 = IndexMap(%25) {map=map[T, B]()}
  %27 = Select(%23, %26, %24)
  %28 = SumReduce(%27) {axes=[1]}
  %29 = Mul(%28, %17)
  %30 = Mod(%2, %17)
  %31 = Add(%29, %30)
  %32 = StateWrite "write_k"(%10, %31, %15)
  %33 = StateWrite "write_v"(%11, %31, %15)
  %34 = PagedAttention "a"(%14, %32, %33, %3, %1, %2) {block=16}
  %35 = Contract(%34, %9) {spec="thd,hdk->tk"}
  %36 = Add(%12, %35)
  %37 = Gather "rows"(%36, %4) {axis=0}
  %38 = RmsNorm(%37, %6) {epsilon=1e-5}
  %39 = Contract "logits"(%38, %5) {spec="rk,vk->rv"}
  output "logits" = %39
  update %32
  update %33
})";

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_PAGED_DECODER_H_
