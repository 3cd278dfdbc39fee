// Makes meaningful changes to ONNX models: swaps ops, rewires values, changes sizes and versions,
// makes names collide. Mutator makes the random ones.
#ifndef ATHANOR_TESTS_FUZZ_ONNX_MUTATE_H_
#define ATHANOR_TESTS_FUZZ_ONNX_MUTATE_H_

#include <vector>

#include "absl/types/span.h"
#include "proto/onnx/onnx.pb.h"
#include "tests/fuzz/mutate.h"

namespace athanor {

// Makes one to a few changes. May copy nodes, tensors and attributes of `donors` into `model`.
void MutateOnnx(absl::Span<const ::onnx::ModelProto* const> donors, Mutator* mutator,
                ::onnx::ModelProto* model);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_ONNX_MUTATE_H_
