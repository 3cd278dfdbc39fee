// Decides which rows the next step of a version computes: one for each sequence that decodes, then
// pieces of prompts, up to a number of rows.
//
//   BlockPool pool(blocks);
//   Scheduler scheduler(options, &pool);
//   RETURN_IF_ERROR(scheduler.Add(id, request));
//   while (true) {
//     Step step = scheduler.Next(now, times);
//     absl::Status ran = ...;                  // the plan, over BlocksOf each of step.tables
//     if (ran.ok()) scheduler.Done(step, told);  // a token for each wanted row
//     else scheduler.Failed(step, ran);
//     for (const Ended& ended : scheduler.TakeEnded()) ...
//   }
//
// Sequences wait by priority, then by arrival. One is admitted once those before it are, a place is
// free, and the pool has the blocks of its tokens and one more for each sequence that runs; it
// takes them then, and further ones as it generates.
//
// Sequences with a root name their blocks as they fill. One that is admitted shares the longest run
// of blocks that the pool has for its tokens, all but the last token's, and computes the rest: a
// block with two references is never written. If a running one is about to store the next block
// that it lacks, it waits for that.
//
// Where a row needs a block and none is free, another sequence is preempted: it gives up its blocks
// and waits again in its old order, to have all of its tokens computed anew. Its client notices
// nothing but the time. The first in order is never preempted, so that always one comes to its end.
//
// A client that has more than its share of the places, and none else, gives way to others: in each
// step one sequence of it is preempted for a waiting one of a client that has less than its share;
// it has no rows while a prompt of such a client is computed that has had fewer tokens; and where
// the rows of several clients that decode take longer than the target, those of it take turns.
//
// A step that failed comes again from Next by halves of its sequences, until the guilty one is
// alone and ends with the error: writing keys and values again changes nothing.
//
// Pure: time is given, and each call returns at once. Not thread-safe: an engine's thread owns it.
// Between Next and Done or Failed, what ends keeps its blocks, since the step may still write them.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_SCHEDULER_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/generate/schedule/block_pool.h"
#include "server/generate/schedule/fair_order.h"
#include "server/generate/schedule/sequence.h"
#include "server/generate/schedule/step_times.h"

namespace athanor {

struct SchedulerOptions {
  int64_t max_batched_tokens = 512;  // rows of a step
  int64_t max_sequences = 64;        // admitted at a time; at most max_batched_tokens count
  int64_t max_model_len = 2048;      // tokens of a prompt and what follows it
  int64_t max_waiting = 1024;        // sequences that are not admitted yet
  int64_t block = 16;                // positions of a block
  // Tells a client how the pool gets more blocks.
  const char* more_blocks = "raise --kv_memory";
  // The time for which a client may read nothing before its sequence ends.
  SequenceTime::duration longest_pause = std::chrono::seconds(30);
  // The time that a step with a sequence that decodes should take at most: fewer rows of prompts
  // are computed beside it. Zero: none.
  SequenceTime::duration itl_target{0};
  // The number of times that a sequence gives up its blocks before others are asked first. 0: none
  // gives way to clients below their share.
  int64_t max_preemptions = 8;
};

struct Row {
  int32_t sequence = 0;  // index in Step::tables
  int32_t position = 0;
  int32_t token = 0;
  bool wanted = false;  // the row's logits choose the next token
  bool operator==(const Row&) const = default;
};

// The rows of a sequence are neighbours, by ascending position; at most its last one is wanted.
struct Step {
  std::vector<Row> rows;
  std::vector<SequenceId> tables;
};

// The outcome of a wanted row: a token, or an error that ends the sequence.
struct Told {
  SequenceId id = 0;
  int32_t token = 0;
  bool stop = false;  // a stop string is complete
  absl::Status status;
};

struct Ended {
  SequenceId id = 0;
  Finish finish = Finish::kNone;
  absl::Status status;  // OK if `finish` says why
  int64_t cached_tokens = 0;
  int64_t preemptions = 0;
};

// Counts what a scheduler has done since it was made.
struct SchedulerCounts {
  int64_t prompt_tokens = 0;      // computed for the first time
  int64_t recomputed_tokens = 0;  // computed again after a preemption
  int64_t queried_tokens = 0;     // of prompts that looked for kept blocks
  int64_t cached_tokens = 0;      // of these: found
  int64_t preemptions = 0;
};

class Scheduler {
 public:
  // `pool` must outlive the scheduler. REQUIRES: sizes and numbers of sequences in `options` are
  // at least 1.
  Scheduler(const SchedulerOptions& options, BlockPool* pool);

