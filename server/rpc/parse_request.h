// Messages from bytes on the wire, with errors that name the field. What a message takes beyond its
// bytes is in the ledger before it is taken: what it inflates to, and what it parses to, which of
// many small parts is many times their bytes.
//
//   ServerLedger::Reservation held;                  // as long as `request`
//   absl::Status s = ParseRequest(core, bytes, &request, &held);
#ifndef ATHANOR_SERVER_RPC_PARSE_REQUEST_H_
#define ATHANOR_SERVER_RPC_PARSE_REQUEST_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "server/core/core.h"

namespace athanor {

// RESOURCE_EXHAUSTED: it is compressed and inflates beyond --max_message_bytes or --max_inflation,
// or the ledger has no room for it.
absl::Status ParseRequest(ServerCore& core, const grpc::ByteBuffer& bytes,
                          google::protobuf::Message* message, ServerLedger::Reservation* held);
// For threads of gRPC, and messages that are small: a compressed one inflates to a MiB at most.
absl::Status ParseSmallRequest(ServerCore& core, const grpc::ByteBuffer& bytes,
                               google::protobuf::Message* message);

// What the message in `bytes` takes once it is parsed, no less; where that is more than `most`,
// something that is. Looks at the message's parts, not at what lies in them.
int64_t ParsedBytes(google::protobuf::io::ZeroCopyInputStream* bytes,
                    const google::protobuf::Descriptor& type, int64_t most);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_PARSE_REQUEST_H_
