// Inputs of the fuzz targets: valid seeds, and changed copies of them.
//
//   Corpus corpus;
//   Mutator mutator(/*seed=*/7);
//   Input changed = corpus.Mutate(corpus.seeds()[0], &mutator);
//   std::string problem = corpus.Run(changed, &stats);
//
// Immutable, so thread-safe.
#ifndef ATHANOR_TESTS_FUZZ_CORPUS_H_
#define ATHANOR_TESTS_FUZZ_CORPUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/onnx/onnx.pb.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace athanor {

inline constexpr uint8_t kBundleTarget = 255;
inline constexpr uint8_t kCacheTarget = 254;
inline constexpr uint8_t kOnnxTarget = 253;
inline constexpr uint8_t kGgufTarget = 252;
inline constexpr uint8_t kSafetensorsTarget = 251;

// Target 0 is FuzzGraph, kBundleTarget FuzzBundle, kCacheTarget FuzzCacheFile, kOnnxTarget
// FuzzOnnx, kGgufTarget FuzzGguf, kSafetensorsTarget FuzzSafetensors; target 1 + i is FuzzRequest
// for seed graph i. A saved input is the target in one byte, then the bytes.
struct Input {
  uint8_t target = 0;
  std::string bytes;

  std::string Save() const { return std::string(1, static_cast<char>(target)) + bytes; }
  static Input Load(const std::string& saved) {
    return {static_cast<uint8_t>(saved.at(0)), saved.substr(1)};
  }
};

class Corpus {
 public:
  // `onnx_folder` holds saved inputs of further ONNX models, as onnx_corpus.py writes them.
  explicit Corpus(const std::string& onnx_folder = "");

  const std::vector<Graph>& graphs() const { return graphs_; }
  const std::vector<Input>& graph_inputs() const { return graph_inputs_; }
  const std::vector<Input>& request_inputs() const { return request_inputs_; }
  const std::vector<Input>& bundle_inputs() const { return bundle_inputs_; }
  const std::vector<Input>& cache_inputs() const { return cache_inputs_; }
  const std::vector<Input>& onnx_inputs() const { return onnx_inputs_; }
  const std::vector<Input>& checkpoint_inputs() const { return checkpoint_inputs_; }

  Input Mutate(const Input& input, Mutator* mutator) const;
  std::string Run(const Input& input, FuzzStats* stats) const;

 private:
  void AddRequests(size_t graph);
  void AddOnnx(::onnx::ModelProto model);
  void AddOnnxFolder(const std::string& folder);
  std::string MutateBundle(const std::string& bytes, Mutator* mutator) const;

  std::vector<Graph> graphs_;
  std::vector<RequestBinder> binders_;
  std::vector<Input> graph_inputs_;
  std::vector<Input> request_inputs_;
  std::vector<Input> bundle_inputs_;
  std::vector<Input> cache_inputs_;
  std::vector<Input> onnx_inputs_;
  std::vector<Input> checkpoint_inputs_;
  std::vector<std::unique_ptr<google::protobuf::Message>> graph_messages_;
  std::vector<std::unique_ptr<google::protobuf::Message>> request_messages_;
  std::vector<std::unique_ptr<google::protobuf::Message>> bundle_messages_;  // chunks
  std::vector<std::unique_ptr<::onnx::ModelProto>> onnx_models_;  // parsed from onnx_inputs_
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_CORPUS_H_
