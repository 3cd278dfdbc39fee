// Small ONNX models that together hold every op that is served, and everything besides nodes:
// sub-graphs, functions, external data, dims, types of less than a byte.
#ifndef ATHANOR_TESTS_FUZZ_ONNX_SEEDS_H_
#define ATHANOR_TESTS_FUZZ_ONNX_SEEDS_H_

#include <vector>

#include "proto/onnx/onnx.pb.h"

namespace athanor {

// Ends the program if a line of onnx_seed_nodes.inc does not parse, which is a bug of that file.
std::vector<::onnx::ModelProto> OnnxSeeds();

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_ONNX_SEEDS_H_
