#include "server/tracing/span_exporter.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "deploy/bazel/libs/version.h"
#include "server/base/log.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Reports whether a later attempt may succeed, as OTLP's specification says.
bool MayArriveLater(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    case absl::StatusCode::kResourceExhausted:
      return RetryAfter(status).count() > 0;
    default:
      return false;
  }
}

}  // namespace

SpanExporter::SpanExporter(const ExporterOptions& options, std::unique_ptr<SpanSender> sender,
                           opentelemetry::proto::resource::v1::Resource resource,
                           MetricCells* metrics)
    : options_(options),
      sender_(std::move(sender)),
      resource_(std::move(resource)),
      metrics_(*metrics),
      queue_(std::make_shared<SpanQueue>(options.most_queued, metrics)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "spans");
}

SpanExporter::~SpanExporter() {
  const Clock::time_point until = Clock::now() + options_.last;
  queue_->Close();
  {
    MutexLock lock(mu_);
    while (!ended_) {
      if (!told_.WaitUntil(lock, until)) break;
    }
  }
  sender_->Cancel();
  thread_.join();
}

void SpanExporter::Run() {
  while (true) {
    std::vector<OtlpSpan> spans = queue_->Take(options_.batch, options_.gather);
    if (spans.empty()) break;
    SpanSender::Request request;
    auto* from = request.add_resource_spans();
    *from->mutable_resource() = resource_;
    auto* scope = from->add_scope_spans();
    scope->mutable_scope()->set_name("athanord");
    scope->mutable_scope()->set_version(kVersion);
    for (OtlpSpan& span : spans) scope->add_spans()->Swap(&span);
    Export(request);
  }
  MutexLock lock(mu_);
  ended_ = true;
  told_.NotifyAll();
}

void SpanExporter::Export(const SpanSender::Request& request) {
  const int64_t spans = request.resource_spans(0).scope_spans(0).spans_size();
  const Clock::time_point give_up = Clock::now() + options_.give_up;
  bool last = false;  // the end comes: one more attempt, and no waiting
  for (auto wait = options_.first_retry;; wait = std::min(2 * wait, options_.longest_retry)) {
    const absl::StatusOr<int64_t> refused = sender_->Send(request, options_.timeout);
    Note(refused.status());
    if (refused.ok()) {
      const int64_t dropped = std::clamp<int64_t>(*refused, 0, spans);
      metrics_.Count(Metric::kSpansSent, 0, spans - dropped);
      if (dropped > 0) metrics_.Count(Metric::kSpansDropped, SpanDrop::kRefused, dropped);
      return;
    }
    if (!MayArriveLater(refused.status())) {
      metrics_.Count(Metric::kSpansDropped, SpanDrop::kRefused, spans);
      return;
    }
    const std::chrono::milliseconds pause = std::max(wait, RetryAfter(refused.status()));
    if (last || Clock::now() >= give_up) {
      metrics_.Count(Metric::kSpansDropped, SpanDrop::kUnsent, spans);
      return;
    }
    last = queue_->AwaitClose(pause);
  }
}

void SpanExporter::Note(const absl::Status& status) {
  if (lost_ == !status.ok()) return;
  lost_ = !status.ok();
  if (lost_) {
    LogWarn("the collector of spans does not take them", {{"error", status.ToString()}});
  } else {
    LogInfo("the collector of spans takes them again");
  }
}

}  // namespace athanor