  // Lets a sequence wait for its turn. Returns INVALID_ARGUMENT, with the numbers, if its fields
  // are wrong or its prompt can never fit, RESOURCE_EXHAUSTED if too many wait, and ALREADY_EXISTS
  // if the id is in use; an id must not come back. Lowers max_tokens to what context and pool have
  // room for.
  absl::Status Add(SequenceId id, SequenceRequest request);
  // Ends what has run out of time, admits, and returns the next step. It has no rows if nothing
  // can run now. `times` says how long steps take. REQUIRES: no step is running.
  Step Next(SequenceTime now, const StepTimes& times);
  // Reports that the step has run. `told` has one entry for each wanted row. Rows of sequences that
  // ended meanwhile are ignored.
  void Done(const Step& step, absl::Span<const Told> told);
  // Reports that the step has failed and may be run again.
  void Failed(const Step& step, const absl::Status& status);
  // Reports that the step was not run, since there is no memory for blocks of it that nobody keeps:
  // the last in order is preempted, and the step's other rows come again. A sequence that runs
  // alone ends with the status; with `waits` its rows come again, and the call returns true. From
  // then on at most so many run as do, and one more after every 32 steps.
  bool Refused(const Step& step, const absl::Status& status, bool waits);
  // Preempts the sequence that runs alone: pages may have room that its blocks do not lie in, and
  // it is computed anew in the lowest ones. Returns false if none runs alone, or it was so three
  // times.
  bool StartAnew();
  // Ends a sequence with an error. Does nothing if it has ended.
  void Cancel(SequenceId id, const absl::Status& status);
  // Gives a sequence no rows until it is resumed: its client does not read. It keeps its place and
  // its blocks until others need them. Rows of it in a step that failed are still run again.
  void Pause(SequenceId id, SequenceTime now);
  void Resume(SequenceId id);
  // Takes the keys of all blocks away: what computes keys and values is about to change, or has.
  // Sequences that run name no more blocks.
  void Forget();
  // Returns those that ended since the last call, in that order; their blocks are free.
  std::vector<Ended> TakeEnded();

  // Returns null if there is no such sequence, or it has ended. Valid until the next call.
  const Sequence* Find(SequenceId id) const { return Get(id); }
  // The blocks of a sequence's positions, by ascending position. Valid until the next call; while
  // a step with the sequence runs, until Done or Failed. REQUIRES: Find(id) is not null.
  absl::Span<const int32_t> BlocksOf(SequenceId id) const { return Find(id)->blocks; }
  // The time at which Next has something to end; SequenceTime::max() if there is none.
  SequenceTime NextEnd() const;
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }  // also if paused
  int64_t paused() const;
  const SchedulerCounts& counts() const { return counts_; }

 private:
  // Lowers max_tokens to what there is room for. REQUIRES: prompt and max_tokens are not empty.
  absl::Status Fit(Sequence* sequence) const;
  int64_t BlocksFor(int64_t positions) const {
    return (positions + options_.block - 1) / options_.block;
  }
  // Puts the sequence's end into `ends_`.
  void SetEnd(Sequence* sequence);
  void EndLate(SequenceTime now);

