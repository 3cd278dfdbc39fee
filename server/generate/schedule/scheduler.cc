#include "server/generate/schedule/scheduler.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// A step has room for so many rows of prompts, also where they pass the target: prompts go on.
constexpr int64_t kLeastPromptRows = 16;
// After a step without memory one more sequence may run whenever so many steps had it.
constexpr int64_t kStepsForOneMore = 32;

absl::Status CheckRequest(const SequenceRequest& request) {
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("the prompt has no tokens; it needs at least one");
  }
  if (request.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens is ", request.max_tokens, "; it has to be at least 1"));
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("min_tokens is ", request.min_tokens,
                                                   "; it has to be from 0 to max_tokens, ",
                                                   request.max_tokens));
  }
  return absl::OkStatus();
}

// Returns the part of a step that has the tables [first, last).
Step PartOf(const Step& step, size_t first, size_t last) {
  Step part;
  part.tables.assign(step.tables.begin() + first, step.tables.begin() + last);
  for (Row row : step.rows) {
    const auto table = static_cast<size_t>(row.sequence);
    if (table < first || table >= last) continue;
    row.sequence -= static_cast<int32_t>(first);
    part.rows.push_back(row);
  }
  return part;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool* pool)
    : options_(options),
      pool_(pool),
      fair_(std::min(options.max_sequences, options.max_batched_tokens)) {
  // Then each step has a row for each sequence that decodes, and one for a prompt beside them.
  options_.max_sequences = std::min(options_.max_sequences, options_.max_batched_tokens);
  most_running_ = options_.max_sequences;
}

absl::Status Scheduler::Fit(Sequence* sequence) const {
  const int64_t prompt = sequence->prompt;
  if (prompt >= options_.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", prompt, " tokens, and the model takes at most ",
                     options_.max_model_len - 1, ": --max_model_len is ", options_.max_model_len,
                     ", of which one is left for the answer"));
  }
  const int64_t positions = pool_->blocks() * options_.block;
  if (prompt > positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt, " tokens, and the memory of keys and values holds ", positions,
        ": ", pool_->blocks(), " blocks of ", options_.block, "; ", options_.more_blocks));
  }
  // The last token is never computed itself: it needs no position of its own in the blocks.
  sequence->max_tokens =
      std::min({sequence->max_tokens, options_.max_model_len - prompt, positions - prompt + 1});
  return absl::OkStatus();
}

absl::Status Scheduler::Add(SequenceId id, SequenceRequest request) {
  RETURN_IF_ERROR(CheckRequest(request));
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->prompt = static_cast<int64_t>(request.prompt.size());
  sequence->max_tokens = request.max_tokens;
  RETURN_IF_ERROR(Fit(sequence.get()));
  if (waiting() >= options_.max_waiting) {
    return absl::ResourceExhaustedError(absl::StrCat(
        waiting(), " sequences of the model wait already, the most that may; try again later"));
  }
  sequence->tokens = std::move(request.prompt);
  sequence->min_tokens = request.min_tokens;
  sequence->stop_tokens = std::move(request.stop_tokens);
  sequence->deadline = request.deadline;
  sequence->priority = request.priority;
  sequence->root = request.root;
  sequence->keys = std::move(request.keys);
  if (sequence->root.has_value()) {
    AddKeys(*sequence->root, sequence->tokens, options_.block, &sequence->keys);
  }
  const auto [it, added] = sequences_.try_emplace(id, std::move(sequence));
  if (!added) return absl::AlreadyExistsError(absl::StrCat("sequence ", id, " exists"));
  Sequence* waits = it->second.get();
  waits->arrival = arrived_++;
  waits->client = fair_.Join(request.client);
  fair_.Work(waits->client);
  waiting_.insert(waits);
  SetEnd(waits);
  return absl::OkStatus();
}

Step Scheduler::Next(SequenceTime now, const StepTimes& times) {
  EndLate(now);
  Step step = Again();
  if (step.rows.empty()) {
    gave_way_ = false;
    Admit();
    step = Fresh(times);
  }
  SetInStep(step, true);
  return step;
}

