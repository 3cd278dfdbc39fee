// Random arrivals, cancels, deadlines, pauses and failures, against a runner whose memory is the
// pool's blocks and whose tokens are a hash of all that it reads there: a wrong row, position,
// block or token changes the answer. Each sequence must say what it says alone.
//
// ATHANOR_SEQUENCE_STEPS=1000000 runs so many steps instead of CI's 100,000.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/generate/schedule/scheduler.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kVocabulary = 50;
const absl::Status kBroken = absl::UnavailableError("the step failed");
const absl::Status kNan = absl::DataLossError("NaN");
const absl::Status kGone = absl::CancelledError("gone");
const absl::Status kNoMemory = absl::ResourceExhaustedError("no memory");

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

// Keeps what was asked of a sequence, and what is to come of it.
struct Asked {
  SequenceRequest request;
  bool guilty = false;            // steps with it fail
  int64_t nan_at = -1;            // its token of this number is an error
  std::vector<int32_t> alone;     // the tokens it generates alone, to its end
  Finish finish = Finish::kNone;  // how it ends alone
  std::vector<int32_t> said;      // in company
  std::optional<SequenceTime> paused;
  bool was_paused = false, cancelled = false, ended = false;
  int64_t skipped = 0;         // number of steps that it was put off, in a row
  int64_t salt = 0;            // of its cells: others' blocks of another salt are wrong
  bool alone_refused = false;  // no memory, though it ran alone
};

// The token that follows, of a hash of all before it: `may_stop` as the sampler is told.
int32_t Choose(uint64_t hash, const std::vector<int32_t>& stop_tokens, bool may_stop) {
  auto token = static_cast<int32_t>(hash >> 20) & 0xffff;
  token %= kVocabulary;
  while (!may_stop &&
         std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end()) {
    token = (token + 1) % kVocabulary;
  }
  return token;
}
bool StopString(uint64_t hash) { return hash >> 59 == 3; }

class Fuzz {
 public:
  explicit Fuzz(uint32_t seed)
      : random_(seed),
        options_{.max_batched_tokens = int64_t{1} << Below(10),
                 .max_sequences = 1 + Below(16),
                 .max_model_len = 2 + Below(63),
                 .max_waiting = 1 + Below(20),
                 .block = int64_t{1} << Below(5),
                 .longest_pause = milliseconds(50),
                 .itl_target = milliseconds(Below(3)),
                 .max_preemptions = Below(4)},
        pool_(2 + Below(40)),
        scheduler_(options_, &pool_),
        cells_((pool_.blocks() + 1) * options_.block, kPoison),
        hostile_(Below(3) == 0),
        rooted_(Below(3) > 0),
        lossy_(Below(4) == 0),
        row_us_(Below(2) == 0 ? 10 : 2000),
        clients_(Below(2) == 0 ? 1 : 2 + Below(3)),
        urgent_(Below(3) == 0),
        beginnings_(4) {}

