// Sends what a sequence generates to its client: takes all that is in the outbox, hands it to a
// sink, and takes more when that is written. So a client that reads slowly leaves the outbox full,
// and the engine pauses its sequence.
//
//   auto stream = std::make_shared<TokenStream>(sink, &timer, writer);
//   ASSIGN_OR_RETURN(auto started, engine->Start(input, [stream] { stream->Ask(); }));
//   stream->Open(engine, started);
//   stream->Written(true);    // by the sink: the write is done
//   stream->Leave();          // by the sink: it goes away
//
// A write that waits for its client longer than the engine's `longest_pause`, with more to send
// behind it, is broken off: RESOURCE_EXHAUSTED. Thread-safe. The sink is called with the stream's
// lock held, and ended once.
#ifndef ATHANOR_SERVER_CALLS_TOKEN_STREAM_H_
#define ATHANOR_SERVER_CALLS_TOKEN_STREAM_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/timer.h"
#include "server/calls/stream_writer.h"
#include "server/generate/engine.h"

namespace athanor {

// Takes what a sequence generates: a call, or a choice of one. Not called again behind WriteLast or
// End, but for a Break of the last write.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Writes events, at least one. Returns whether that takes time: then nothing more comes until
  // TokenStream::Written tells the end.
  virtual bool Write(std::vector<GenerateEvent> events) = 0;
  // Writes the events, and ends behind them. Returns the same.
  virtual bool WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) = 0;
  virtual void End(const absl::Status& status) = 0;
  // Breaks off the pending write, because the client does not read. The client still learns why, if
  // its protocol has a way to tell it.
  virtual void Break(const absl::Status& why) = 0;
};

class TokenStream final : public StreamWriter::Stream,
                          public std::enable_shared_from_this<TokenStream> {
 public:
  // `sink` and `timer` must live until Leave.
  TokenStream(TokenSink* sink, Timer* timer, std::shared_ptr<StreamWriter> writer)
      : timer_(*timer), writer_(std::move(writer)), sink_(sink) {}

  // Has the writer look at the outbox. Any thread, holding any lock but the stream's own.
  void Ask() { writer_->Ask(shared_from_this()); }
  // Sends what comes from now on. `engine` must live until Leave.
  void Open(Engine* engine, Engine::Started started);
  // Ends a stream that is not open.
  void Refuse(const absl::Status& status);
  // Reports that the write that was begun last is done; if not ok, that the client has left.
  void Written(bool ok);
  // Reports that the client has left. Ends the call and its sequence, or lets Open and Refuse do
  // so.
  void Cancel(const absl::Status& status);
  // Returns what Cancel was given; OK: the client is there.
  absl::Status cancelled() const;
  void Leave();

  void Look() override;

 private:
  void LookLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(Outbox::Content content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the call, unless it has ended.
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Breaks the pending write off if it is still pending after `longest_write_`.
  void WatchWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakIfPending(int64_t write);
  // Ends the sequence: nobody takes from its outbox any more.
  void Abandon(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Timer& timer_;
  const std::shared_ptr<StreamWriter> writer_;
  mutable Mutex mu_;
  TokenSink* sink_ ABSL_GUARDED_BY(mu_);           // null: it has left
  Engine* engine_ ABSL_GUARDED_BY(mu_) = nullptr;  // null: it is not open, or the sequence is over
  Engine::Started started_ ABSL_GUARDED_BY(mu_);
  SequenceTime::duration longest_write_ ABSL_GUARDED_BY(mu_){};
  int64_t writes_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
  Timer::Id watch_ ABSL_GUARDED_BY(mu_) = 0;  // 0: no write is watched
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_TOKEN_STREAM_H_