void Scheduler::SetEnd(Sequence* sequence) {
  ends_.erase({sequence->end, sequence->id});
  sequence->end = sequence->deadline;
  if (sequence->paused.has_value()) {
    sequence->end = std::min(sequence->end, *sequence->paused + options_.longest_pause);
  }
  if (sequence->end != SequenceTime::max()) ends_.insert({sequence->end, sequence->id});
}

SequenceTime Scheduler::NextEnd() const {
  return ends_.empty() ? SequenceTime::max() : ends_.begin()->first;
}

int64_t Scheduler::paused() const {
  return std::count_if(running_.begin(), running_.end(),
                       [](const Sequence* sequence) { return sequence->paused.has_value(); });
}

void Scheduler::EndLate(SequenceTime now) {
  while (NextEnd() <= now) {
    Sequence* sequence = Get(ends_.begin()->second);
    if (sequence->deadline <= now) {
      Fail(sequence, absl::DeadlineExceededError(absl::StrCat(
                         "the deadline passed; tokens generated: ", sequence->generated())));
    } else {
      Fail(sequence,
           absl::ResourceExhaustedError(absl::StrCat(
               "the client read nothing for ",
               std::chrono::duration_cast<std::chrono::seconds>(options_.longest_pause).count(),
               " s; tokens generated: ", sequence->generated())));
    }
  }
}

Step Scheduler::Again() {
  while (!again_.empty()) {
    const Step failed = std::move(again_.back());
    again_.pop_back();
    Step step;
    for (const Row& row : failed.rows) {
      const SequenceId id = failed.tables[row.sequence];
      const Sequence* sequence = Find(id);
      if (sequence == nullptr || !sequence->running) continue;  // it ended or was preempted since
      if (step.tables.empty() || step.tables.back() != id) step.tables.push_back(id);
      step.rows.push_back(row);
      step.rows.back().sequence = static_cast<int32_t>(step.tables.size()) - 1;
    }
    if (!step.rows.empty()) return step;
  }
  return {};
}

int64_t Scheduler::PromptRows(int64_t decoding, const StepTimes& times) const {
  const int64_t most = options_.max_batched_tokens;
  if (decoding == 0 || options_.itl_target <= SequenceTime::duration::zero()) {
    return most - decoding;
  }
  const int64_t rows = times.RowsWithin(options_.itl_target, most) - decoding;
  return std::min(std::max(rows, kLeastPromptRows), most - decoding);
}

Scheduler::Ready Scheduler::ReadyOnes() const {
  Ready ready;
  for (Sequence* sequence : running_) {
    if (sequence->paused.has_value()) continue;
    (sequence->Decodes() ? ready.decoding : ready.prompts).push_back(sequence);
  }
  std::sort(ready.prompts.begin(), ready.prompts.end(), [](const Sequence* a, const Sequence* b) {
    return std::tuple(a->priority, a->client->time, a->arrival) <
           std::tuple(b->priority, b->client->time, b->arrival);
  });
  return ready;
}

void Scheduler::PutOff(Ready* ready) const {
  std::optional<double> first;  // the lowest time of a client below its share
  for (const Sequence* sequence : ready->prompts) {
    if (!fair_.IsBelow(*sequence->client)) continue;
    first = std::min(first.value_or(sequence->client->time), sequence->client->time);
  }
  if (!first.has_value()) return;
  const auto gives_way = [&](const Sequence* sequence) {
    return fair_.IsAbove(*sequence->client) && sequence->client->time >= *first;
  };
  std::erase_if(ready->decoding, gives_way);
  std::erase_if(ready->prompts, gives_way);
}

