#include "server/tracing/trace.h"

#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

constexpr size_t kMostText = 1024;
constexpr size_t kMostSpans = 256;  // of a request
constexpr size_t kMostLinks = 128;
// Bits of OTLP's flags beside those of a traceparent: it is known whether the parent is another
// process's; it is.
constexpr uint32_t kSampled = 1, kRemoteKnown = 0x100, kRemote = 0x200;

std::chrono::nanoseconds SystemAheadOfSteady() {
  return std::chrono::system_clock::now().time_since_epoch() -
         std::chrono::steady_clock::now().time_since_epoch();
}

// Collectors refuse a whole batch for one text that is no UTF-8.
std::string Utf8(absl::string_view text) {
  std::string out;
  const std::string_view all(text.data(), text.size());
  for (size_t at = 0; at < all.size();) {
    const Utf8Step step = StepUtf8(all.substr(at));
    const std::string_view piece = step.valid ? all.substr(at, step.bytes) : kReplacement;
    if (out.size() + piece.size() > kMostText) break;
    out += piece;
    at += step.bytes;
  }
  return out;
}

// Returns where the attribute's value goes, which may be there.
opentelemetry::proto::common::v1::AnyValue* ValueOf(absl::string_view key, OtlpSpan* span) {
  for (auto& attribute : *span->mutable_attributes()) {
    if (attribute.key() == key) return attribute.mutable_value();
  }
  auto* attribute = span->add_attributes();
  attribute->set_key(key.data(), key.size());
  return attribute->mutable_value();
}

void SetFailed(absl::string_view type, absl::string_view message, OtlpSpan* span) {
  SetAttribute("error.type", type, span);
  span->mutable_status()->set_code(opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  span->mutable_status()->set_message(Utf8(message));
}

}  // namespace

void SetAttribute(absl::string_view key, absl::string_view value, OtlpSpan* span) {
  ValueOf(key, span)->set_string_value(Utf8(value));
}
void SetAttribute(absl::string_view key, int64_t value, OtlpSpan* span) {
  ValueOf(key, span)->set_int_value(value);
}
void SetAttribute(absl::string_view key, double value, OtlpSpan* span) {
  ValueOf(key, span)->set_double_value(value);
}
void SetAttribute(absl::string_view key, const std::vector<std::string>& values, OtlpSpan* span) {
  auto* array = ValueOf(key, span)->mutable_array_value();
  array->clear_values();
  for (const std::string& value : values) array->add_values()->set_string_value(Utf8(value));
}

uint64_t RandomId() {
  thread_local absl::BitGen generator;
  return absl::Uniform<uint64_t>(absl::IntervalClosed, generator, 1, UINT64_MAX);
}

Trace::Span::Span(Trace* trace, const std::string& parent, absl::string_view name, TraceTime begin,
                  TraceTime end)
    : trace_(*trace) {
  const TraceContext& context = trace->context();
  span_.set_trace_id(TraceIdBytes(context));
  span_.set_span_id(SpanIdBytes(RandomId()));
  span_.set_parent_span_id(parent);
  span_.set_trace_state(trace->origin_.state);
  span_.set_flags(kSampled | kRemoteKnown);
  span_.set_name(name.data(), name.size());
  span_.set_kind(OtlpSpan::SPAN_KIND_INTERNAL);
  span_.set_start_time_unix_nano(trace->UnixNanos(begin));
  span_.set_end_time_unix_nano(trace->UnixNanos(std::max(begin, end)));
}

Trace::Span& Trace::Span::Event(absl::string_view name, TraceTime time) {
  auto* event = span_.add_events();
  event->set_name(name.data(), name.size());
  event->set_time_unix_nano(trace_.UnixNanos(time));
  return *this;
}

Trace::Span& Trace::Span::Fail(absl::string_view type, absl::string_view message) {
  SetFailed(type, message, &span_);
  return *this;
}

Trace::Span& Trace::Span::Link(const std::vector<TraceContext>& others) {
  const size_t links = std::min(others.size(), kMostLinks);
  for (size_t i = 0; i < links; ++i) {
    auto* link = span_.add_links();
    link->set_trace_id(TraceIdBytes(others[i]));
    link->set_span_id(SpanIdBytes(others[i].span));
    link->set_flags(kSampled | kRemoteKnown);
  }
  span_.set_dropped_links_count(static_cast<uint32_t>(others.size() - links));
  return *this;
}

Trace::Trace(Origin origin, absl::string_view name, OtlpSpan::SpanKind kind, TraceTime begin,
             std::shared_ptr<SpanQueue> queue)
    : origin_(std::move(origin)),
      id_(TraceIdText(origin_.context)),
      queue_(std::move(queue)),
      ahead_(SystemAheadOfSteady()) {
  MutexLock lock(mu_);
  own_.set_trace_id(TraceIdBytes(origin_.context));
  own_.set_span_id(SpanIdBytes(origin_.context.span));
  own_.set_trace_state(origin_.state);
  own_.set_flags(kSampled | kRemoteKnown | (origin_.parent != 0 ? kRemote : 0));
  if (origin_.parent != 0) own_.set_parent_span_id(SpanIdBytes(origin_.parent));
  own_.set_name(name.data(), name.size());
  own_.set_kind(kind);
  own_.set_start_time_unix_nano(UnixNanos(begin));
}

void Trace::Rename(absl::string_view name) {
  MutexLock lock(mu_);
  own_.set_name(name.data(), name.size());
}

void Trace::Fail(absl::string_view type, absl::string_view message) {
  MutexLock lock(mu_);
  if (!ended_) SetFailed(type, message, &own_);
}

void Trace::End(TraceTime end) {
  std::vector<OtlpSpan> spans;
  {
    MutexLock lock(mu_);
    if (ended_) return;
    ended_ = true;
    own_.set_end_time_unix_nano(std::max(UnixNanos(end), own_.start_time_unix_nano()));
    spans = std::move(spans_);
    spans.push_back(std::move(own_));
  }
  queue_->Put(std::move(spans));
}

void Trace::Add(OtlpSpan span) {
  MutexLock lock(mu_);
  if (ended_) return;
  if (spans_.size() < kMostSpans) {
    spans_.push_back(std::move(span));
  } else {
    queue_->Drop(SpanDrop::kRequest, 1);
  }
}

uint64_t Trace::UnixNanos(TraceTime time) const {
  return static_cast<uint64_t>((time.time_since_epoch() + ahead_).count());
}

}  // namespace athanor
