// Checks kernels, as a dialect prints them, against the reference evaluator: those of the golden
// files of compiler/codegen/cuda/testdata, and those of written_kernels_testing.h. A test says how
// the kernels of its dialect are launched.
//
//   for (const PrintedCheck& check : PrintedChecks()) check.run(launcher);
#ifndef ATHANOR_COMPILER_CODEGEN_PRINT_PRINTED_KERNELS_TESTING_H_
#define ATHANOR_COMPILER_CODEGEN_PRINT_PRINTED_KERNELS_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/value/tensor.h"

namespace athanor {

// Holds what a kernel records of its lowest failed item; zeros if none failed.
struct RecordedFailure {
  int64_t code = 0, item = 0, index = 0, extent = 0;
};

// Launches kernels of a dialect by their names: "relu_0" is the first of relu.kir, "memory_f32x1" a
// written one.
class PrintedLauncher {
 public:
  virtual ~PrintedLauncher() = default;
  // Runs a kernel on tensors, which receive what it writes, as a launch that does not know the
  // kernel. A launcher that cannot choose how many teams compute the items takes its own number.
  virtual RecordedFailure Run(const std::string& kernel, const std::vector<Tensor*>& tensors,
                              const std::vector<int64_t>& sizes, int64_t items, int64_t teams) = 0;
};

struct PrintedCheck {
  absl::string_view name;
  void (*run)(PrintedLauncher& launcher);
};
// Returns the checks of the golden files' kernels. They read these from the current folder.
absl::Span<const PrintedCheck> PrintedChecks();

// Checks the moves of every dtype.
void ExpectPrintedMoves(PrintedLauncher& launcher, bool f64 = true);

inline constexpr int kOperandRow = 201;  // elements that a kernel of WriteOps reads of its operands
// Runs a kernel for each i: on element i of `condition` and of each of `results`, and on row i of
// `operands`, of kOperandRow elements.
using RunElements = absl::FunctionRef<void(const std::string& kernel, Tensor& condition,
                                           Tensor& operands, std::vector<Tensor>& results)>;
// Checks all ops of a dtype at every element of two operands, and a third.
void ExpectPrintedOps(DType dtype, bool f64, RunElements run);

// Sorts places by their keys; of equal keys the lower place is first.
template <typename Key, typename Place>
void SortBy(const Key* keys, Place* places, int64_t n) {
  std::sort(places, places + n,
            [&](Place a, Place b) { return keys[a] < keys[b] || (keys[a] == keys[b] && a < b); });
}

// Returns the philox bits that a kernel has to draw from a seed: one for each item.
Tensor ExpectedRandomBits(uint64_t seed, int64_t items);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_PRINT_PRINTED_KERNELS_TESTING_H_
