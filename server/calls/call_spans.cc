#include "server/calls/call_spans.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace athanor {

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

bool RecordedSink::WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) {
  const GenerateEvent& last = events.back();
  if (last.summary.has_value()) {
    const SequenceSummary& summary = *last.summary;
    const Facts facts = facts_();
    Trace::Span sequence = trace_->Child(absl::StrCat(facts.operation, " ", facts.model),
                                         facts.arrived, summary.last_token);
    sequence.Set("gen_ai.operation.name", facts.operation)
        .Set("gen_ai.provider.name", "athanor")
        .Set("gen_ai.request.model", facts.model)
        .Set("gen_ai.response.model", absl::StrCat(facts.model, ":", facts.version))
        .Set("gen_ai.usage.input_tokens", summary.prompt_tokens)
        .Set("gen_ai.usage.output_tokens", summary.generated_tokens)
        .Set("gen_ai.usage.cache_read.input_tokens", summary.cached_tokens)
        .Set("gen_ai.response.finish_reasons",
             std::vector<std::string>{last.finish == Finish::kStop ? "stop" : "length"})
        .Set("athanor.plan.id", summary.plan_id)
        .Set("athanor.preemptions", summary.preemptions);
    sequence.Child("queue", facts.arrived, summary.started);
    if (summary.generated_tokens > 0) {
      sequence.Event("first token", summary.first_token);
      sequence.Child("prefill", summary.started, summary.first_token);
      sequence.Child("decode", summary.first_token, summary.last_token);
    }
  }
  return sink_.WriteLast(std::move(events), status);
}

}  // namespace athanor
