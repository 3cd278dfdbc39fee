// Runs the same targets under libFuzzer, which keeps inputs that reach new code. Built and run by
// hand, for hours rather than minutes: README.md says how. Its crash files are inputs for
// fuzz_test.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/corpus.h"

namespace athanor {
namespace {

// ATHANOR_FUZZ_TARGET=253 selects only inputs of that target.
int OnlyTarget() {
  static const char* const text = std::getenv("ATHANOR_FUZZ_TARGET");
  return text == nullptr ? -1 : std::atoi(text);
}

const std::vector<Input>& SeedsOf(const Corpus& corpus, Mutator* mutator) {
  switch (OnlyTarget()) {
    case 0:
      return corpus.graph_inputs();
    case kBundleTarget:
      return corpus.bundle_inputs();
    case kCacheTarget:
      return corpus.cache_inputs();
    case kOnnxTarget:
      return corpus.onnx_inputs();
    case kGgufTarget:
    case kSafetensorsTarget:
      return corpus.checkpoint_inputs();
    default:
      break;
  }
  const uint64_t kind = mutator->Below(9);
  return kind == 0   ? corpus.bundle_inputs()
         : kind <= 2 ? corpus.request_inputs()
         : kind <= 5 ? corpus.onnx_inputs()
         : kind == 6 ? corpus.checkpoint_inputs()
                     : corpus.graph_inputs();
}

const Corpus& TheCorpus() {
  static const Corpus& corpus = *new Corpus;
  return corpus;
}

Input LoadInput(const uint8_t* data, size_t size) {
  return Input::Load(std::string(reinterpret_cast<const char*>(data), size));
}

}  // namespace
}  // namespace athanor

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return -1;
  if (athanor::OnlyTarget() >= 0 && data[0] != athanor::OnlyTarget()) return -1;
  athanor::FuzzStats stats;
  const std::string problem = athanor::TheCorpus().Run(athanor::LoadInput(data, size), &stats);
  if (problem.empty()) return 0;
  std::fprintf(stderr, "%s\n", problem.c_str());
  std::abort();
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  const athanor::Corpus& corpus = athanor::TheCorpus();
  athanor::Mutator mutator(seed);
  const std::vector<athanor::Input>& seeds = athanor::SeedsOf(corpus, &mutator);
  // libFuzzer starts from a made-up input of one byte, which is replaced by a seed.
  const athanor::Input from = size < 2 || mutator.OneIn(200) ? seeds[mutator.Below(seeds.size())]
                                                             : athanor::LoadInput(data, size);
  const std::string saved = corpus.Mutate(from, &mutator).Save();
  const size_t length = std::min(saved.size(), max_size);
  std::memcpy(data, saved.data(), length);
  return length;
}
