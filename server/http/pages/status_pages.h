// The pages of the HTTP side: the status page at "/", the same as JSON at "/status.json", and
// metrics at "/metrics".
//
//   StatusPages pages(core, queue);
//   HttpServer::Start(options, threads, &ledger, pages.routes());
#ifndef ATHANOR_SERVER_HTTP_PAGES_STATUS_PAGES_H_
#define ATHANOR_SERVER_HTTP_PAGES_STATUS_PAGES_H_

#include <memory>
#include <vector>

#include "server/base/work_queue.h"
#include "server/core/core.h"
#include "server/http/pages/latency_history.h"
#include "server/http/routes.h"

namespace athanor {

class StatusPages {
 public:
  // Takes a step of the history every LatencyHistory::kStep, on the core's timer. Makes pages on
  // `queue`, because they take longer than an I/O thread may. Both must outlive this, and this the
  // server of the routes.
  StatusPages(ServerCore& core, WorkQueue& queue);
  ~StatusPages();
  StatusPages(const StatusPages&) = delete;
  StatusPages& operator=(const StatusPages&) = delete;

  std::vector<Route> routes() const;

 private:
  struct Steps;
  static void Schedule(std::shared_ptr<Steps> steps, Timer& timer);

  ServerCore& core_;
  WorkQueue& queue_;
  const std::shared_ptr<Steps> steps_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_STATUS_PAGES_H_
