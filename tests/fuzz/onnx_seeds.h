// Small ONNX models that together hold every op that is served, and what makes models more than
// nodes: sub-graphs, functions, external data, dims, types of less than a byte.
#ifndef ATHANOR_TESTS_FUZZ_ONNX_SEEDS_H_
#define ATHANOR_TESTS_FUZZ_ONNX_SEEDS_H_

#include <vector>

#include "proto/onnx/onnx.pb.h"

namespace athanor {

// A line of onnx_seed_nodes.inc that does not parse is a bug of that file and ends the program.
std::vector<::onnx::ModelProto> OnnxSeeds();

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_ONNX_SEEDS_H_
