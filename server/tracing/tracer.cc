#include "server/tracing/tracer.h"

#include <optional>
#include <utility>

#include "absl/numeric/int128.h"

namespace athanor {
namespace {

constexpr int64_t kAll = 1'000'000;

}  // namespace

Tracer::Tracer(int64_t ratio, const ExporterOptions& options, std::unique_ptr<SpanSender> sender,
               opentelemetry::proto::resource::v1::Resource resource, MetricCells* metrics)
    : ratio_(ratio), exporter_(options, std::move(sender), std::move(resource), metrics) {}

uint64_t Tracer::Draw() const {
  if (ratio_ == 0) return 0;
  const uint64_t id = RandomId();
  // The lower half of a trace's number decides, as in OpenTelemetry's own sampler by ratio.
  const auto below = static_cast<uint64_t>((absl::uint128(UINT64_MAX) * ratio_) / kAll);
  return id <= below ? id : 0;
}

std::shared_ptr<Trace> Tracer::Begin(const TraceHeaders& headers, absl::string_view name,
                                     TraceTime begin) {
  std::optional<TraceContext> parent;
  if (!headers.traceparent.empty()) parent = ParseTraceparent(headers.traceparent);
  Trace::Origin origin;
  if (parent.has_value()) {
    if (!parent->sampled) return nullptr;
    origin = {*parent, parent->span, CheckedTracestate(headers.tracestate)};
  } else {
    const uint64_t id = Draw();
    if (id == 0) return nullptr;
    origin.context = {.trace_high = RandomId(), .trace_low = id, .sampled = true};
  }
  origin.context.span = RandomId();
  return std::make_shared<Trace>(std::move(origin), name, OtlpSpan::SPAN_KIND_SERVER, begin,
                                 exporter_.queue());
}

std::shared_ptr<Trace> Tracer::BeginOwn(absl::string_view name, TraceTime begin) {
  const uint64_t id = Draw();
  if (id == 0) return nullptr;
  return std::make_shared<Trace>(
      Trace::Origin{.context = {RandomId(), id, RandomId(), /*sampled=*/true}}, name,
      OtlpSpan::SPAN_KIND_INTERNAL, begin, exporter_.queue());
}

}  // namespace athanor
