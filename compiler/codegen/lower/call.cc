// Contractions that a GPU's library computes in a step of the plan: the kernel is the call.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/search/kernels/library_call.h"

namespace athanor {

absl::Status LowerCall(KernelBuilder& b) {
  const LowerInput& in = b.input;
  const auto& s = std::get<CallSchedule>(b.choice.contract);
  const std::string about = absl::StrCat(in.graph.Describe(b.choice.anchor), ": ");
  if (in.target.blas().empty() || !HasTeams(in.target)) {
    return absl::InternalError(absl::StrCat(about, "the target (device \"", in.target.device(),
                                            "\") has no library whose calls are steps"));
  }
  const std::optional<ProductCall> call =
      FindLibraryCall(in.graph, in.has_memory, b.choice.root, b.choice.anchor, s.swap);
  if (!call) {
    return absl::InternalError(absl::StrCat(about, "not a product of matrices that one call of ",
                                            in.target.blas(), " can compute"));
  }
  const auto matrix = [](int buffer, const CallMatrix& m) -> kir::Matrix {
    return {buffer, m.offset, m.stride, m.transposed, m.batch_stride};
  };
  const int left = b.at.AddBuffer(call->left.node, /*written=*/false);
  const int right = b.at.AddBuffer(call->right.node, /*written=*/false);
  const int bias = call->bias < 0 ? -1 : b.at.AddBuffer(call->bias, /*written=*/false);
  if (s.workspace > 0) b.emitter.Launch(DType::kU8, s.workspace);
  b.emitter.Call(matrix(b.out, call->result), matrix(left, call->left), matrix(right, call->right),
                 bias, {b.emitter.Simplify(call->rows), call->columns, call->sums, call->batch},
                 call->ways, s.proposal);
  return absl::OkStatus();
}

}  // namespace athanor
