// Lowers a graph and one kernel choice to KIR.
//
//   absl::StatusOr<LoweredKernel> k = LowerKernel({graph, has_memory, target}, choice);
//   // k->kernel is the program; k->buffers[i] is the node behind buffer i, the root first; -1:
//   // memory of the launch
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_CODEGEN_LOWER_LOWER_H_
#define ATHANOR_COMPILER_CODEGEN_LOWER_LOWER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/lower/point.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct LoweredKernel {
  kir::Kernel kernel;
  std::vector<NodeId> buffers;
};

// Input of lowering besides the choice; borrowed for the call.
struct LowerInput {
  const Graph& graph;
  const std::vector<bool>& has_memory;  // true for leaves and the roots of all kernels
  const v1::Target& target;
};

// INTERNAL if the choice is impossible for this graph (a search must not offer it).
// RESOURCE_EXHAUSTED if sorting an axis would take more scratch than there can be.
absl::StatusOr<LoweredKernel> LowerKernel(const LowerInput& input, const KernelChoice& choice);

// A kernel under construction, shared by the lowerings of all kinds.
struct KernelBuilder {
  KernelBuilder(const LowerInput& input, const KernelChoice& choice);

  const LowerInput& input;
  const KernelChoice& choice;
  const Node& root;
  kir::Emitter emitter;
  PointLowering at;
  int out;  // the root's buffer: global buffer 0

  int LanesFor(int bytes) const { return LanesOf(input.target, bytes, choice.team); }
  Expr Item() const { return Expr::Symbol(kir::kGrid); }
  // Sets the number of work items; all index expressions from here on know it.
  void SetGrid(const Expr& items) {
    grid = items;
    emitter.bounds().SetExtent(kir::kGrid, items);
  }
  // Makes an item of each element of `extents`, and returns this item's coordinates; with
  // `registers` each in one, whose range needs no proof where it is used.
  Coordinates SplitItem(const std::vector<Expr>& extents, bool registers = false);
  // Stores the root's value at `coordinates`.
  void StoreRoot(const Coordinates& coordinates);
  // INTERNAL unless the root is an epilogue of the anchor.
  absl::Status CheckEpilogue() const;
  // Stores the root where the anchor is at `coordinates` and has this value. INTERNAL as
  // CheckEpilogue().
  absl::Status StoreEpilogue(const Coordinates& coordinates,
                             const std::function<kir::Var()>& value);
  LoweredKernel Finish() &&;

  Expr grid = 1;

 private:
  absl::Status NoEpilogue() const;
};

// Returns `flat`, in [0, product of extents), as coordinates; the first extent is the slowest.
Coordinates Delinearize(const Expr& flat, const std::vector<Expr>& extents);

// Lower one kind each; kRow, kPoint and kScatter are in lower.cc, kStateWrite in state_write.cc.
absl::Status LowerMap(KernelBuilder& b);
absl::Status LowerContract(KernelBuilder& b);
absl::Status LowerAttention(KernelBuilder& b);
absl::Status LowerPaged(KernelBuilder& b);
absl::Status LowerSort(KernelBuilder& b);
absl::Status LowerStateWrite(KernelBuilder& b);
// Lowers a contraction of a LibrarySchedule.
absl::Status LowerLibraryProduct(KernelBuilder& b);
// Lowers one of a CallSchedule: to a kernel that is a call (kir::CallOf).
absl::Status LowerCall(KernelBuilder& b);
// Lowers one of a TileSchedule whose threads multiply.
absl::Status LowerStaged(KernelBuilder& b);
// Lowers one of a TileSchedule of matrix instructions.
absl::Status LowerTensor(KernelBuilder& b);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_LOWER_LOWER_H_
