#include "server/generate/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/generate/block_memory.h"
#include "server/generate/engine_book.h"
#include "server/generate/reply.h"
#include "server/generate/sample/sampler.h"
#include "server/generate/schedule/block_key.h"
#include "server/generate/schedule/step_times.h"

namespace athanor {
namespace {

// Blocks given back between two steps: each takes some system calls, and a step waits for them.
constexpr int64_t kGivenBackAStep = 2;
// As many where others lack memory.
constexpr int64_t kShedAStep = 16;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
// A sequence that waits for memory of a block tries so often to have it.
constexpr std::chrono::milliseconds kTryForRoom{100};
// An engine without steps looks so often for plans to let go: they hold weights.
constexpr std::chrono::seconds kTrimEvery{2};

SequenceTime Now() { return std::chrono::steady_clock::now(); }

class ThreadedEngine : public Engine {
 public:
  ThreadedEngine(const EngineOptions& options, std::unique_ptr<StepRunner> runner,
                 std::shared_ptr<const Tokenizer> tokenizer)
      : options_(options),
        tokenizer_(std::move(tokenizer)),
        book_(std::make_shared<EngineBook>(options)),
        runner_(std::move(runner)),
        memory_(runner_.get(), options.blocks),
        sampler_(TokensToChoose(options.vocabulary, tokenizer_.get())),
        thread_([this] { Loop(); }) {
    pthread_setname_np(thread_.native_handle(), "engine");
  }
  ~ThreadedEngine() override { Close(absl::CancelledError("the model's engine is gone")); }

  absl::StatusOr<Started> Start(GenerateInput input, Outbox::Callback filled) override;
  void Cancel(SequenceId id, const absl::Status& why) override { book_->Cancel(id, why); }
  void Close(const absl::Status& status) override;
  std::weak_ptr<BlockRoom> room() override { return book_; }
  EngineView view() const override { return book_->view(); }
  const EngineOptions& options() const override { return options_; }

 private:
  void Loop();
  void RunTurn(const EngineBook::Turn& turn);
  // Makes the memory of the blocks usable that the step writes.
  absl::Status Commit(const EngineBook::Turn& turn);
  // Notes that there is none. A sequence that is alone gives up its blocks and tries again, until
  // it has waited for long.
  void Refuse(const EngineBook::Turn& turn, const absl::Status& status);
  absl::StatusOr<absl::Span<const float>> RunStep(const EngineBook::Turn& turn);
  std::vector<Told> Choose(const EngineBook::Turn& turn, absl::Span<const float> logits);
  // Gives memory back between two steps, of up to `most` blocks that were not used for a while;
  // `all_shed`: and of all that no sequence has, should others lack memory.
  void GiveBack(int64_t most, bool all_shed);
  // Gives back the memory of up to `most` blocks that no sequence has, blank ones first; returns of
  // how many.
  int64_t Shed(int64_t most);
  // Gives back that of as many as have so many bytes, or of all.
  void ShedBytes(int64_t bytes);
  // Ends the replies, which stay until `ends` goes.
  void EndAll(absl::Span<const EngineBook::End> ends, SequenceTime now);

