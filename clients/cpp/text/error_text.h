// Says what went wrong with a call in the words of a shell: no codes of gRPC, and the options as
// they were typed instead of the request's fields.
//
//   athanor: no server answers at 127.0.0.1:1 (Connection refused); start one with athanord, or say
//   where it is with --address
#ifndef ATHANOR_CLIENTS_CPP_TEXT_ERROR_TEXT_H_
#define ATHANOR_CLIENTS_CPP_TEXT_ERROR_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace athanor::client {

// Whom was called, and how.
struct CallScene {
  std::string address;
  double timeout_s = 0;              // 0: no limit
  std::vector<std::string> options;  // of the command that was given: "--budget"
  bool certificate = false;          // --tls_cert was given
};

// Names the request's id where a server refused the call, so that its operator finds it in the log.
std::string ErrorText(const absl::Status& status, const CallScene& scene);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_ERROR_TEXT_H_
