// Sends spans by OTLP over gRPC.
//
//   auto sender = MakeOtlpSender(*ParseCollectorAddress("http://localhost:4317"));
#ifndef ATHANOR_SERVER_TRACING_OTLP_SENDER_H_
#define ATHANOR_SERVER_TRACING_OTLP_SENDER_H_

#include <memory>

#include "server/net/collector_address.h"
#include "server/tracing/span_exporter.h"

namespace athanor {

// Connects with the first Send, and again as needed. TLS trusts the system's certificates.
std::unique_ptr<SpanSender> MakeOtlpSender(const CollectorAddress& address);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_OTLP_SENDER_H_
