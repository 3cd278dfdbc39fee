// Makes a message of what a sequence generated.
//
//   v1::GenerateResponse message = ResponseMessage(std::move(events), generation.facts(0));
#ifndef ATHANOR_SERVER_RPC_GENERATE_RESPONSE_MESSAGE_H_
#define ATHANOR_SERVER_RPC_GENERATE_RESPONSE_MESSAGE_H_

#include <vector>

#include "proto/athanor/v1/generate.pb.h"
#include "server/calls/generation.h"
#include "server/generate/outbox.h"

namespace athanor {

// REQUIRES: there is an event.
v1::GenerateResponse ResponseMessage(std::vector<GenerateEvent> events, const StreamFacts& facts);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_GENERATE_RESPONSE_MESSAGE_H_
