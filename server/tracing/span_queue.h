// Keeps spans until they are sent: bounded, so that a collector that does not answer costs spans
// and nothing else.
//
//   SpanQueue queue(8192, &metrics.server());
//   queue.Put(std::move(spans));                       // whoever ends a request
//   while (!(spans = queue.Take(512, 1s)).empty()) ... // the thread that sends
//   queue.Close();
//
// Thread-safe, for one thread that takes.
#ifndef ATHANOR_SERVER_TRACING_SPAN_QUEUE_H_
#define ATHANOR_SERVER_TRACING_SPAN_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "proto/opentelemetry/trace.pb.h"
#include "server/metrics/metric_cells.h"

namespace athanor {

using OtlpSpan = opentelemetry::proto::trace::v1::Span;

class SpanQueue {
 public:
  // Holds up to `most` spans. `metrics` must live until Close.
  SpanQueue(size_t most, MetricCells* metrics) : most_(most), metrics_(metrics) {}
  SpanQueue(const SpanQueue&) = delete;
  SpanQueue& operator=(const SpanQueue&) = delete;

  // Adds the spans of one request, or drops all of them if they do not fit; once closed, in
  // silence.
  void Put(std::vector<OtlpSpan> spans);
  // Returns up to `most` spans: as soon as there are so many, or `gather` after the first; at once
  // if it is closed. Empty: it is closed and nothing is left.
  std::vector<OtlpSpan> Take(size_t most, std::chrono::milliseconds gather);
  // Returns after `time`, or when it is closed; true if it is.
  bool AwaitClose(std::chrono::milliseconds time);
  // Counts spans that never came here; once closed, does nothing.
  void Drop(SpanDrop why, size_t spans);
  void Close();

 private:
  const size_t most_;
  Mutex mu_;
  CondVar told_;
  std::deque<OtlpSpan> spans_ ABSL_GUARDED_BY(mu_);
  MetricCells* metrics_ ABSL_GUARDED_BY(mu_);  // null: closed
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_SPAN_QUEUE_H_