  // Give places and blocks: scheduler_places.cc.
  void Admit();
  // Returns the sequence to admit next; null if none may be.
  Sequence* FirstWaiting();
  // Returns the first of a client's waiting sequences of this priority; null if all of them pause,
  // or wait for a block that another is about to store.
  Sequence* FirstOf(const FairOrder::Client* client, int64_t priority);
  // Returns the blocks that a waiting sequence would share. Looks up only what has changed since
  // the last call.
  const std::vector<int32_t>& Hits(Sequence* sequence) const;
  // Reports whether the sequence waits for a block that another is about to store. StillAwaits
  // looks only at the sequence that Awaits found last.
  bool Awaits(Sequence* sequence) const;
  bool StillAwaits(Sequence* sequence) const;
  // Reports whether the sequence has a key for the block, and tokens behind it: the last token is
  // computed in a block of its own.
  bool IsSharable(const Sequence& sequence, int64_t block) const;
  bool IsAboutToStore(const Sequence& sequence, int64_t block) const;
  // Reports whether the sequence can be admitted, once it has preempted those that give way to it.
  bool MakeRoomFor(Sequence* sequence);
  bool HasRoomFor(Sequence* sequence) const;
  // Returns a sequence of a client above its share that gives way to a waiting one; null if none
  // does.
  Sequence* GivesWayTo(const Sequence& sequence) const;
  // Gives it a place, the blocks that it shares, and further ones for all of its tokens.
  void Place(Sequence* sequence);
  // Preempts until there is a block for each of these that needs one and still runs.
  void MakeRoomForRows(absl::Span<Sequence* const> decoding);
  // Returns the sequence to preempt next; null: none but the first in order runs.
  Sequence* Victim() const;
  bool IsFirstInOrder(const Sequence* sequence) const;
  void Preempt(Sequence* sequence);
  // Takes place and blocks away.
  void Displace(Sequence* sequence);

  void NameBlock(Sequence* sequence, int64_t block);
  Step Again();
  Step Fresh(const StepTimes& times);
  // Sequences that may have rows in the next step.
  struct Ready {
    std::vector<Sequence*> decoding, prompts;  // in order
  };
  Ready ReadyOnes() const;
  // Leaves out clients above their share while a prompt of one below is computed.
  void PutOff(Ready* ready) const;
  // Leaves out rows of clients above their share where several clients decode and all rows take
  // longer than the target: those that decode have turns by their last rows, and prompts every
  // second step.
  void TakeTurns(const StepTimes& times, Ready* ready) const;
  // Returns the number of prompts' rows that a step may have beside rows that decode.
  int64_t PromptRows(int64_t decoding, const StepTimes& times) const;
  // Appends the sequence's next `count` rows, and takes the blocks that they need.
  void AddRows(Sequence* sequence, int64_t count, Step* step);
  // Marks the step's sequences as running, or ends those that failed while they did.
  void SetInStep(const Step& step, bool in_step);
  void Fail(Sequence* sequence, const absl::Status& status);
  void End(Sequence* sequence, Finish finish, const absl::Status& status);
  Sequence* Get(SequenceId id) const;

  SchedulerOptions options_;
  BlockPool* pool_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const {
      return std::pair(a->priority, a->arrival) < std::pair(b->priority, b->arrival);
    }
  };
  absl::btree_set<Sequence*, Before> waiting_, running_;
  absl::btree_set<std::pair<SequenceTime, SequenceId>> ends_;  // of those that have one
  FairOrder fair_;
  std::vector<Step> again_;  // parts of failed steps; the last one is next
  std::vector<Ended> ended_;
  SchedulerCounts counts_;
  int64_t arrived_ = 0;
  int64_t steps_ = 0;
  bool gave_way_ = false;     // somebody to a client below its share, ahead of this step
  int64_t most_running_ = 0;  // max_sequences, or fewer after a step was refused memory
  int64_t steps_since_refusal_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_SCHEDULER_H_
