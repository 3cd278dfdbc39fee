#include "server/http/pages/status_pages.h"

#include <functional>
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

// Returns the counts of the versions that have their own.
std::vector<LatencyHistory::VersionCells> OwnCells(ServerCore& core) {
  std::vector<LatencyHistory::VersionCells> cells;
  for (const auto& version : core.registry().versions().List("")) {
    if (core.metrics().IsOwn(version->metrics())) cells.push_back(version->shared_metrics());
  }
  return cells;
}

}  // namespace

// Outlives the pages where the timer holds it: it ends with the core then.
struct StatusPages::Steps {
  Mutex mu;
  ServerCore* core ABSL_GUARDED_BY(mu) = nullptr;  // null: the pages are gone
  LatencyHistory history;
};

StatusPages::StatusPages(ServerCore& core, WorkQueue& queue)
    : core_(core), queue_(queue), steps_(std::make_shared<Steps>()) {
  {
    MutexLock lock(steps_->mu);
    steps_->core = &core;
  }
  Schedule(steps_, core.timer());
}

StatusPages::~StatusPages() {
  MutexLock lock(steps_->mu);  // waits for a step that is being taken
  steps_->core = nullptr;
}

void StatusPages::Schedule(std::shared_ptr<Steps> steps, Timer& timer) {
  timer.At(Timer::Clock::now() + LatencyHistory::kStep, [steps = std::move(steps)] {
    MutexLock lock(steps->mu);
    if (steps->core == nullptr) return;
    steps->history.Take(OwnCells(*steps->core));
    Schedule(steps, steps->core->timer());
  });
}

std::vector<Route> StatusPages::routes() const {
  return {
      Page(queue_, "/", "text/html; charset=utf-8",
           [&core = core_, steps = steps_] {
             return StatusPage(ServerStatus(core, &steps->history));
           },
           {{"Content-Security-Policy", StatusPagePolicy()}, {"Referrer-Policy", "no-referrer"}}),
      Page(queue_, "/status.json", "application/json",
           [&core = core_] { return ServerStatusText(core); }),
      Page(queue_, "/metrics", "text/plain; version=0.0.4; charset=utf-8",
           [&core = core_] { return core.metrics().Text(); }),
  };
}

}  // namespace athanor
