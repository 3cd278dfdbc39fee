#include "server/rest/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/http/json_body.h"
#include "server/net/peers.h"
#include "server/rest/rest_error.h"

namespace athanor {
namespace {

absl::StatusOr<int64_t> BytesOf(const std::string& name, const Json& value) {
  if (!value.is_number_unsigned()) return Invalid(name, " has to be a number of bytes, 0 or more");
  return static_cast<int64_t>(
      std::min<uint64_t>(value.get<uint64_t>(), std::numeric_limits<int64_t>::max()));
}

// Reads what a region is registered with.
absl::StatusOr<SharedPlace> ReadPlace(ServerCore& core, const std::string& name,
                                      const std::string& body) {
  SharedPlace place{.name = name};
  ASSIGN_OR_RETURN(const JsonBody read, ParseJsonBody(body, &core.ledger()));
  if (!read.value.is_object()) return Invalid("the request is no object");
  for (const auto& [field, value] : read.value.items()) {
    if (field == "key") {
      if (!value.is_string()) return Invalid("key has to be a text");
      place.key = value.get<std::string>();
    } else if (field == "offset") {
      ASSIGN_OR_RETURN(place.offset, BytesOf(field, value));
    } else if (field == "byte_size") {
      ASSIGN_OR_RETURN(place.byte_size, BytesOf(field, value));
    } else {
      return Invalid("the request has the field ", Quoted(field),
                     ", which is unknown; the fields are key, offset and byte_size");
    }
  }
  return place;
}

absl::StatusOr<Json> ListRegions(ServerCore& core, const SharedUser& user,
                                 const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<SharedPlace> places, core.regions().List(user, name));
  Json list = Json::array();
  for (const SharedPlace& place : places) {
    list.push_back({{"name", place.name},
                    {"key", place.key},
                    {"offset", place.offset},
                    {"byte_size", place.byte_size}});
  }
  return list;
}

absl::Status RegisterRegion(ServerCore& core, const HttpExchange& exchange, const SharedUser& user,
                            const std::string& name) {
  ASSIGN_OR_RETURN(SharedPlace place, ReadPlace(core, name, exchange.request().body));
  const std::string key = place.key;
  RETURN_IF_ERROR(core.regions().Register(user, std::move(place)));
  LogInfo("audit", {{"request", exchange.request_id()},
                    {"method", "SystemSharedMemoryRegister"},
                    {"client", user.owner},
                    {"peer", exchange.request().peer},
                    {"key", key}});
  return absl::OkStatus();
}

// Returns what to answer with; null: nothing.
absl::StatusOr<Json> AnswerTo(ServerCore& core, const HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  const SharedUser user = SharedUserOf(exchange);
  absl::string_view what = absl::StripPrefix(request.path, kSharedMemoryPath);
  std::string name;  // of "region/NAME/what"; it may have slashes
  if (absl::ConsumePrefix(&what, "region/")) {
    const size_t slash = what.rfind('/');
    if (slash == 0 || slash == absl::string_view::npos) return Invalid("the path names no region");
    name = std::string(what.substr(0, slash));
    what.remove_prefix(slash + 1);
  }
  if (request.method == "GET" && what == "status") return ListRegions(core, user, name);
  if (request.method == "POST" && what == "register" && !name.empty()) {
    RETURN_IF_ERROR(RegisterRegion(core, exchange, user, name));
    return Json();
  }
  if (request.method == "POST" && what == "unregister") {
    RETURN_IF_ERROR(core.regions().Unregister(user, name));
    return Json();
  }
  return absl::NotFoundError(
      Cat("there is no ", request.method, " ", request.path, "; docs/rest.md lists what there is"));
}

}  // namespace

SharedUser SharedUserOf(const HttpExchange& exchange) {
  return {.owner = exchange.caller().name(), .local = IsLocalPeer(exchange.request().peer)};
}

void AnswerSharedMemory(ServerCore& core, HttpExchange& exchange) {
  const absl::StatusOr<Json> answer = AnswerTo(core, exchange);
  if (!answer.ok()) return AnswerRestError(exchange, answer.status());
  exchange.Answer(
      200, "application/json",
      answer->is_null() ? "" : answer->dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace athanor
