// A message of the inference protocol as JSON, as Triton's REST has it: fields under their own
// names, those without presence also if they are empty, enums by name, and 64-bit integers as
// numbers, which protobuf's own form of JSON has as texts.
//
//   inference::ModelConfig config;
//   MessageJson(config)   // {"name":"digits","max_batch_size":0,"input":[{"dims":[-1,64], ...
#ifndef ATHANOR_SERVER_REST_MESSAGE_JSON_H_
#define ATHANOR_SERVER_REST_MESSAGE_JSON_H_

#include "google/protobuf/message.h"
#include "server/http/json_body.h"

namespace athanor {

// Entries of maps come in the order of their keys. REQUIRES: no field is of type bytes.
Json MessageJson(const google::protobuf::Message& message);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_MESSAGE_JSON_H_
