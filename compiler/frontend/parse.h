// Parsing of messages that come as bytes, with errors that say where they go wrong.
//
//   v1::Graph graph;
//   absl::Status s = ParseMessage(bytes, &graph);
//   // "athanor.v1.Graph: nodes[3].name is not valid UTF-8"
#ifndef ATHANOR_COMPILER_FRONTEND_PARSE_H_
#define ATHANOR_COMPILER_FRONTEND_PARSE_H_

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace athanor {

// INVALID_ARGUMENT names the field whose bytes are cut off, malformed, nested too deeply, or not
// valid UTF-8 though they should be text.
absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message* message);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_PARSE_H_
