// The routes of the OpenAI side: models, completions, chats, embeddings, health.
//
//   ASSIGN_OR_RETURN(std::vector<Route> routes, OpenAiRoutes(&core, writer));
#ifndef ATHANOR_SERVER_OPENAI_ROUTES_H_
#define ATHANOR_SERVER_OPENAI_ROUTES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/calls/stream_writer.h"
#include "server/core/core.h"
#include "server/http/routes.h"

namespace athanor {

// INVALID_ARGUMENT: --openai_aliases is wrong. `core` outlives the routes' handlers and all
// exchanges; whoever admits an exchange counts its call (CallSlot).
absl::StatusOr<std::vector<Route>> OpenAiRoutes(ServerCore* core,
                                                std::shared_ptr<StreamWriter> writer);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_ROUTES_H_
