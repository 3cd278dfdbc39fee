// Turns lowered kernels into a plan: decides which values share memory, where each lies in the
// arena, and in which order steps run.
//
//   PlanInput in = ...;                                  // values, launches, outputs
//   absl::StatusOr<v1::Plan> plan =
//       MakePlan(in, [&](const kir::Kernel& k, const std::string&) { return PrintCpu(k, target);
//       });
//
// Pure function, thread-safe.
#ifndef ATHANOR_COMPILER_PLAN_PLANNER_H_
#define ATHANOR_COMPILER_PLAN_PLANNER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

// kWindow: a part of other values, placed by a loop. kLaunch: memory of one launch, which its
// kernel writes before it reads it. kState: a tensor that outlives the run; a launch may write it.
enum class ValueKind : uint8_t {
  kInput,
  kParameter,
  kConstant,
  kComputed,
  kWindow,
  kLaunch,
  kState
};

// A value with memory of its own.
struct PlanValue {
  ValueKind kind = ValueKind::kComputed;
  TensorType type;
  std::string name;     // kInput, kParameter, kState
  Tensor literal;       // kConstant
  bool zeroed = false;  // kLaunch: as kir::Buffer.zeroed
  std::string layout;   // kState: as v1::Buffer.layout
};

// A kernel launch; `buffers` are value indices in the order of the kernel's buffers but scratch.
// Those of Space::kLaunch are of ValueKind::kLaunch, and in no other launch.
struct PlanLaunch {
  kir::Kernel kernel;
  std::vector<int> buffers;
  std::string label;
  Expr flops, moved_bytes;
};

// Launches [first, end) that run `count` times; the other fields are values, as in v1::Loop.
struct PlanLoop {
  struct Slice {
    int buffer, of;
    bool reverse;
  };
  struct Carry {
    int initial, read, next, last, other;
  };
  int first = 0, end = 0;
  Expr count;
  std::vector<Slice> slices;
  std::vector<Carry> carries;
  int turn = -1;  // value with the iteration's number; -1: no step reads it
};

struct PlanInput {
  std::string kind;       // Plan.kind
  std::string signature;  // Plan.signature
  std::string graph_hash;
  std::vector<Dim> dims;
  std::vector<std::string> dim_names;  // names in requests, in the order of `dims`
  v1::Target target;
  std::vector<PlanValue> values;
  std::vector<PlanLaunch> launches;  // a topological order
  std::vector<PlanLoop> loops;       // outer loops before those inside them
  std::vector<std::pair<std::string, int>> outputs;
  // Returns the bytes of memory that a launch gives each team for a kernel's scratch.
  int64_t (*scratch_bytes)(const kir::Kernel& kernel) = [](const kir::Kernel& kernel) {
    return kernel.ScratchBytes();
  };
};

// Prints a kernel, which has this KirHash, as the text that is compiled.
using PrintKernel = std::function<std::string(const kir::Kernel& kernel, const std::string& hash)>;

// Makes the plan. Launches that need no input, no memory of their own and no library go to
// `prepare`; their results that `run` reads are PREPARED. Arena values whose lifetimes do not
// overlap share memory, at offsets fixed for the bucket's largest sizes. A launch may write over an
// operand that dies in it only if every work item reads no more of it than it writes. Values that a
// loop reads from outside, and values that it fills, live through all of its iterations.
// UNIMPLEMENTED: an output is a state, which would have to be copied.
absl::StatusOr<v1::Plan> MakePlan(const PlanInput& input, const PrintKernel& print);

// Returns what a kernel that is a library call asks of the library, but for the rows, which depend
// on dims.
v1::LibraryCall LibraryCallOf(const kir::Kernel& kernel);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PLAN_PLANNER_H_
