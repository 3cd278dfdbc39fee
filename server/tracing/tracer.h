// Decides which requests are recorded, and sends their spans to a collector.
//
//   std::unique_ptr<Tracer> tracer = MakeTracer(options, &metrics.server());   // make_tracer.h
//   if (tracer != nullptr) trace = tracer->Begin({traceparent, tracestate}, "ModelInfer", arrived);
//
// A request whose parent is recorded is recorded, and one whose parent is not is not; of the
// others, a share. Who is not recorded costs one random number at most: no lock, no allocation.
// Thread-safe.
#ifndef ATHANOR_SERVER_TRACING_TRACER_H_
#define ATHANOR_SERVER_TRACING_TRACER_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "server/metrics/metric_cells.h"
#include "server/tracing/span_exporter.h"
#include "server/tracing/trace.h"

namespace athanor {

// The headers of a request, as they came; empty: it has none.
struct TraceHeaders {
  absl::string_view traceparent, tracestate;
};

class Tracer {
 public:
  // `ratio`: of requests without a parent, in millionths. `metrics` must outlive it.
  Tracer(int64_t ratio, const ExporterOptions& options, std::unique_ptr<SpanSender> sender,
         opentelemetry::proto::resource::v1::Resource resource, MetricCells* metrics);

  // Begins the trace of a request; null: it is not recorded.
  std::shared_ptr<Trace> Begin(const TraceHeaders& headers, absl::string_view name,
                               TraceTime begin);
  // Begins the trace of work of the server's own; null as above.
  std::shared_ptr<Trace> BeginOwn(absl::string_view name, TraceTime begin);

 private:
  // Returns a number of a new trace if that is to be recorded, else 0.
  uint64_t Draw() const;

  const int64_t ratio_;
  SpanExporter exporter_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_TRACER_H_
