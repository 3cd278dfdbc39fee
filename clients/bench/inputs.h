// What a load sends: requests with random values of valid sizes, from a few lines of text.
//
//   --shape ids=bxs --dims b=1..8 --dims s=16..128 --input ids=0..30521 --input mask=@mask.npy
//
// Sizes come from the model where it fixes them, else from --shape; a word in a shape is a name of
// this command line, drawn from its range in --dims for each request and equal in all of its
// inputs.
#ifndef ATHANOR_CLIENTS_BENCH_INPUTS_H_
#define ATHANOR_CLIENTS_BENCH_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/client.h"

namespace athanor::bench {

struct InputFlags {
  std::vector<std::string> shapes;  // "x=1x64"; "x=bx64"; "x=" for a single number
  std::vector<std::string> dims;    // "b=1..64", both included
  // "ids=0..30521": uniform, both ends included; "x=@file.npy": as it is. Floats without one are
  // drawn from the normal distribution, bools evenly; integers need one, for the protocol does not
  // say which are valid.
  std::vector<std::string> values;
  int requests = 16;  // of different values
  uint64_t seed = 0;
};

// The requests hold at most this many bytes of tensors together.
inline constexpr int64_t kMostRequestBytes = int64_t{1} << 30;

// INVALID_ARGUMENT names the flag or the input, and what would be right. Equal for equal seeds.
absl::StatusOr<std::vector<client::InferRequest>> MakeRequests(
    const inference::ModelMetadataResponse& model, const std::string& version,
    const InputFlags& flags);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_INPUTS_H_
