// A collector within the test.
//
//   auto sender = std::make_unique<FakeSender>();
//   FakeCollector& collector = *sender->collector();
//   Tracer tracer(1'000'000, Quick(), std::move(sender), {}, &metrics);
//   collector.AwaitSpans(3);
#ifndef ATHANOR_SERVER_TRACING_TRACER_TESTING_H_
#define ATHANOR_SERVER_TRACING_TRACER_TESTING_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/tracing/tracer.h"

namespace athanor {

// Says what a Send returns, and has what it was sent. Thread-safe.
class FakeCollector {
 public:
  // Answers sends from now on; an OK status takes them.
  void Answer(absl::Status status, int64_t refused = 0) {
    MutexLock lock(mu_);
    answer_ = std::move(status);
    refused_ = refused;
    told_.NotifyAll();
  }
  // Has sends wait until Answer, or until they are cancelled.
  void Hang() {
    MutexLock lock(mu_);
    answer_ = absl::UnknownError("hangs");
  }
  // Returns the spans that it took, once there are so many.
  std::vector<OtlpSpan> AwaitSpans(size_t spans) {
    MutexLock lock(mu_);
    while (spans_.size() < spans) told_.Wait(lock);
    return spans_;
  }
  // Returns when so many sends have begun.
  void AwaitSends(int64_t sends) {
    MutexLock lock(mu_);
    while (sends_ < sends) told_.Wait(lock);
  }
  int64_t sends() {
    MutexLock lock(mu_);
    return sends_;
  }
  std::vector<size_t> batches() {
    MutexLock lock(mu_);
    return batches_;
  }
  SpanSender::Request last() {
    MutexLock lock(mu_);
    return last_;
  }

  absl::StatusOr<int64_t> Send(const SpanSender::Request& request) {
    MutexLock lock(mu_);
    ++sends_;
    told_.NotifyAll();
    while (absl::IsUnknown(answer_) && !cancelled_) told_.Wait(lock);
    if (cancelled_) return absl::CancelledError("the server stops");
    if (!answer_.ok()) return answer_;
    last_ = request;
    const auto& spans = request.resource_spans(0).scope_spans(0).spans();
    spans_.insert(spans_.end(), spans.begin(), spans.end());
    batches_.push_back(static_cast<size_t>(spans.size()));
    return refused_;
  }
  void Cancel() {
    MutexLock lock(mu_);
    cancelled_ = true;
    told_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar told_;
  absl::Status answer_ ABSL_GUARDED_BY(mu_);
  int64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t sends_ ABSL_GUARDED_BY(mu_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<OtlpSpan> spans_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> batches_ ABSL_GUARDED_BY(mu_);
  SpanSender::Request last_ ABSL_GUARDED_BY(mu_);
};

class FakeSender final : public SpanSender {
 public:
  // Outlives the sender.
  const std::shared_ptr<FakeCollector>& collector() const { return collector_; }

  absl::StatusOr<int64_t> Send(const Request& request, std::chrono::milliseconds) override {
    return collector_->Send(request);
  }
  void Cancel() override { collector_->Cancel(); }

 private:
  const std::shared_ptr<FakeCollector> collector_ = std::make_shared<FakeCollector>();
};

// Sends what there is at once.
inline ExporterOptions Quick() {
  return {.gather = std::chrono::milliseconds(1),
          .first_retry = std::chrono::milliseconds(1),
          .longest_retry = std::chrono::milliseconds(2)};
}

// Returns the attribute's text, its number as text, or "none".
inline std::string AttributeOf(const OtlpSpan& span, absl::string_view key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() != key) continue;
    const auto& value = attribute.value();
    return value.has_int_value() ? std::to_string(value.int_value()) : value.string_value();
  }
  return "none";
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TRACING_TRACER_TESTING_H_
