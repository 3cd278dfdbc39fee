// The spans of a request that is recorded: its parts, from times that are measured anyway.
//
//   if (caller.trace != nullptr) AddRun(*caller.trace, ready, plan, times);
#ifndef ATHANOR_SERVER_CALLS_CALL_SPANS_H_
#define ATHANOR_SERVER_CALLS_CALL_SPANS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/batch/queued_request.h"
#include "server/calls/token_stream.h"
#include "server/models/model_version.h"
#include "server/plans/served_plan.h"
#include "server/tracing/trace.h"

namespace athanor {

// Says which model the request is about.
void AddModel(Trace& trace, const ModelVersion& version);

// Adds the wait in the queue, that for others to share the call, and the run. `ready`: since when
// nothing but its turn was missing.
void AddRun(Trace& trace, TraceTime ready, const ServedPlan& plan, const RunTimes& times);

// Stands ahead of a sequence's sink, and adds the sequence's spans when it ends: with its summary,
// or else with the error, by which no times of its parts are known.
class RecordedSink final : public TokenSink {
 public:
  struct Facts {
    TraceTime arrived;
    std::string operation;  // gen_ai.operation.name
    std::string model, version;
  };
  // `facts` are asked for once, at the end; nothing: no sequence was started. `sink` outlives it.
  RecordedSink(std::shared_ptr<Trace> trace, TokenSink* sink,
               std::function<std::optional<Facts>()> facts)
      : trace_(std::move(trace)), sink_(*sink), facts_(std::move(facts)) {}

  bool Write(std::vector<GenerateEvent> events) override;
  bool WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) override;
  void End(const absl::Status& status) override;
  void Break(const absl::Status& why) override { sink_.Break(why); }

 private:
  void CountTokens(const std::vector<GenerateEvent>& events);
  void AddEnded(const SequenceSummary& summary, Finish finish);
  void AddFailed(const absl::Status& status);

  const std::shared_ptr<Trace> trace_;
  TokenSink& sink_;
  const std::function<std::optional<Facts>()> facts_;
  int64_t tokens_ = 0;  // that were written
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_CALL_SPANS_H_
