#include "server/http/status_pages.h"

#include "server/http/page.h"
#include "server/http/server_status.h"

namespace athanor {

std::vector<HttpPage> StatusPages(ServerCore& core) {
  return {
      {"/",
       "text/html; charset=utf-8",
       [&core] { return StatusPage(ServerStatus(core)); },
       {{"Content-Security-Policy", StatusPagePolicy()}, {"Referrer-Policy", "no-referrer"}}},
      {"/status.json", "application/json", [&core] { return ServerStatusText(core); }},
      {"/metrics", "text/plain; version=0.0.4; charset=utf-8",
       [&core] { return core.metrics().Text(); }},
  };
}

}  // namespace athanor
