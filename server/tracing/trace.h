// The spans of one request that is recorded: its own, and those of its parts.
//
//   std::shared_ptr<Trace> trace = tracer->Begin(...);   // null: it is not recorded
//   if (trace != nullptr) {
//     trace->Child("run", began, ended).Set("athanor.plan.id", plan.id());
//     trace->Set("athanor.model.name", name);
//     trace->End();
//   }
//
// Who measures a part anyway says when it began and ended. Thread-safe; what is added behind End is
// dropped. The last owner ends it.
#ifndef ATHANOR_SERVER_TRACING_TRACE_H_
#define ATHANOR_SERVER_TRACING_TRACE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/opentelemetry/trace.pb.h"
#include "server/tracing/span_queue.h"
#include "server/tracing/trace_context.h"

namespace athanor {

using TraceTime = std::chrono::steady_clock::time_point;

// Returns a number that is not 0.
uint64_t RandomId();

// Sets an attribute; cuts a text to 1 KiB.
void SetAttribute(absl::string_view key, absl::string_view value, OtlpSpan* span);
void SetAttribute(absl::string_view key, int64_t value, OtlpSpan* span);
void SetAttribute(absl::string_view key, double value, OtlpSpan* span);
void SetAttribute(absl::string_view key, const std::vector<std::string>& values, OtlpSpan* span);
inline void SetAttribute(absl::string_view key, const char* value, OtlpSpan* span) {
  SetAttribute(key, absl::string_view(value), span);
}

class Trace {
 public:
  // A part of the request, added to the trace when this goes.
  class Span {
   public:
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span() { trace_.Add(std::move(span_)); }

    template <typename T>
    Span& Set(absl::string_view key, const T& value) {
      SetAttribute(key, value, &span_);
      return *this;
    }
    // Describes a part of this part.
    Span Child(absl::string_view name, TraceTime begin, TraceTime end) {
      return Span(&trace_, span_.span_id(), name, begin, end);
    }
    Span& Event(absl::string_view name, TraceTime time);
    // As Trace::Fail.
    Span& Fail(absl::string_view type, absl::string_view message);
    // Names other requests that it was done for; keeps 128 of them.
    Span& Link(const std::vector<TraceContext>& others);

   private:
    friend class Trace;
    Span(Trace* trace, const std::string& parent, absl::string_view name, TraceTime begin,
         TraceTime end);

    Trace& trace_;
    OtlpSpan span_;
  };

  // `parent` is the span of another process that `context.span` is a part of; 0: none.
  struct Origin {
    TraceContext context;
    uint64_t parent = 0;
    std::string state;  // tracestate
  };
  Trace(Origin origin, absl::string_view name, OtlpSpan::SpanKind kind, TraceTime begin,
        std::shared_ptr<SpanQueue> queue);
  ~Trace() { End(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Returns the context of the request's own span.
  const TraceContext& context() const { return origin_.context; }
  // Returns the trace's number as text, for the log.
  const std::string& id() const { return id_; }

  // Describes a part of the request, of which both ends are known.
  Span Child(absl::string_view name, TraceTime begin, TraceTime end) {
    return Span(this, SpanIdBytes(origin_.context.span), name, begin, end);
  }
  // The following are about the request's own span.
  template <typename T>
  void Set(absl::string_view key, const T& value) {
    MutexLock lock(mu_);
    if (!ended_) SetAttribute(key, value, &own_);
  }
  void Rename(absl::string_view name);
  // Says that it failed; `type` is its attribute error.type.
  void Fail(absl::string_view type, absl::string_view message);
  // Hands all spans over to be sent.
  void End(TraceTime end = std::chrono::steady_clock::now());

 private:
  void Add(OtlpSpan span);
  uint64_t UnixNanos(TraceTime time) const;

  const Origin origin_;
  const std::string id_;
  const std::shared_ptr<SpanQueue> queue_;
  // Turns steady times into those of spans; taken once, so that times of one trace agree.
  const std::chrono::nanoseconds ahead_;
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  OtlpSpan own_ ABSL_GUARDED_BY(mu_);
  std::vector<OtlpSpan> spans_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_TRACE_H_
