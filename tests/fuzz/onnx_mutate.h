// Changes to ONNX models that mean something: ops swapped, values rewired, sizes and versions
// changed, names that collide; what is left over to chance is Mutator's.
#ifndef ATHANOR_TESTS_FUZZ_ONNX_MUTATE_H_
#define ATHANOR_TESTS_FUZZ_ONNX_MUTATE_H_

#include <vector>

#include "absl/types/span.h"
#include "proto/onnx/onnx.pb.h"
#include "tests/fuzz/mutate.h"

namespace athanor {

// One to a few changes. Nodes, tensors and attributes of `donors` may be copied into `model`.
void MutateOnnx(absl::Span<const ::onnx::ModelProto* const> donors, Mutator* mutator,
                ::onnx::ModelProto* model);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_ONNX_MUTATE_H_
