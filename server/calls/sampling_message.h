// Converts how tokens are chosen from a request's message, and to one.
//
//   ASSIGN_OR_RETURN(Sampling sampling, ReadSampling(request.sampling(), model.sampling,
//   vocabulary));
#ifndef ATHANOR_SERVER_CALLS_SAMPLING_MESSAGE_H_
#define ATHANOR_SERVER_CALLS_SAMPLING_MESSAGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/generate/sample/sampling.h"

namespace athanor {

// Returns `defaults` with what the message sets. A seed that is not set is random. INVALID_ARGUMENT
// names the field that is wrong.
absl::StatusOr<Sampling> ReadSampling(const v1::Sampling& message, const Sampling& defaults,
                                      int64_t vocabulary);

// Says all but the seed, which each request has its own of.
v1::Sampling SamplingMessage(const Sampling& sampling);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_SAMPLING_MESSAGE_H_
