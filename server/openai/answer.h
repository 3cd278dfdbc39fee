// The answer to one request for tokens, whole or as a stream of events, from the request's fields
// to the last byte.
//
//   Answer::Begin({core, writer, exchange, "gpt-4o"}, std::move(request), std::move(memory));
//
// An answer holds itself until all its choices have ended and the client has all of it, or has
// left. Thread-safe.
//
// In a stream, a choice has one chunk that is not written. What choices say while a write is
// pending gathers, and goes out in one write behind it.
#ifndef ATHANOR_SERVER_OPENAI_ANSWER_H_
#define ATHANOR_SERVER_OPENAI_ANSWER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/calls/generation.h"
#include "server/core/core.h"
#include "server/http/exchange.h"
#include "server/openai/completion.h"
#include "server/openai/request.h"

namespace athanor {

class Answer final : public HttpExchange::Watcher, public std::enable_shared_from_this<Answer> {
 public:
  struct Call {
    ServerCore& core;
    std::shared_ptr<StreamWriter> writer;
    std::shared_ptr<HttpExchange> exchange;
    std::string model;  // as the client names it
  };
  // `memory` is that of the request, which names the model as the server does.
  static void Begin(Call call, OpenAiRequest request, ServerLedger::Reservation memory);

  ~Answer() override;

  void Written() override;
  void Left() override;

 private:
  // A sequence of the request.
  class Choice final : public TokenSink {
   public:
    Choice(Answer* answer, size_t index) : answer_(*answer), index_(index) {}
    bool Write(std::vector<GenerateEvent> events) override {
      return answer_.Add(index_, std::move(events), nullptr);
    }
    bool WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) override {
      return answer_.Add(index_, std::move(events), &status);
    }
    void End(const absl::Status& status) override { answer_.EndChoice(status); }
    void Break(const absl::Status& why) override { answer_.Break(why); }

   private:
    Answer& answer_;
    const size_t index_;
  };

  Answer(Call call, const OpenAiRequest& request);

  void Start(std::vector<v1::GenerateRequest> requests, ServerLedger::Reservation memory);

  // Take what sinks are told. Each runs with a stream's lock held. Add returns whether a write of
  // the choice is pending.
  bool Add(size_t index, std::vector<GenerateEvent> events, const absl::Status* end);
  void EndChoice(const absl::Status& status);
  void Break(const absl::Status& why);

  void AddEvents(size_t index, std::vector<GenerateEvent> events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes what has to be known of the sequences, with their first event.
  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string EchoOf(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountUsage(size_t index, const SequenceSummary& summary) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that a choice is over, with all of it in `parts_` or in `gathered_`.
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the answer an error, or ends the stream with one. The first one counts.
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends what there is to send, unless a write is pending.
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FlushStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes room for the parts of a whole answer.
  absl::Status Reserve(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of the answer, elsewhere, once nothing calls it any more.
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Report(const absl::Status& status) const;

  ServerCore& core_;
  const std::shared_ptr<HttpExchange> exchange_;
  const Endpoint endpoint_;
  const std::string model_;
  const std::string id_;
  const SequenceTime arrived_ = SequenceTime::clock::now();
  const int64_t created_;
  const size_t n_;
  const bool stream_, include_usage_, logprobs_, echo_;
  std::vector<Choice> choices_;
  std::shared_ptr<Generation> generation_;

  Mutex mu_;
  std::shared_ptr<Answer> self_ ABSL_GUARDED_BY(mu_);
  std::optional<AnswerWriter> writer_ ABSL_GUARDED_BY(mu_);  // from the first event on
  std::vector<ChoiceReader> readers_ ABSL_GUARDED_BY(mu_);   // by choice, from then on
  std::vector<ChoicePart> parts_ ABSL_GUARDED_BY(mu_);       // by choice, of a whole answer
  std::vector<bool> opened_ ABSL_GUARDED_BY(mu_);            // by choice: its first chunk was made
  std::vector<v1::GenerateRequest> prompts_ ABSL_GUARDED_BY(mu_);  // to echo
  UsageCounts usage_ ABSL_GUARDED_BY(mu_);
  size_t ended_ ABSL_GUARDED_BY(mu_) = 0;  // number of choices
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  std::string gathered_ ABSL_GUARDED_BY(mu_);             // events to be written
  std::vector<size_t> gathered_of_ ABSL_GUARDED_BY(mu_);  // choices that have chunks there
  std::vector<size_t> writing_of_ ABSL_GUARDED_BY(mu_);   // and in the write that is pending
  bool begun_ ABSL_GUARDED_BY(mu_) = false;               // the stream's head is sent
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool last_ ABSL_GUARDED_BY(mu_) = false;  // the end was sent
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // the exchange calls no more
  int64_t reserved_ ABSL_GUARDED_BY(mu_) = 0, held_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<ServerLedger::Reservation> memory_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_ANSWER_H_
