// Imports an ONNX model as a graph, or returns every reason why it is refused.
//
//   std::vector<ImportRefusal> refusals;
//   absl::StatusOr<OnnxImported> imported = ImportOnnx(model, reader, options, &refusals);
//   if (!refusals.empty()) return ToStatus(refusals, 2 << 10);
//
// The result satisfies Verify, VerifyBindable and DimBinding::Create, as ImportGraph's does. The
// import never changes a dtype, shape or result silently: a model that is not understood exactly is
// refused.
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
  // Limit on the elements of all values with known contents together. Above it, only values of few
  // elements (kMaxFewElements) are known; above four times the limit, the import ends.
  int64_t max_known_elements = 1 << 18;
  int64_t max_unrolled_nodes = 50'000;  // nodes made by Loop, Scan and recurrent ops
  // ONNX nodes visited; functions and branches count each time.
  int64_t max_inlined_nodes = 200'000;
  int max_nesting = 16;  // nesting depth of sub-graphs and functions
  // Bytes of copied function nodes, with the attributes of their calls.
  int64_t max_copied_bytes = 32 << 20;
  int64_t max_refusals = 1'000;  // further refusals are only counted
};

struct ImportOptions {
  std::vector<DimGiven> dims;
  // By input: the only contents it accepts (carrier bytes); the input's attribute `value`.
  std::map<std::string, Tensor> values;
  std::optional<uint64_t> random_seed;
  std::function<bool()> cancelled;  // called now and then; true ends the import
  ImportLimits limits;
};

struct OnnxImported {
  Graph graph;
  std::vector<StoredTensor> parameters;  // tensors of graph.ParameterIds(), in order
  // In the order of graph.InputIds() and graph.outputs: "" or the name of an element type.
  std::vector<std::string> input_elements, output_elements;
  std::vector<std::string> notes;
};

// Reads only small tensors through `reader`. If there are refusals, the status is ToStatus of them;
// CANCELLED and RESOURCE_EXHAUSTED come without refusals.
absl::StatusOr<OnnxImported> ImportOnnx(const OnnxModel& model, const PayloadReader& reader,
                                        const ImportOptions& options,
                                        std::vector<ImportRefusal>* refusals);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_H_
