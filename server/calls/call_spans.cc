#include "server/calls/call_spans.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/base/public_status.h"

namespace athanor {
namespace {

std::string NameOf(const RecordedSink::Facts& facts) {
  return absl::StrCat(facts.operation, " ", facts.model);
}

void Describe(const RecordedSink::Facts& facts, Trace::Span* sequence) {
  sequence->Set("gen_ai.operation.name", facts.operation)
      .Set("gen_ai.provider.name", "athanor")
      .Set("gen_ai.request.model", facts.model)
      .Set("gen_ai.response.model", absl::StrCat(facts.model, ":", facts.version));
}

}  // namespace

void AddModel(Trace& trace, const ModelVersion& version) {
  trace.Set("athanor.model.name", version.name());
  trace.Set("athanor.model.version", absl::StrCat(version.version()));
}

void AddRun(Trace& trace, TraceTime ready, const ServedPlan& plan, const RunTimes& times) {
  const TraceTime joins = std::max(ready, times.began - std::chrono::microseconds(times.batch_us));
  trace.Child("queue", ready, joins);
  if (joins < times.began) trace.Child("batch wait", joins, times.began);
  if (!times.ran) return;
  Trace::Span run =
      trace.Child("run", times.began, times.began + std::chrono::microseconds(times.exec_us));
  run.Set("athanor.plan.id", plan.id())
      .Set("athanor.plan.bucket", plan.bucket)
      .Set("athanor.plan.kind", plan.compiled->plan.kind());
  if (times.batch_rows > 0) run.Set("athanor.batch.rows", times.batch_rows);
  if (times.sharers == nullptr) return;
  std::vector<TraceContext> others;
  for (const TraceContext& span : *times.sharers) {
    if (span.span != trace.context().span) others.push_back(span);
  }
  run.Link(others);
}

bool RecordedSink::Write(std::vector<GenerateEvent> events) {
  CountTokens(events);
  return sink_.Write(std::move(events));
}

bool RecordedSink::WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) {
  CountTokens(events);
  if (const GenerateEvent& last = events.back(); last.summary.has_value()) {
    AddEnded(*last.summary, last.finish);
  } else {
    AddFailed(status);
  }
  return sink_.WriteLast(std::move(events), status);
}

void RecordedSink::End(const absl::Status& status) {
  AddFailed(status);
  sink_.End(status);
}

void RecordedSink::CountTokens(const std::vector<GenerateEvent>& events) {
  for (const GenerateEvent& event : events) tokens_ += static_cast<int64_t>(event.tokens.size());
}

void RecordedSink::AddEnded(const SequenceSummary& summary, Finish finish) {
  const std::optional<Facts> facts = facts_();
  if (!facts.has_value()) return;
  Trace::Span sequence = trace_->Child(NameOf(*facts), facts->arrived, summary.last_token);
  Describe(*facts, &sequence);
  sequence.Set("gen_ai.usage.input_tokens", summary.prompt_tokens)
      .Set("gen_ai.usage.output_tokens", summary.generated_tokens)
      .Set("gen_ai.usage.cache_read.input_tokens", summary.cached_tokens)
      .Set("gen_ai.response.finish_reasons",
           std::vector<std::string>{finish == Finish::kStop ? "stop" : "length"})
      .Set("athanor.plan.id", summary.plan_id)
      .Set("athanor.preemptions", summary.preemptions);
  sequence.Child("queue", facts->arrived, summary.started);
  if (summary.generated_tokens > 0) {
    sequence.Event("first token", summary.first_token);
    sequence.Child("prefill", summary.started, summary.first_token);
    sequence.Child("decode", summary.first_token, summary.last_token);
  }
}

void RecordedSink::AddFailed(const absl::Status& status) {
  const std::optional<Facts> facts = facts_();
  if (!facts.has_value()) return;
  const absl::Status told = PublicStatus(status);
  const std::string code = absl::StatusCodeToString(told.code());
  Trace::Span sequence = trace_->Child(NameOf(*facts), facts->arrived, TraceTime::clock::now());
  Describe(*facts, &sequence);
  sequence.Set("gen_ai.usage.output_tokens", tokens_);
  if (absl::IsCancelled(told)) {
    sequence.Set("error.type", code);  // its client left: the server did not fail
  } else {
    sequence.Fail(code, told.message());
  }
}

}  // namespace athanor
