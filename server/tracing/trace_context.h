// The W3C's trace context: which trace a request belongs to, and whether that is recorded.
//
//   auto parent = ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
//   parent->sampled;                  // true
//   TraceIdText(*parent);             // "0af7651916cd43dd8448eb211c80319c"
//   CheckedTracestate("a=1 , b=2");   // "a=1,b=2"
#ifndef ATHANOR_SERVER_TRACING_TRACE_CONTEXT_H_
#define ATHANOR_SERVER_TRACING_TRACE_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace athanor {

// A span's place: its trace and its own number in it, neither of them 0.
struct TraceContext {
  uint64_t trace_high = 0, trace_low = 0;
  uint64_t span = 0;
  bool sampled = false;
};

// Returns nullopt if the header is not what the specification allows: then the request begins a
// trace. Reads later versions by their first four fields, as the specification says.
std::optional<TraceContext> ParseTraceparent(absl::string_view header);

// Returns the members with nothing between them but commas; "" if one is malformed, a key comes
// twice, there are more than 32, or they are longer than 512 characters together.
std::string CheckedTracestate(absl::string_view header);

// Returns 32 hexadecimal digits.
std::string TraceIdText(const TraceContext& context);

// Return 16 and 8 bytes, as spans have them.
std::string TraceIdBytes(const TraceContext& context);
std::string SpanIdBytes(uint64_t span);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_TRACE_CONTEXT_H_
