// Parses messages from bytes. Errors name the field that is wrong.
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

// Returns INVALID_ARGUMENT naming the field whose bytes are cut off, malformed, nested too deeply,
// or not valid UTF-8 in a text field.
absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message* message);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_PARSE_H_
