#include "compiler/frontend/onnx/importer/import_budget.h"

#include "compiler/frontend/onnx/known/sizes.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr int64_t kNodesBetweenAsking = 64;
constexpr int64_t kLookedAtByNode = 64;  // per node that may be visited

}  // namespace

absl::Status ImportBudget::CountVisit(size_t nodes, bool cancelled) {
  ++visited_;
  return Check(nodes, cancelled);
}

absl::Status ImportBudget::Check(size_t nodes, bool cancelled) const {
  const ImportLimits& limits = options_.limits;
  if (visited_ > limits.max_inlined_nodes) {
    return absl::ResourceExhaustedError(
        Cat("the model has more than ", limits.max_inlined_nodes,
            " nodes, counting those of functions and branches each time they are used"));
  }
  // Counts nodes generously, since those that no output needs are dropped in the end.
  if (static_cast<int64_t>(nodes) > 4 * limits.graph.max_nodes) {
    return absl::ResourceExhaustedError(Cat("the model becomes more than ",
                                            4 * limits.graph.max_nodes,
                                            " nodes, unused ones included; for used ones ",
                                            LimitIs(limits.graph.max_nodes, "max_nodes")));
  }
  const bool asked = options_.cancelled && visited_ % kNodesBetweenAsking == 0;
  if (cancelled || (asked && options_.cancelled())) {
    return absl::CancelledError("the import was cancelled");
  }
  return absl::OkStatus();
}

absl::Status ImportBudget::CountLookedAt(int64_t count) {
  looked_at_ += count;
  const int64_t most = kLookedAtByNode * options_.limits.max_inlined_nodes;
  if (looked_at_ <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat("the model has more than ", most,
          " operands, results, attributes and initializers, counting those of functions and "
          "branches each time they are used"));
}

absl::Status ImportBudget::CountCopied(size_t bytes) {
  copied_ += static_cast<int64_t>(bytes);
  if (copied_ <= options_.limits.max_copied_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat("calls of functions make copies of more than ", options_.limits.max_copied_bytes,
          " bytes of their nodes; ", LimitIs(options_.limits.max_copied_bytes, "max_graph_bytes")));
}

int64_t ImportBudget::MostKnown() const {
  return known_ < options_.limits.max_known_elements ? kMaxKnownElements : kMaxFewElements;
}

absl::Status ImportBudget::CheckKnown(std::string_view node, std::string_view op) const {
  const int64_t most = 4 * options_.limits.max_known_elements;
  if (known_ <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat("node ", Quoted(node), " (", op,
          "): up to here the model computes constants and sizes of more than ", most,
          " elements, the limit of an import; store constants that are not shapes as "
          "initializers"));
}

}  // namespace athanor::onnx
