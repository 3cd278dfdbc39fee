// Sends spans to a collector, in batches, on a thread of its own.
//
//   SpanExporter exporter(options, OtlpSender(address), resource, &metrics.server());
//   exporter.queue()->Put(std::move(spans));
//
// A batch that does not arrive is sent again, after a time that doubles or that the collector asks
// for, for as long as it is young; then it is dropped, as is what the collector refuses for good.
// Others wait in the queue meanwhile. What is dropped is counted. The destructor sends what is
// left, within `last`.
#ifndef ATHANOR_SERVER_TRACING_SPAN_EXPORTER_H_
#define ATHANOR_SERVER_TRACING_SPAN_EXPORTER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/opentelemetry/trace_service.pb.h"
#include "server/metrics/metric_cells.h"
#include "server/tracing/span_queue.h"

namespace athanor {

// Carries a batch to the collector. Send is called by one thread, Cancel by another.
class SpanSender {
 public:
  using Request = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

  virtual ~SpanSender() = default;
  // Returns how many of its spans the collector refused. Errors are its own, and say when it wants
  // the batch again, if it does (server/base/retry_after.h).
  virtual absl::StatusOr<int64_t> Send(const Request& request,
                                       std::chrono::milliseconds timeout) = 0;
  // Has a Send under way, and later ones, end at once with CANCELLED.
  virtual void Cancel() = 0;
};

struct ExporterOptions {
  size_t most_queued = 8192;  // spans
  size_t batch = 512;         // spans
  std::chrono::milliseconds gather{1'000};
  std::chrono::milliseconds timeout{10'000};
  std::chrono::milliseconds first_retry{500}, longest_retry{10'000};
  // A batch that is older once an attempt has failed is sent no more.
  std::chrono::milliseconds give_up{60'000};
  std::chrono::milliseconds last{3'000};
};

class SpanExporter {
 public:
  // `metrics` must outlive it.
  SpanExporter(const ExporterOptions& options, std::unique_ptr<SpanSender> sender,
               opentelemetry::proto::resource::v1::Resource resource, MetricCells* metrics);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  const std::shared_ptr<SpanQueue>& queue() const { return queue_; }

 private:
  void Run();
  // Sends until the batch has arrived, is refused for good, or is given up.
  void Export(const SpanSender::Request& request);
  // Logs that the collector is lost or found.
  void Note(const absl::Status& status);

  const ExporterOptions options_;
  const std::unique_ptr<SpanSender> sender_;
  const opentelemetry::proto::resource::v1::Resource resource_;
  MetricCells& metrics_;
  const std::shared_ptr<SpanQueue> queue_;
  bool lost_ = false;
  Mutex mu_;
  CondVar told_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // the thread has nothing left to send
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_SPAN_EXPORTER_H_
