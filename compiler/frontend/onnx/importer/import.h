// An ONNX model as a graph of ours, or every reason why not.
//
//   std::vector<Refusal> refusals;
//   absl::StatusOr<OnnxImported> imported = ImportOnnx(model, reader, options, &refusals);
//   if (!refusals.empty()) return ToStatus(refusals, 2 << 10);
//
// What comes out satisfies Verify, VerifyBindable and DimBinding::Create, as ImportGraph's does.
// Never a silently different dtype, shape or result: what is not understood exactly is refused.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/model/dims.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/frontend/onnx/model/payload.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::onnx {

struct ImportLimits {
  GraphLimits graph;
  int64_t max_folded_bytes = 64 << 20;
  int64_t max_fold_work = 200'000'000;  // elements visited by folding
  // Of values whose contents are known, together: above it only those of few elements are
  // (kMaxFewElements), above four times as many the import ends.
  int64_t max_known_elements = 1 << 18;
  int64_t max_unrolled_nodes = 50'000;  // made by Loop, Scan and recurrent ops
  int64_t max_inlined_nodes = 200'000;  // ONNX nodes visited: functions and branches each time
  int max_nesting = 16;                 // of sub-graphs and functions
  int64_t max_copied_bytes = 32 << 20;  // of nodes of functions, with what their calls say
  int64_t max_refusals = 1'000;         // kept; those beyond are counted
};

struct ImportOptions {
  std::vector<DimGiven> dims;
  // By input: its only contents (carrier bytes); the input's attribute `value`.
  std::map<std::string, Tensor> values;
  std::optional<uint64_t> random_seed;
  std::function<bool()> cancelled;  // asked now and then; true ends the import
  ImportLimits limits;
};

struct OnnxImported {
  Graph graph;
  std::vector<StoredTensor> parameters;  // of graph.ParameterIds(), in order
  // In the order of graph.InputIds() and graph.outputs: "" or the name of an element type.
  std::vector<std::string> input_elements, output_elements;
  std::vector<std::string> notes;
};

// `reader` is asked for small tensors only. With refusals the status is ToStatus of them; CANCELLED
// and RESOURCE_EXHAUSTED come alone.
absl::StatusOr<OnnxImported> ImportOnnx(const OnnxModel& model, const PayloadReader& reader,
                                        const ImportOptions& options,
                                        std::vector<Refusal>* refusals);

// INVALID_ARGUMENT if any of them is, else UNIMPLEMENTED. The message has at most `bytes`: nodes
// are grouped by op, version and reason; every group is named, with as many of its nodes as fit and
// the number of the others.
absl::Status ToStatus(absl::Span<const Refusal> refusals, size_t bytes);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_H_
