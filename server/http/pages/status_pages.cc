#include "server/http/pages/status_pages.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/http/pages/page.h"
#include "server/http/pages/server_status.h"

namespace athanor {
namespace {

Route Page(WorkQueue& queue, std::string path, std::string type, std::function<std::string()> body,
           HttpHeaders headers = {}) {
  return {.method = "GET",
          .path = std::move(path),
          .role = Role::kMonitor,
          .handler = [&queue, type = std::move(type), body = std::move(body),
                      headers = std::move(headers)](std::shared_ptr<HttpExchange> exchange) {
            queue.Submit([=] { exchange->Answer(200, type, body(), headers); });
          }};
}

}  // namespace

std::vector<Route> StatusPages(ServerCore& core, WorkQueue& queue) {
  return {
      Page(queue, "/", "text/html; charset=utf-8",
           [&core] { return StatusPage(ServerStatus(core)); },
           {{"Content-Security-Policy", StatusPagePolicy()}, {"Referrer-Policy", "no-referrer"}}),
      Page(queue, "/status.json", "application/json", [&core] { return ServerStatusText(core); }),
      Page(queue, "/metrics", "text/plain; version=0.0.4; charset=utf-8",
           [&core] { return core.metrics().Text(); }),
  };
}

}  // namespace athanor