void Scheduler::TakeTurns(const StepTimes& times, Ready* ready) const {
  std::vector<Sequence*>& decoding = ready->decoding;
  if (options_.itl_target <= SequenceTime::duration::zero() || decoding.empty()) return;
  const bool alone = std::all_of(decoding.begin(), decoding.end(), [&](const Sequence* sequence) {
    return sequence->client == decoding.front()->client;
  });
  if (alone) return;
  const auto above = [this](const Sequence* sequence) { return fair_.IsAbove(*sequence->client); };
  const int64_t rows = times.RowsWithin(options_.itl_target, options_.max_batched_tokens);
  const bool prompts = std::any_of(ready->prompts.begin(), ready->prompts.end(), above);
  if (prompts && static_cast<int64_t>(decoding.size()) + kLeastPromptRows > rows) {
    std::erase_if(steps_ % 2 == 0 ? ready->prompts : decoding, above);
  }
  // Puts those of clients above their share last, by the step that had their last row.
  const auto turn = [&](const Sequence* sequence) {
    return std::tuple(above(sequence), above(sequence) ? sequence->last_step : 0,
                      sequence->priority, sequence->arrival);
  };
  std::sort(decoding.begin(), decoding.end(),
            [&](const Sequence* a, const Sequence* b) { return turn(a) < turn(b); });
  const auto first = std::find_if(decoding.begin(), decoding.end(), above);
  const int64_t others = first - decoding.begin();
  // A client above its share keeps as many rows as any other has.
  absl::flat_hash_map<const FairOrder::Client*, int64_t> rows_of;
  int64_t most = 1;
  for (auto it = decoding.begin(); it != first; ++it) {
    most = std::max(most, ++rows_of[(*it)->client]);
  }
  absl::flat_hash_set<const FairOrder::Client*> taking;
  for (auto it = first; it != decoding.end(); ++it) taking.insert((*it)->client);
  const int64_t turns = std::max(most * static_cast<int64_t>(taking.size()), rows - others);
  decoding.resize(std::min(static_cast<int64_t>(decoding.size()), others + turns));
}

Step Scheduler::Fresh(const StepTimes& times) {
  Ready ready = ReadyOnes();
  PutOff(&ready);
  TakeTurns(times, &ready);
  MakeRoomForRows(ready.decoding);
  ++steps_;
  Step step;
  for (Sequence* sequence : ready.decoding) {
    if (sequence->running) AddRows(sequence, 1, &step);
  }
  int64_t room = PromptRows(static_cast<int64_t>(step.rows.size()), times);
  for (Sequence* sequence : ready.prompts) {
    if (room == 0) break;
    if (!sequence->running) continue;
    const int64_t rows = std::min(room, sequence->left());
    AddRows(sequence, rows, &step);
    room -= rows;
  }
  return step;
}

void Scheduler::AddRows(Sequence* sequence, int64_t count, Step* step) {
  const int64_t end = sequence->stored + count;
  // At most one, when it decodes: MakeRoomForRows has seen to it.
  while (static_cast<int64_t>(sequence->blocks.size()) < BlocksFor(end)) {
    sequence->blocks.push_back(*pool_->Take());
  }
  sequence->last_step = steps_;
  const auto table = static_cast<int32_t>(step->tables.size());
  step->tables.push_back(sequence->id);
  for (int64_t position = sequence->stored; position < end; ++position) {
    step->rows.push_back({.sequence = table,
                          .position = static_cast<int32_t>(position),
                          .token = sequence->tokens[position],
                          .wanted = position + 1 == static_cast<int64_t>(sequence->tokens.size())});
  }
}

void Scheduler::Done(const Step& step, absl::Span<const Told> told) {
  std::vector<FairOrder::Client*> clients;  // of the rows
  for (const Row& row : step.rows) {
    Sequence* sequence = Get(step.tables[row.sequence]);
    clients.push_back(sequence->client);
    if (sequence->owed() > 0) --sequence->client->owed;
    sequence->stored = row.position + 1;
    if (row.position < sequence->computed) {
      ++counts_.recomputed_tokens;
    } else if (row.position < sequence->prompt) {
      ++counts_.prompt_tokens;
    }
    sequence->computed = std::max(sequence->computed, sequence->stored);
    if (sequence->stored % options_.block == 0) {
      NameBlock(sequence, sequence->stored / options_.block - 1);
    }
  }
  fair_.Charge(clients);
  if (++steps_since_refusal_ % kStepsForOneMore == 0) {
    most_running_ = std::min(most_running_ + 1, options_.max_sequences);
  }
  SetInStep(step, false);
  for (const Told& outcome : told) {
    Sequence* sequence = Get(outcome.id);
    if (sequence == nullptr) continue;
    if (!outcome.status.ok()) {
      // Its blocks may be wrong: others compute them anew.
      for (int32_t block : sequence->blocks) pool_->Unname(block);
      Fail(sequence, outcome.status);
      continue;
    }
    const bool stop_token =
        sequence->MayStop() && std::find(sequence->stop_tokens.begin(), sequence->stop_tokens.end(),
                                         outcome.token) != sequence->stop_tokens.end();
    sequence->tokens.push_back(outcome.token);
    if (outcome.stop || stop_token) {
      End(sequence, Finish::kStop, absl::OkStatus());
    } else if (sequence->generated() >= sequence->max_tokens) {
      End(sequence, Finish::kLength, absl::OkStatus());
    }
  }
}

