// Parses messages from bytes on the wire, with errors that name the field. Memory beyond the
// message's own bytes is reserved in the ledger before it is allocated: for inflating, and for the
// parsed message, which takes many times its bytes if it has many small parts.
//
//   ServerLedger::Reservation held;                  // lives as long as `request`
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

// Parses `bytes`. Returns RESOURCE_EXHAUSTED if the message is compressed and inflates beyond
// --max_message_bytes or --max_inflation, or if the ledger has no room for it.
absl::Status ParseRequest(ServerCore& core, const grpc::ByteBuffer& bytes,
                          google::protobuf::Message* message, ServerLedger::Reservation* held);
// The same for small messages, on gRPC's threads: a compressed one may inflate to at most a MiB.
absl::Status ParseSmallRequest(ServerCore& core, const grpc::ByteBuffer& bytes,
                               google::protobuf::Message* message);

// Returns an upper bound on the memory of the parsed message. Stops above `most` and then returns
// some number above it. Reads only the structure of the message, not the contents of its fields.
int64_t ParsedBytes(google::protobuf::io::ZeroCopyInputStream* bytes,
                    const google::protobuf::Descriptor& type, int64_t most);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_PARSE_REQUEST_H_
