// Keeps the sequences of an engine: what its thread and its callers share, under one lock.
//
//   EngineBook book(options);
//   RETURN_IF_ERROR(book.Add(id, std::move(request), std::move(reply), now));   // a caller
//   EngineBook::Turn turn = book.Next(now, times, signature);                   // the thread
//   std::vector<EngineBook::End> ends = book.Done(turn, told, facts, now);
//
// Nothing is called under the lock but the scheduler, so it is held for microseconds: a caller
// learns at once whether its sequence is taken, also while a step runs. Thread-safe; one thread
// takes turns.
#ifndef ATHANOR_SERVER_GENERATE_ENGINE_BOOK_H_
#define ATHANOR_SERVER_GENERATE_ENGINE_BOOK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/generate/block_room.h"
#include "server/generate/engine.h"
#include "server/generate/reply.h"
#include "server/generate/schedule/block_pool.h"
#include "server/generate/schedule/scheduler.h"
#include "server/generate/schedule/step_times.h"

namespace athanor {

class EngineBook final : public BlockRoom {
 public:
  explicit EngineBook(const EngineOptions& options);

  // Lets a sequence wait for its turn; errors are Scheduler::Add's, or what Close was given. If too
  // many wait, it says when to come again (server/base/retry_after.h): the time between ends
  // lately, of which idle times are no part.
  absl::Status Add(SequenceId id, SequenceRequest request, std::unique_ptr<Reply> reply,
                   SequenceTime now);
  SequenceId NewId();
  void Cancel(SequenceId id, const absl::Status& why);
  void Resume(SequenceId id);
  // The first status counts.
  void Close(const absl::Status& status);
  EngineView view() const;

  // A sequence that has ended, and is in the book no more.
  struct End {
    std::unique_ptr<Reply> reply;
    Finish finish = Finish::kNone;
    absl::Status status;  // OK if `finish` says why
    int64_t cached_tokens = 0, preemptions = 0;
  };
  struct Turn {
    Step step;
    std::vector<Reply*> replies;                    // by index in Step::tables, as the next are
    std::vector<absl::Span<const int32_t>> tables;  // valid until Done or Failed
    std::vector<End> ends;
    bool closed = false;  // no sequence is left, and none will come
    int64_t room = 0;     // bytes that others ask for; 0: nobody does
  };
  // `times` says how long turns take, and `signature` by what the step will compute keys and
  // values: where it is another than the last one, what is stored is forgotten.
  Turn Next(SequenceTime now, const StepTimes& times, const std::string& signature);

  // Says what the thread knows once a step has run.
  struct Facts {
    int64_t committed_bytes = 0;
    std::string plan_id;
  };
  // Report how a turn's step ended; return the sequences that ended with it. The replies of others
  // stay valid.
  std::vector<End> Done(const Turn& turn, absl::Span<const Told> told, const Facts& facts,
                        SequenceTime now);
  std::vector<End> Failed(const Turn& turn, const absl::Status& status, SequenceTime now);
  // As Failed, of a step that there is no memory for: some other time there may be. With `waits`, a
  // sequence that is alone does not end; `*alone` says whether it is, and its rows come again.
  std::vector<End> Refused(const Turn& turn, const absl::Status& status, bool waits, bool* alone,
                           SequenceTime now);
  // As Scheduler::StartAnew.
  bool StartAnew();
  // Gives these sequences no rows until they are resumed, unless their outboxes were drained
  // meanwhile.
  void Pause(absl::Span<const SequenceId> ids, SequenceTime now);
  // Returns when there is something new since the last Next, Next has a sequence to end, or it is
  // `until`.
  void Wait(SequenceTime until);
  // Reports by block whether a sequence has it, or it is kept for its contents.
  std::vector<bool> BlocksInUse() const;
  // Forgets the contents of up to `most` blocks that no sequence has, the oldest first; returns
  // them.
  std::vector<int32_t> Shed(int64_t most);
  void SetCommitted(int64_t bytes);

  int64_t unused_bytes() const override;
  void Ask(int64_t bytes) override;
  void Await(int64_t bytes, SequenceTime until) override;
  // Says that what was asked for before the last Next is given back; `ever`: and all that will be.
  void GaveRoom(bool ever = false);

 private:
  std::vector<End> TakeEnds(SequenceTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Learns that so many sequences have ended.
  void LearnEnds(int64_t ends, SequenceTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the thread that there is something new.
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts in the metrics what the scheduler has counted since the last call.
  void CountNew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Notes that so many bytes are asked for since the last Next; returns the number of the request.
  int64_t NoteAsked(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<VersionMetrics> metrics_;  // may be null
  const int64_t block_bytes_;
  mutable Mutex mu_;
  CondVar told_;
  bool news_ ABSL_GUARDED_BY(mu_) = false;
  BlockPool pool_ ABSL_GUARDED_BY(mu_);
  Scheduler scheduler_ ABSL_GUARDED_BY(mu_);
  SequenceId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Reply>> replies_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
  EngineView since_start_ ABSL_GUARDED_BY(mu_);    // what the scheduler does not know
  SchedulerCounts counted_ ABSL_GUARDED_BY(mu_);   // in the metrics
  std::string signature_ ABSL_GUARDED_BY(mu_);     // of the last step that was begun
  SequenceTime works_since_ ABSL_GUARDED_BY(mu_);  // the last end, or the first to come behind it
  SequenceTime::duration between_ends_ ABSL_GUARDED_BY(mu_){};  // moving average
  CondVar gave_room_;
  int64_t room_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // asked for since the last Next
  bool lacks_ ABSL_GUARDED_BY(mu_) = false;      // the thread itself: it has given all
  int64_t room_asked_ ABSL_GUARDED_BY(mu_) = 0;  // number of requests
  int64_t room_begun_ ABSL_GUARDED_BY(mu_) = 0;  // of these: seen by Next
  int64_t room_given_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_ENGINE_BOOK_H_
