#include "server/tracing/make_tracer.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/version.h"
#include "server/net/collector_address.h"
#include "server/tracing/otlp_sender.h"

namespace athanor {
namespace {

opentelemetry::proto::resource::v1::Resource ThisServer() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  OtlpSpan facts;
  SetAttribute("service.name", "athanord", &facts);
  SetAttribute("service.version", kVersion, &facts);
  SetAttribute("service.instance.id", absl::StrCat(host, ":", getpid()), &facts);
  SetAttribute("host.name", host, &facts);
  SetAttribute("process.pid", static_cast<int64_t>(getpid()), &facts);
  opentelemetry::proto::resource::v1::Resource resource;
  resource.mutable_attributes()->Swap(facts.mutable_attributes());
  return resource;
}

}  // namespace

std::unique_ptr<Tracer> MakeTracer(const ServerOptions& options, MetricCells* metrics) {
  if (options.otlp_endpoint.empty()) return nullptr;
  const auto address = ParseCollectorAddress("--otlp_endpoint", options.otlp_endpoint);
  if (!address.ok()) return nullptr;  // the options are checked before
  return std::make_unique<Tracer>(options.trace_ratio, ExporterOptions{}, MakeOtlpSender(*address),
                                  ThisServer(), metrics);
}

}  // namespace athanor
