// Makes the tracer of this server, as its flags say.
//
//   std::unique_ptr<Tracer> tracer = MakeTracer(options, &metrics.server());   // null: off
#ifndef ATHANOR_SERVER_TRACING_MAKE_TRACER_H_
#define ATHANOR_SERVER_TRACING_MAKE_TRACER_H_

#include <memory>

#include "server/base/options.h"
#include "server/metrics/metric_cells.h"
#include "server/tracing/tracer.h"

namespace athanor {

// Returns null without --otlp_endpoint. REQUIRES: the options are valid.
std::unique_ptr<Tracer> MakeTracer(const ServerOptions& options, MetricCells* metrics);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_MAKE_TRACER_H_
