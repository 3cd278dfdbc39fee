// Counts what one import costs, and ends it with RESOURCE_EXHAUSTED above the limits.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_BUDGET_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/frontend/onnx/importer/import.h"

namespace athanor::onnx {

class ImportBudget {
 public:
  explicit ImportBudget(const ImportOptions& options) : options_(options) {}

  // Counts a visit of a node. `nodes`: those of the graph so far. CANCELLED: the caller asked for
  // it, or `cancelled` is set.
  absl::Status CountVisit(size_t nodes, bool cancelled);
  // The same checks without a visit.
  absl::Status Check(size_t nodes, bool cancelled) const;
  // Counts the items of a graph or function besides nodes, for each visit.
  absl::Status CountLookedAt(int64_t count);
  // Counts bytes of nodes that are copied to fill in the attributes of a function's call.
  absl::Status CountCopied(size_t bytes);
  // Returns the largest number of elements of a value whose contents may still become known.
  int64_t MostKnown() const;
  // Counts elements whose contents are known from now on.
  void AddKnown(int64_t elements) { known_ += elements; }
  // Reports whether the known contents are within the limit; `node` and `op` made the last ones.
  absl::Status CheckKnown(std::string_view node, std::string_view op) const;
  void AddUnrolled(size_t nodes) { unrolled_ += static_cast<int64_t>(nodes); }
  int64_t unroll_left() const { return options_.limits.max_unrolled_nodes - unrolled_; }

 private:
  const ImportOptions& options_;
  int64_t visited_ = 0, looked_at_ = 0, unrolled_ = 0, copied_ = 0, known_ = 0;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_BUDGET_H_
