// Fuzzes checkpoints' files as an upload reads them: heads of GGUF and safetensors files.
//
//   std::string changed = MutateGguf(SeedGgufFiles()[0], &mutator);
//   std::string problem = FuzzGguf(changed, &stats);
#ifndef ATHANOR_TESTS_FUZZ_CHECKPOINT_TARGET_H_
#define ATHANOR_TESTS_FUZZ_CHECKPOINT_TARGET_H_

#include <string>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace athanor {

// Return small valid files that together hold every form of tensor and every type of key.
std::vector<std::string> SeedGgufFiles();
std::vector<std::string> SeedSafetensorsFiles();

// Change numbers, texts or bytes; mostly keep what the reader wants before it reads on.
std::string MutateGguf(const std::string& file, Mutator* mutator);
std::string MutateSafetensors(const std::string& file, Mutator* mutator);

// Read the file, and beginnings of it: those must give the same result or ask for more. Tensors
// must lie inside the file and apart, and one of them, if it is small, must decode to its own
// shape. Count a file that gets past its first bytes as parsed, one with tensors as accepted, and
// one with a decoded tensor as evaluated.
std::string FuzzGguf(const std::string& file, FuzzStats* stats);
std::string FuzzSafetensors(const std::string& file, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_CHECKPOINT_TARGET_H_
