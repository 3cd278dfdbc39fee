// Parses JSON that came from outside, with bounds: depth, repeated keys, memory.
//
//   ASSIGN_OR_RETURN(JsonBody body, ParseJsonBody(exchange->request().body, &ledger));
//   body.value["model"]
#ifndef ATHANOR_SERVER_HTTP_JSON_BODY_H_
#define ATHANOR_SERVER_HTTP_JSON_BODY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/memory/server_ledger.h"

namespace athanor {

// Keeps the order of keys, which templates print.
using Json = nlohmann::ordered_json;

struct JsonBody {
  ServerLedger::Reservation memory;  // of `value`
  Json value;
};

// Most objects and arrays inside each other.
inline constexpr int kMostJsonDepth = 64;

// Reads one value, of any type, in time linear in its bytes. INVALID_ARGUMENT says what is wrong
// and where: no JSON, text that is no UTF-8, numbers beyond a double, a key twice in one object,
// more than kMostJsonDepth levels. RESOURCE_EXHAUSTED: the ledger has no room.
absl::StatusOr<JsonBody> ParseJsonBody(absl::string_view body, ServerLedger* ledger);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_JSON_BODY_H_
