// Makes the requests of a load: random values of valid sizes, described by a few flags.
//
//   --shape ids=bxs --dims b=1..8 --dims s=16..128 --input ids=0..30521 --input mask=@mask.npy
//
// Sizes come from the model where it fixes them, else from --shape, else they are 1. A word in a
// shape is a name local to the command line: each request draws it from its range in --dims and
// uses it in all of its inputs.
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_INPUTS_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/client/client.h"

namespace athanor::bench {

struct InputFlags {
  std::vector<std::string> shapes;  // "x=1x64"; "x=bx64"; "x=" for a single number
  std::vector<std::string> dims;    // "b=1..64", both ends included
  // "ids=0..30521": uniform, both ends included; "x=@file.npy": the file's values. Without an
  // entry, floats are drawn from the normal distribution and bools evenly; integers need an entry,
  // because the protocol does not tell which values are valid.
  std::vector<std::string> values;
  int requests = 16;  // number of distinct requests
  uint64_t seed = 0;
};

// Limit on the bytes of tensors of all requests together.
inline constexpr int64_t kMostRequestBytes = int64_t{1} << 30;

// Makes the requests; equal seeds give equal requests. INVALID_ARGUMENT names the flag or the
// input, and what would be right.
absl::StatusOr<std::vector<client::InferRequest>> MakeRequests(
    const inference::ModelMetadataResponse& model, const std::string& version,
    const InputFlags& flags);

// Returns a sentence for each size that neither the model nor a flag fixes, so that it is 1.
std::vector<std::string> AssumedSizes(const inference::ModelMetadataResponse& model,
                                      const InputFlags& flags);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_INPUTS_H_
