// Keeps in the status of a refused call when the server wants to be asked again.
//
//   RetryAfter(reply.status())   // absl::Milliseconds(250); zero: the server does not say
#ifndef ATHANOR_CLIENTS_CPP_CLIENT_RETRY_AFTER_H_
#define ATHANOR_CLIENTS_CPP_CLIENT_RETRY_AFTER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace athanor::client {

absl::Duration RetryAfter(const absl::Status& status);
// Notes it. `details`: bytes of a google.rpc.Status; those without a RetryInfo note nothing.
void NoteRetryAfter(const std::string& details, absl::Status* status);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_CLIENT_RETRY_AFTER_H_
