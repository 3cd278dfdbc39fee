// A request for tokens, from its fields to the sequences of an engine: finds the model, makes the
// prompts' tokens, waits for the version's first plan if there is none, and starts a sequence for
// each sink. Whoever speaks to the client owns it, and is told by its sinks.
//
//   auto generation = Generation::Make(core, writer, {.client = peer}, {this});
//   generation->Begin({std::move(request)}, std::move(parsed_memory));
//   generation->Written(0, true);   // the sink's write is done
//   generation->Leave();            // the sinks go away
//
// Holds no thread while it waits for a plan, nor while tokens are computed. Thread-safe; a sink may
// be called before Begin returns.
#ifndef ATHANOR_SERVER_CALLS_GENERATION_H_
#define ATHANOR_SERVER_CALLS_GENERATION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/calls/call_owner.h"
#include "server/calls/call_spans.h"
#include "server/calls/token_stream.h"
#include "server/core/core.h"

namespace athanor {

struct GenerationCaller {
  std::string client;            // whose share of the engine it counts for
  std::string cache_group = "";  // callers of another share no beginnings of prompts with it
  SequenceTime arrived = SequenceTime::clock::now();
  SequenceTime deadline = SequenceTime::max();
  std::shared_ptr<Trace> trace = nullptr;  // null: it is not recorded
  // Called once the request's bytes are not needed any more; may be null.
  std::function<void()> read = nullptr;
};

// Holds what answers say beside the sequence's own events.
struct StreamFacts {
  SequenceTime arrived;  // times count from here
  uint64_t seed = 0;
  std::string model_version;
  std::string signature;  // of the plan that served at the start
  bool logprobs = false;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: tokens have no bytes
};

class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  // The sinks must live until Leave; `core` and what `caller` calls until it is gone.
  static std::shared_ptr<Generation> Make(ServerCore& core,
                                          const std::shared_ptr<StreamWriter>& writer,
                                          GenerationCaller caller,
                                          const std::vector<TokenSink*>& sinks);

  // Starts all sequences or, if one is refused, none: then each sink is ended with the error.
  // Requests are of one model and differ in their prompts; each has as many sinks, in order, whose
  // seeds count up from the request's. REQUIRES: called once, and the number of sinks is a multiple
  // of the number of requests, not 0.
  void Begin(std::vector<v1::GenerateRequest> requests, ServerLedger::Reservation memory);
  // Ends all sinks instead of Begin.
  void Refuse(const absl::Status& status);
  // Reports that the sink's write is done; if not ok, that the client has left.
  void Written(size_t sequence, bool ok) { streams_[sequence]->Written(ok); }
  // Reports that the client has left: all sequences end, with `status`.
  void Cancel(const absl::Status& status);
  // No sink is called any more. Sequences that run end.
  void Leave();

  // Valid from the first write on.
  const StreamFacts& facts(size_t sequence) const { return facts_[sequence]; }
  // Counts the request, which ended with `status`; for the last call of a sink, or behind it.
  void Count(const absl::Status& status) const;

 private:
  Generation(ServerCore& core, GenerationCaller caller);

  // Has the sink's sequence recorded.
  TokenSink* Record(TokenSink* sink);
  // Each ends the request, or goes on with the next. Several prompts are read on the queue "text".
  void Read();
  void Tokenize();
  void AwaitPlan();
  void GotPlan(const absl::Status& status);
  void Start();

  absl::Status Accept();
  absl::Status MakePrompts();
  // Counts the prompts' tokens, which each sequence has a copy of.
  absl::Status HoldPrompts();
  // Ends a request whose plan did not come in time.
  void Expire();
  void EndStall();
  // Frees memory that is not needed while sequences run.
  void FreeRequests();
  // Ends sequences that were started in vain.
  static void Abandon(Engine* engine, const std::vector<Engine::Started>& started,
                      const absl::Status& why);

  ServerCore& core_;
  const GenerationCaller caller_;
  std::vector<std::unique_ptr<RecordedSink>> recorded_;  // of a request that is
  std::vector<std::shared_ptr<TokenStream>> streams_;
  const std::shared_ptr<CallOwner> owner_;  // while it waits for its plan
  std::string operation_;                   // as OpenTelemetry names it
  SequenceTime stalled_{};                  // since when it does; unset if it does not

  std::vector<v1::GenerateRequest> requests_;
  ServerLedger::Reservation memory_;   // of the requests
  ServerLedger::Reservation prompts_;  // of their tokens, until the end
  std::shared_ptr<ModelVersion> version_;
  std::vector<GenerateInput> inputs_;  // by request
  std::vector<StreamFacts> facts_;     // by sequence
  bool started_ = false;               // that they are; read under the streams' locks
};

// Counts a request that ended with `status`; `version` is null if it found none.
void CountRequest(ServerCore& core, const ModelVersion* version, SequenceTime arrived,
                  const absl::Status& status);

// Returns the error of a request whose client has left. A server that ends cancels its calls, as
// clients do.
absl::Status ClientLeft(const ServerCore& core);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_GENERATION_H_