void Scheduler::NameBlock(Sequence* sequence, int64_t block) {
  if (!sequence->root.has_value()) return;
  if (block >= static_cast<int64_t>(sequence->keys.size())) {
    AddKeys(*sequence->root, sequence->tokens, options_.block, &sequence->keys);
  }
  pool_->Name(sequence->blocks[block], sequence->keys[block]);
}

void Scheduler::Forget() {
  pool_->Forget();
  for (Sequence* sequence : running_) {
    sequence->root.reset();
    sequence->keys.clear();
  }
}

void Scheduler::Failed(const Step& step, const absl::Status& status) {
  SetInStep(step, false);
  if (step.tables.size() == 1) return Cancel(step.tables[0], status);
  const size_t half = step.tables.size() / 2;
  again_.push_back(PartOf(step, half, step.tables.size()));
  again_.push_back(PartOf(step, 0, half));
}

bool Scheduler::Refused(const Step& step, const absl::Status& status, bool waits) {
  const int64_t before = running();
  SetInStep(step, false);
  again_.push_back(step);
  if (running() < before) return false;  // who ended meanwhile has given up blocks
  Sequence* const victim = Victim();
  if (victim != nullptr) {
    Preempt(victim);
  } else if (!waits) {
    Fail(*running_.begin(), status);
  }
  most_running_ = std::max<int64_t>(1, running());
  steps_since_refusal_ = 0;
  return victim == nullptr && waits;
}

void Scheduler::Cancel(SequenceId id, const absl::Status& status) {
  if (Sequence* sequence = Get(id)) Fail(sequence, status);
}

void Scheduler::Pause(SequenceId id, SequenceTime now) {
  Sequence* sequence = Get(id);
  if (sequence == nullptr) return;
  if (!sequence->paused.has_value()) {
    fair_.Rest(sequence->client);
    if (sequence->running) --sequence->client->places;
  }
  sequence->paused = now;
  SetEnd(sequence);
}

void Scheduler::Resume(SequenceId id) {
  Sequence* sequence = Get(id);
  if (sequence == nullptr || !sequence->paused.has_value()) return;
  sequence->paused.reset();
  fair_.Work(sequence->client);
  if (sequence->running) ++sequence->client->places;
  SetEnd(sequence);
}

std::vector<Ended> Scheduler::TakeEnded() { return std::exchange(ended_, {}); }

Sequence* Scheduler::Get(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

void Scheduler::SetInStep(const Step& step, bool in_step) {
  for (SequenceId id : step.tables) {
    Sequence* sequence = Get(id);
    sequence->in_step = in_step;
    if (!in_step && sequence->failed.has_value()) {
      End(sequence, Finish::kNone, *std::exchange(sequence->failed, std::nullopt));
    }
  }
}

void Scheduler::Fail(Sequence* sequence, const absl::Status& status) {
  if (!sequence->in_step) return End(sequence, Finish::kNone, status);
  if (!sequence->failed.has_value()) sequence->failed = status;
}

void Scheduler::End(Sequence* sequence, Finish finish, const absl::Status& status) {
  if (sequence->running) {
    Displace(sequence);
  } else {
    waiting_.erase(sequence);
  }
  if (!sequence->paused.has_value()) fair_.Rest(sequence->client);
  fair_.Leave(sequence->client);
  ends_.erase({sequence->end, sequence->id});
  ended_.push_back({.id = sequence->id,
                    .finish = finish,
                    .status = status,
                    .cached_tokens = sequence->cached,
                    .preemptions = sequence->preemptions});
  sequences_.erase(sequence->id);
}

}  // namespace athanor