  // Runs so many steps, then lets all come to their end.
  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      now_ += milliseconds(Below(3));
      for (int64_t arrivals = Below(3); arrivals > 0; --arrivals) Arrive();
      Disturb();
      OneStep();
    }
    draining_ = true;
    for (auto& [id, asked] : asked_) Resume(id, &asked);
    for (int i = 0; i < 100'000 && scheduler_.running() + scheduler_.waiting() > 0; ++i) {
      if (::testing::Test::HasFailure()) return;
      ASSERT_FALSE(OneStep().rows.empty() && again_.empty() && scheduler_.running() > 0);
    }
    EXPECT_EQ(pool_.free(), pool_.blocks()) << "blocks leaked";
    EXPECT_TRUE(pool_.Check().ok()) << pool_.Check();
    for (const auto& [id, asked] : asked_) EXPECT_TRUE(asked.ended) << id;
  }
  int64_t finished() const { return finished_; }
  const SchedulerCounts& counts() const { return scheduler_.counts(); }

 private:
  static constexpr uint64_t kPoison = 0xdead;

  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  void Arrive() {
    Asked asked;
    SequenceRequest& request = asked.request;
    const int64_t prompt = 1 + Below(Below(2) == 0 ? 4 : options_.max_model_len + 1);
    if (Below(2) == 0) request.prompt = beginnings_[Below(beginnings_.size())];
    request.prompt.resize(std::min<int64_t>(prompt, Below(70)));
    while (static_cast<int64_t>(request.prompt.size()) < prompt) {
      request.prompt.push_back(static_cast<int32_t>(Below(kVocabulary)));
    }
    asked.salt = rooted_ ? Below(3) : 0;
    if (asked.salt > 0) {
      request.root = RootKey("signature", absl::StrCat(asked.salt));
    } else {
      asked.salt = 100 + next_id_;
    }
    if (Below(2) == 0) beginnings_[Below(beginnings_.size())] = request.prompt;
    request.max_tokens = Below(8) == 0 ? 1000 : 1 + Below(40);
    request.min_tokens = std::min(Below(6), request.max_tokens);
    for (int64_t i = Below(3); i > 0; --i) {
      request.stop_tokens.push_back(static_cast<int32_t>(Below(kVocabulary)));
    }
    // Most of the load is the first client's.
    request.client = absl::StrCat(Below(3) > 0 ? 0 : Below(clients_));
    if (urgent_) request.priority = 1 + Below(3);
    if (hostile_ && Below(4) == 0) request.deadline = now_ + milliseconds(Below(100));
    asked.guilty = hostile_ && Below(20) == 0;
    if (hostile_ && Below(20) == 0) asked.nan_at = Below(5);
    const int64_t positions = pool_.blocks() * options_.block;
    const bool fits = prompt < options_.max_model_len && prompt <= positions;
    const bool room = scheduler_.waiting() < options_.max_waiting;
    const SequenceId id = next_id_++;
    const absl::Status added = scheduler_.Add(id, request);
    ASSERT_EQ(added.code(), !fits   ? absl::StatusCode::kInvalidArgument
                            : !room ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kOk)
        << added;
    if (!added.ok()) return;
    const int64_t most =
        std::min({request.max_tokens, options_.max_model_len - prompt, positions - prompt + 1});
    RunAlone(most, &asked);
    asked_.emplace(id, std::move(asked));
  }

  static void RunAlone(int64_t most, Asked* asked) {
    const SequenceRequest& request = asked->request;
    uint64_t hash = 0;
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      hash = Mix(hash, Cell(i, request.prompt[i], asked->salt));
    }
    while (true) {
      const auto said = static_cast<int64_t>(asked->alone.size());
      const bool may_stop = said >= request.min_tokens;
      const int32_t token = Choose(hash, request.stop_tokens, may_stop);
      asked->alone.push_back(token);
      if (StopString(hash) || std::find(request.stop_tokens.begin(), request.stop_tokens.end(),
                                        token) != request.stop_tokens.end()) {
        asked->finish = Finish::kStop;
        return;
      }
      if (said + 1 == most) {
        asked->finish = Finish::kLength;
        return;
      }
      hash = Mix(hash, Cell(request.prompt.size() + said, token, asked->salt));
    }
  }

  // Cancels, pauses and resumes some.
  void Disturb() {
    for (auto& [id, asked] : asked_) {
      if (asked.ended) continue;
      if (hostile_ && Below(200) == 0) {
        scheduler_.Cancel(id, kGone);
        asked.cancelled = true;
      }
      if (Below(50) == 0 && !again_.contains(id)) {
        scheduler_.Pause(id, now_);
        asked.paused = now_;
        asked.was_paused = true;
      } else if (Below(8) == 0) {
        Resume(id, &asked);
      }
    }
  }
  void Resume(SequenceId id, Asked* asked) {
    scheduler_.Resume(id);
    asked->paused.reset();
  }

  static uint64_t Cell(size_t position, int32_t token, int64_t salt) {
    return (salt * 1000 + position) * 1000 + token;
  }
  int32_t BlockOf(SequenceId id, int64_t position) {
    return scheduler_.BlocksOf(id)[position / options_.block];
  }
  uint64_t& CellAt(SequenceId id, int64_t position) {
    return cells_[BlockOf(id, position) * options_.block + position % options_.block];
  }

  // Takes contents away that nobody refers to.
  void Lose() {
    if (Below(100) == 0) scheduler_.Forget();
    if (Below(20) == 0) {
      for (int32_t block : pool_.Shed(Below(5))) EXPECT_EQ(pool_.references(block), 0);
    }
  }

  Step OneStep() {
    if (lossy_) Lose();
    CheckOwed();
    const int64_t preemptions = counts().preemptions;
    Step step = scheduler_.Next(now_, times_);
    preempted_ = counts().preemptions - preemptions;
    TakeEnded();
    CheckShape(step);
    if (hostile_ && !draining_ && Below(3) == 0) Disturb();  // while the step runs
    if (step.rows.empty()) return step;
    times_.Learn(
        static_cast<int64_t>(step.rows.size()),
        std::chrono::microseconds(Below(row_us_) * static_cast<int64_t>(step.rows.size())));
    if (hostile_ && Below(40) == 0) return Refuse(step);
    const bool guilty = std::any_of(step.tables.begin(), step.tables.end(),
                                    [&](SequenceId id) { return asked_[id].guilty; });
    const bool fails = guilty || (hostile_ && step.tables.size() > 1 && Below(30) == 0);
    const int64_t written = fails ? Below(step.rows.size() + 1) : step.rows.size();
    Write(step, written);
    for (SequenceId id : step.tables) again_.erase(id);
    if (fails) {
      if (step.tables.size() > 1) again_.insert(step.tables.begin(), step.tables.end());
      scheduler_.Failed(step, kBroken);
    } else {
      Tell(step);
    }
    TakeEnded();
    return step;
  }

  // Computes the step's first rows.
  void Write(const Step& step, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) {
      const Row& row = step.rows[i];
      const SequenceId id = step.tables[row.sequence];
      ASSERT_EQ(pool_.references(BlockOf(id, row.position)), 1) << "only its own blocks";
      CellAt(id, row.position) = Cell(row.position, row.token, asked_[id].salt);
    }
  }

  Step Refuse(const Step& step) {
    const bool alone = scheduler_.running() == 1, waits = Below(2) == 0;
    for (SequenceId id : step.tables) asked_[id].alone_refused |= alone && !waits;
    again_.insert(step.tables.begin(), step.tables.end());
    EXPECT_LE(scheduler_.Refused(step, kNoMemory, waits), alone && waits);
    TakeEnded();
    return step;
  }

  void CheckShape(const Step& step) {
    ASSERT_LE(static_cast<int64_t>(step.rows.size()), options_.max_batched_tokens);
    ASSERT_LE(static_cast<int64_t>(step.tables.size()), options_.max_sequences);
    ASSERT_TRUE(pool_.Check().ok()) << pool_.Check();
    CheckReferences();
    std::map<SequenceId, int64_t> next;
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const Row& row = step.rows[i];
      const SequenceId id = step.tables[row.sequence];
      const auto [it, first] = next.try_emplace(id, scheduler_.Find(id)->stored);
      ASSERT_EQ(row.position, it->second++) << "of sequence " << id;
      ASSERT_TRUE(first || step.rows[i - 1].sequence == row.sequence) << "rows are neighbours";
    }
    ASSERT_EQ(next.size(), step.tables.size()) << "each has rows";
    if (std::any_of(step.tables.begin(), step.tables.end(),
                    [&](SequenceId id) { return again_.contains(id); })) {
      return;  // part of a failed one
    }
    again_.clear();  // the rest of it ended, or waits
    CheckCompany(step, next);
  }

  // Reports whether the client has more than its share of the places, or had until somebody was
  // preempted for the step's blocks.
  bool IsAbove(const std::string& client) {
    std::set<std::string> working;
    int64_t places = preempted_;
    for (const auto& [id, asked] : asked_) {
      if (asked.ended || asked.paused.has_value()) continue;
      working.insert(asked.request.client);
      if (asked.request.client == client && scheduler_.Find(id)->running) ++places;
    }
    const int64_t most = std::min(options_.max_sequences, options_.max_batched_tokens);
    const auto clients = static_cast<int64_t>(working.size());
    return places > (most + clients - 1) / clients;
  }

  // Checks who is in a step that is not part of a failed one.
  void CheckCompany(const Step& step, const std::map<SequenceId, int64_t>& next) {
    for (auto& [id, asked] : asked_) {
      if (asked.ended) continue;
      ASSERT_FALSE(asked.paused.has_value() && next.contains(id)) << "sequence " << id << " pauses";
      const Sequence& sequence = *scheduler_.Find(id);
      ASSERT_EQ(sequence.running, !sequence.blocks.empty());
      if (asked.paused.has_value()) continue;
      ASSERT_FALSE(step.rows.empty()) << "sequence " << id << " could run";
      if (!sequence.running || !sequence.Decodes() || next.contains(id)) {
        asked.skipped = 0;
        continue;
      }
      ASSERT_TRUE(IsAbove(asked.request.client)) << "sequence " << id << " was put off";
      ASSERT_LT(++asked.skipped, 200) << "sequence " << id << " starves";
    }
  }

  void CheckOwed() {
    std::map<const FairOrder::Client*, int64_t> owed;
    for (const auto& [id, asked] : asked_) {
      if (asked.ended) continue;
      const Sequence* sequence = scheduler_.Find(id);
      if (sequence != nullptr) owed[sequence->client] += sequence->owed();
    }
    for (const auto& [client, rows] : owed) ASSERT_EQ(client->owed, rows);
  }

  void CheckReferences() {
    std::vector<int32_t> references(pool_.blocks() + 1);
    for (const auto& [id, asked] : asked_) {
      if (asked.ended) continue;
      for (int32_t block : scheduler_.BlocksOf(id)) ++references[block];
    }
    ASSERT_EQ(references[0], 0);
    for (int32_t block = 1; block <= pool_.blocks(); ++block) {
      ASSERT_EQ(pool_.references(block), references[block]) << block;
    }
  }

  void Tell(const Step& step) {
    std::vector<Told> told;
    for (const Row& row : step.rows) {
      const SequenceId id = step.tables[row.sequence];
      Asked& asked = asked_[id];
      if (!row.wanted) continue;
      uint64_t hash = 0;
      for (int64_t i = 0; i <= row.position; ++i) hash = Mix(hash, CellAt(id, i));
      const Sequence& sequence = *scheduler_.Find(id);
      Told outcome{.id = id};
      if (static_cast<int64_t>(asked.said.size()) == asked.nan_at) {
        outcome.status = kNan;
      } else {
        outcome.token = Choose(hash, sequence.stop_tokens, sequence.MayStop());
        outcome.stop = StopString(hash);
        CheckOrder(id, asked);
        asked.said.push_back(outcome.token);
      }
      told.push_back(outcome);
    }
    scheduler_.Done(step, told);
  }

  // First tokens come in the order of arrival, if nobody pauses.
  void CheckOrder(SequenceId id, const Asked& asked) {
    if (!asked.said.empty()) return;
    for (const auto& [earlier, other] : asked_) {
      if (earlier >= id) return;
      ASSERT_TRUE(rooted_ || clients_ > 1 || urgent_ || other.ended || other.was_paused ||
                  other.nan_at == 0 || !other.said.empty() ||
                  scheduler_.Find(earlier)->preemptions > 0)
          << earlier << " has no token yet, and " << id << " has";
    }
  }

  void TakeEnded() {
    for (const Ended& ended : scheduler_.TakeEnded()) {
      Asked& asked = asked_[ended.id];
      ASSERT_FALSE(asked.ended) << "sequence " << ended.id << " ended twice";
      asked.ended = true;
      again_.erase(ended.id);
      CheckEnd(ended, asked);
    }
    for (auto it = asked_.begin(); it != asked_.end() && it->second.ended;) it = asked_.erase(it);
    for (int32_t block = 0; block <= pool_.blocks(); ++block) {
      if (pool_.references(block) > 0 || pool_.IsKept(block)) continue;
      std::fill_n(cells_.begin() + block * options_.block, options_.block, kPoison);
    }
  }
  void CheckEnd(const Ended& ended, const Asked& asked) {
    const std::string who =
        absl::StrCat("sequence ", ended.id, " of ", asked.request.prompt.size());
    ASSERT_LE(asked.said.size(), asked.alone.size()) << who;
    const bool prefix = std::equal(asked.said.begin(), asked.said.end(), asked.alone.begin());
    ASSERT_TRUE(prefix) << who << " says otherwise than alone";
    switch (ended.status.code()) {
      case absl::StatusCode::kOk:
        ++finished_;
        ASSERT_EQ(ended.finish, asked.finish) << who;
        ASSERT_EQ(asked.said.size(), asked.alone.size()) << who;
        ASSERT_EQ(ended.cached_tokens % options_.block, 0) << who;
        ASSERT_LT(ended.cached_tokens, static_cast<int64_t>(asked.request.prompt.size())) << who;
        return;
      case absl::StatusCode::kUnavailable:
        ASSERT_TRUE(asked.guilty) << who << " is not to blame";
        return;
      case absl::StatusCode::kDataLoss:
        ASSERT_EQ(static_cast<int64_t>(asked.said.size()), asked.nan_at) << who;
        return;
      case absl::StatusCode::kCancelled:
        ASSERT_TRUE(asked.cancelled) << who;
        return;
      case absl::StatusCode::kDeadlineExceeded:
        ASSERT_LE(asked.request.deadline, now_) << who;
        return;
      case absl::StatusCode::kResourceExhausted:
        if (ended.status == kNoMemory) {
          ASSERT_TRUE(asked.alone_refused) << who;
        } else {
          ASSERT_LE(*asked.paused + options_.longest_pause, now_) << who;
        }
        return;
      default:
        FAIL() << who << ": " << ended.status;
    }
  }

  std::mt19937 random_;
  const SchedulerOptions options_;
  BlockPool pool_;
  Scheduler scheduler_;
  StepTimes times_;
  std::vector<uint64_t> cells_;  // the memory of keys and values
  const bool hostile_;           // cancels, deadlines, failures and NaN occur
  const bool rooted_;            // some sequences share blocks
  const bool lossy_;             // keys and kept blocks get lost
  const int64_t row_us_;         // a row takes so long at most
  const int64_t clients_;
  const bool urgent_;                             // priorities differ
  std::vector<std::vector<int32_t>> beginnings_;  // of prompts
  bool draining_ = false;
  SequenceTime now_ = SequenceTime(std::chrono::hours(1));
  SequenceId next_id_ = 0;
  std::map<SequenceId, Asked> asked_;
  std::set<SequenceId> again_;  // of failed steps that have yet to come again
  int64_t preempted_ = 0;       // ahead of the last step
  int64_t finished_ = 0;
};

TEST(SchedulerFuzzTest, EachSequenceSaysWhatItSaysAlone) {
  const char* asked = std::getenv("ATHANOR_SEQUENCE_STEPS");
  const int64_t steps = asked == nullptr ? 100'000 : std::atoll(asked);
  int64_t finished = 0, preemptions = 0, cached = 0;
  for (uint32_t seed = 0; seed * 300 < steps && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Fuzz fuzz(seed);
    fuzz.Run(300);
    finished += fuzz.finished();
    preemptions += fuzz.counts().preemptions;
    cached += fuzz.counts().cached_tokens;
  }
  EXPECT_GT(finished, steps / 10) << "most of them end well";
  EXPECT_GT(preemptions, steps / 100);
  EXPECT_GT(cached, steps / 10);
  RecordProperty("preemptions", absl::StrCat(preemptions));
  RecordProperty("cached", absl::StrCat(cached));
  RecordProperty("finished", absl::StrCat(finished));
}

}  // namespace
}  // namespace athanor
