// The routes of KServe's v2 REST protocol and of health checks, on --http_listen.
//
//   std::vector<Route> routes = RestRoutes(&core);
#ifndef ATHANOR_SERVER_REST_ROUTES_H_
#define ATHANOR_SERVER_REST_ROUTES_H_

#include <vector>

#include "server/core/core.h"
#include "server/http/routes.h"

namespace athanor {

// `core` outlives the routes' handlers and all exchanges; whoever admits an exchange counts its
// call (CallSlot).
std::vector<Route> RestRoutes(ServerCore* core);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_ROUTES_H_