  const EngineOptions options_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  // Outboxes outlive the engine: they refer to the book only, and weakly.
  const std::shared_ptr<EngineBook> book_;
  // Used by the thread alone.
  std::unique_ptr<StepRunner> runner_;  // null once it is closed
  BlockMemory memory_;
  StepTimes times_;
  Sampler sampler_;
  // The sequence that is alone and waits for memory of a block, and since when.
  struct Lacking {
    SequenceId id = 0;
    SequenceTime since;
  };
  std::optional<Lacking> lacking_;
  Mutex join_mu_;
  std::thread thread_ ABSL_GUARDED_BY(join_mu_);
};

absl::StatusOr<Engine::Started> ThreadedEngine::Start(GenerateInput input,
                                                      Outbox::Callback filled) {
  const SequenceTime arrived = Now();
  RETURN_IF_ERROR(CheckInput(input, options_.vocabulary, tokenizer_.get()));
  SequenceRequest& sequence = input.sequence;
  // The pool is this engine's, and forgets where another signature comes: roots need none of it.
  sequence.root = RootKey(input.cache_group, input.cache_salt);
  if (static_cast<int64_t>(sequence.prompt.size()) < options_.scheduler.max_model_len) {
    AddKeys(*sequence.root, sequence.prompt, options_.scheduler.block, &sequence.keys);
  }
  Started started{.id = book_->NewId()};
  started.outbox =
      std::make_shared<Outbox>(options_.outbox_events, std::move(filled),
                               [id = started.id, weak = std::weak_ptr<EngineBook>(book_)] {
                                 if (const std::shared_ptr<EngineBook> book = weak.lock())
                                   book->Resume(id);
                               });
  auto reply =
      std::make_unique<Reply>(input, tokenizer_, options_.metrics, started.outbox, arrived);
  RETURN_IF_ERROR(book_->Add(started.id, std::move(input.sequence), std::move(reply), Now()));
  return started;
}

void ThreadedEngine::Close(const absl::Status& status) {
  book_->Close(status);
  MutexLock lock(join_mu_);  // others that close wait here
  if (!thread_.joinable()) return;
  thread_.join();
  runner_.reset();  // a version that is deleted may live on for a while
  book_->SetCommitted(0);
}

void ThreadedEngine::Loop() {
  while (true) {
    const EngineBook::Turn turn = book_->Next(Now(), times_, runner_->signature());
    EndAll(turn.ends, Now());
    if (!turn.step.rows.empty()) RunTurn(turn);
    if (turn.room > 0) {
      ShedBytes(turn.room);
      book_->GaveRoom();
    }
    if (turn.step.rows.empty()) lacking_.reset();
    if (lacking_.has_value()) {
      book_->Wait(Now() + kTryForRoom);
    } else if (!turn.step.rows.empty()) {
      GiveBack(kGivenBackAStep, /*all_shed=*/false);
    } else if (turn.closed) {
      return book_->GaveRoom(/*ever=*/true);
    } else {
      GiveBack(kAll, /*all_shed=*/true);
      const bool holds = runner_->Trim();
      const SequenceTime next_look = memory_.next_look();
      book_->Wait(holds ? std::min(next_look, Now() + kTrimEvery) : next_look);
    }
  }
}

void ThreadedEngine::RunTurn(const EngineBook::Turn& turn) {
  const SequenceTime began = Now();
  const bool first = runner_->plan_id().empty();
  for (Reply* reply : turn.replies) reply->Start(began);
  if (const absl::Status committed = Commit(turn); !committed.ok()) {
    book_->SetCommitted(runner_->committed_bytes());
    if (absl::IsResourceExhausted(committed)) return Refuse(turn, committed);
    return EndAll(book_->Failed(turn, committed, began), began);
  }
  lacking_.reset();
  const auto logits = RunStep(turn);
  if (!logits.ok()) {
    book_->SetCommitted(runner_->committed_bytes());
    return EndAll(book_->Failed(turn, logits.status(), Now()), began);
  }
  const std::vector<Told> told = Choose(turn, *logits);
  const SequenceTime now = Now();
  const std::vector<EngineBook::End> ends =
      book_->Done(turn, told, {runner_->committed_bytes(), runner_->plan_id()}, now);
  EndAll(ends, now);
  std::vector<SequenceId> full;
  for (size_t table = 0; table < turn.replies.size(); ++table) {
    Reply* reply = turn.replies[table];
    if (reply->has_chosen() && !reply->Send(now)) full.push_back(turn.step.tables[table]);
  }
  if (!full.empty()) book_->Pause(full, now);
  // The first turn makes states and a context, and reads weights from disk.
  if (!first) times_.Learn(static_cast<int64_t>(turn.step.rows.size()), Now() - began);
}

absl::Status ThreadedEngine::Commit(const EngineBook::Turn& turn) {
  for (const Row& row : turn.step.rows) {
    const int32_t block = turn.tables[row.sequence][row.position / options_.scheduler.block];
    absl::Status used = memory_.Use(block);
    while (absl::IsResourceExhausted(used) && Shed(1) > 0) used = memory_.Use(block);
    if (!used.ok()) return used;
  }
  return absl::OkStatus();
}

void ThreadedEngine::Refuse(const EngineBook::Turn& turn, const absl::Status& status) {
  const SequenceTime now = Now();
  const SequenceId first = turn.step.tables.front();
  const bool begins = !lacking_.has_value() || lacking_->id != first;
  if (begins) lacking_ = {first, now};
  if (begins && options_.refused) options_.refused();
  const bool waits = now - lacking_->since < options_.room_wait;
  bool alone = false;
  EndAll(book_->Refused(turn, status, waits, &alone, now), now);
  if (!alone) return lacking_.reset();
  // Then it holds nothing that another engine waits for, either.
  if (begins && book_->StartAnew()) Shed(kAll);
}

absl::StatusOr<absl::Span<const float>> ThreadedEngine::RunStep(const EngineBook::Turn& turn) {
  const int64_t wanted = std::count_if(turn.step.rows.begin(), turn.step.rows.end(),
                                       [](const Row& row) { return row.wanted; });
  ASSIGN_OR_RETURN(const absl::Span<const float> logits, runner_->Run(turn.step, turn.tables));
  if (static_cast<int64_t>(logits.size()) == wanted * options_.vocabulary) return logits;
  return absl::InternalError(absl::StrCat("a step gave ", logits.size(), " logits; right are ",
                                          options_.vocabulary, " for each of ", wanted, " rows"));
}

std::vector<Told> ThreadedEngine::Choose(const EngineBook::Turn& turn,
                                         absl::Span<const float> logits) {
  std::vector<Told> told;
  for (const Row& row : turn.step.rows) {
    if (!row.wanted) continue;
    told.push_back(turn.replies[row.sequence]->Choose(logits.subspan(0, options_.vocabulary),
                                                      row.position + 1, &sampler_));
    told.back().id = turn.step.tables[row.sequence];
    logits.remove_prefix(options_.vocabulary);
  }
  return told;
}

void ThreadedEngine::EndAll(absl::Span<const EngineBook::End> ends, SequenceTime now) {
  for (const EngineBook::End& end : ends) {
    if (end.status.ok()) {
      end.reply->Finish(end.finish, {runner_->plan_id(), end.cached_tokens, end.preemptions}, now);
    } else {
      end.reply->Fail(end.status);
    }
  }
}

void ThreadedEngine::GiveBack(int64_t most, bool all_shed) {
  const SequenceTime now = Now();
  if (memory_.next_look() <= now) memory_.Look(book_->BlocksInUse(), now);
  if (memory_.has_chosen()) {
    memory_.GiveBack(most);
    book_->SetCommitted(runner_->committed_bytes());
  }
  while (options_.lacks && options_.lacks() && Shed(kShedAStep) > 0 && all_shed) {
  }
}

int64_t ThreadedEngine::Shed(int64_t most) {
  int64_t given = memory_.GiveBackUnused(book_->BlocksInUse(), most);
  if (given < most) {
    for (int32_t block : book_->Shed(most - given)) given += memory_.GiveBackNow(block) ? 1 : 0;
  }
  if (given > 0) book_->SetCommitted(runner_->committed_bytes());
  return given;
}

void ThreadedEngine::ShedBytes(int64_t bytes) {
  const int64_t least = runner_->committed_bytes() - bytes;
  while (runner_->committed_bytes() > least) {
    const int64_t left = runner_->committed_bytes() - least;
    // Pages that blocks share may need some more of them.
    if (Shed(std::max<int64_t>(1, left / std::max<int64_t>(1, options_.block_bytes))) == 0) return;
  }
}

}  // namespace

std::unique_ptr<Engine> Engine::Create(const EngineOptions& options,
                                       std::unique_ptr<StepRunner> runner,
                                       std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_unique<ThreadedEngine>(options, std::move(runner), std::move(tokenizer));
}

}  // namespace athanor
