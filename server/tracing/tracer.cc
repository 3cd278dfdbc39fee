#include "server/tracing/tracer.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/version.h"
#include "server/net/collector_address.h"
#include "server/tracing/otlp_sender.h"

namespace athanor {
namespace {

constexpr int64_t kAll = 1'000'000;

opentelemetry::proto::resource::v1::Resource ThisServer() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  OtlpSpan facts;
  AddAttribute("service.name", "athanord", &facts);
  AddAttribute("service.version", kVersion, &facts);
  AddAttribute("service.instance.id", absl::StrCat(host, ":", getpid()), &facts);
  AddAttribute("host.name", host, &facts);
  AddAttribute("process.pid", static_cast<int64_t>(getpid()), &facts);
  opentelemetry::proto::resource::v1::Resource resource;
  resource.mutable_attributes()->Swap(facts.mutable_attributes());
  return resource;
}

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

std::unique_ptr<Tracer> MakeTracer(const ServerOptions& options, MetricCells* metrics) {
  if (options.otlp_endpoint.empty()) return nullptr;
  const auto address = ParseCollectorAddress("--otlp_endpoint", options.otlp_endpoint);
  if (!address.ok()) return nullptr;  // the options are checked before
  return std::make_unique<Tracer>(options.trace_ratio, ExporterOptions{}, MakeOtlpSender(*address),
                                  ThisServer(), metrics);
}

}  // namespace athanor
