#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {

Tensor SliceOf(const Tensor& tensor, int64_t at) {
  Tensor slice{tensor.dtype, {tensor.shape.begin() + 1, tensor.shape.end()}, {}};
  const size_t bytes = static_cast<size_t>(slice.elements()) * DTypeBytes(slice.dtype);
  slice.bytes = tensor.bytes.substr(static_cast<size_t>(at) * bytes, bytes);
  return slice;
}

absl::StatusOr<std::vector<Tensor>> RunScan(const ScanView& scan,
                                            absl::Span<const Tensor* const> operands,
                                            const Expr::Env& dims) {
  const std::optional<int64_t> length = scan.length.Evaluate(dims);
  if (!length || *length < 0) {
    return absl::InvalidArgumentError(absl::StrCat("its length ", scan.length.ToString(), " is ",
                                                   length ? absl::StrCat(*length) : "not a number",
                                                   " for these inputs"));
  }
  std::vector<Tensor> results;
  for (size_t o = 0; o < scan.body.outputs.size(); ++o) {
    if (static_cast<int>(o) < scan.states) {
      results.push_back(*operands[o]);
      continue;
    }
    const TensorType& type = scan.body.node(scan.body.outputs[o].node).type;
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(type.shape, dims);
    if (!shape.ok()) return shape.status();
    shape->insert(shape->begin(), *length);
    results.push_back(Tensor::Zeros(type.dtype, *std::move(shape)));
  }
  for (int64_t step = 0; step < *length; ++step) {
    const int64_t at = scan.reverse ? *length - 1 - step : step;
    std::vector<Tensor> inputs = {Tensor::Of<int64_t>(DType::kI64, {}, {step})};
    for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
      if (i < scan.states) {
        inputs.push_back(results[i]);
      } else {
        inputs.push_back(i < scan.states + scan.scanned ? SliceOf(*operands[i], at) : *operands[i]);
      }
    }
    absl::StatusOr<std::vector<Tensor>> outputs = Evaluate(scan.body, inputs, &dims);
    if (!outputs.ok()) {
      return absl::Status(outputs.status().code(),
                          absl::StrCat("step ", step, ": ", outputs.status().message()));
    }
    for (size_t o = 0; o < results.size(); ++o) {
      if (static_cast<int>(o) < scan.states) {
        results[o] = std::move((*outputs)[o]);
      } else {
        const std::string& bytes = (*outputs)[o].bytes;
        std::copy(bytes.begin(), bytes.end(), results[o].bytes.begin() + at * bytes.size());
      }
    }
  }
  return results;
}

absl::Status ReferenceScan(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  const ScanView scan = ViewScan(attrs, inputs.size());
  absl::StatusOr<std::vector<Tensor>> results = RunScan(scan, inputs, dims);
  if (!results.ok()) return results.status();
  result->bytes = std::move((*results)[scan.result].bytes);
  return absl::OkStatus();
}

}  // namespace athanor
