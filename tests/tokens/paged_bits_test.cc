// A sequence's logits are the same bits however its rows are computed: alone and one at a time, or
// in steps with any others, in any pieces, rows in any order, in any blocks of a pool that holds
// NaN wherever nobody has written, in blocks shared with others, and by any plan of the version's
// signature, which changes between two steps.
//
// A thousand random schedules; ATHANOR_PAGED_SCHEDULES=100000 runs more. A failure names its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/tokens/paged_plans.h"

namespace athanor::checkpoint {
namespace {

// Breaks what the equality rests on, to see that a schedule would notice.
enum class Fault { kNone, kSharedBlockWritten, kLinesSwapped, kFreedTooEarly, kOtherSignature };

// A sequence of tokens, and its logits alone: a row a step, by the plan of one row.
struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

absl::Status ComputeAlone(const Decoder& decoder, Text* text) {
  Pool pool(decoder);
  std::vector<int32_t> line(kContext / kBlock);
  std::iota(line.begin(), line.end(), 1);
  for (size_t i = 0; i < text->tokens.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    ASSIGN_OR_RETURN(const std::vector<float> row,
                     pool.Run(decoder.plans()[1], {{{text->tokens[i], 0, position}}, {line}, {0}}));
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
      return absl::InternalError(absl::StrCat("position ", i, " alone is not finite"));
    }
    text->logits.insert(text->logits.end(), row.begin(), row.end());
  }
  return absl::OkStatus();
}

// Makes texts, of which every other begins as the one before it.
absl::StatusOr<std::vector<Text>> MakeTexts(const Decoder& decoder, int count, uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<Text> texts(count);
  for (int t = 0; t < count; ++t) {
    std::vector<int32_t>& tokens = texts[t].tokens;
    if (t % 2 == 1) tokens.assign(texts[t - 1].tokens.begin(), texts[t - 1].tokens.begin() + 40);
    while (tokens.size() < kContext) tokens.push_back(static_cast<int32_t>(draw() % kWords));
    RETURN_IF_ERROR(ComputeAlone(decoder, &texts[t]));
  }
  return texts;
}

// Runs random sequences to their ends and compares what they give.
class Schedule {
 public:
  Schedule(const Decoder& decoder, Pool& pool, const std::vector<Text>& texts, uint32_t seed,
           Fault fault)
      : decoder_(decoder), pool_(pool), texts_(texts), draw_(seed), fault_(fault) {
    free_.resize(kBlocks - 1);
    std::iota(free_.begin(), free_.end(), 1);
    waiting_ = 1 + Below(7);
  }

  void Run() {
    while (waiting_ > 0 || !active_.empty()) {
      while (waiting_ > 0 && std::ssize(active_) < kSequences &&
             (active_.empty() || Below(3) == 0)) {
        if (!Start()) break;
      }
      RunStep();
      if (!error_.empty()) break;
      std::erase_if(active_, [&](const Sequence& s) {
        if (s.at == s.end) Release(s.blocks);
        return s.at == s.end;
      });
    }
    for (const Sequence& s : active_) Release(s.blocks);  // after an error
    for (int32_t block = 0; block < kBlocks; ++block) {
      if (!pool_.IsClear(block)) Fail(absl::StrCat("block ", block, " was written by a stranger"));
      pool_.Clear(block);
    }
  }

  // Says what went wrong first; empty: nothing.
  const std::string& error() const { return error_; }
  int64_t compared() const { return compared_; }
  const std::set<std::string>& plans() const { return used_plans_; }
  bool shared() const { return shared_; }

 private:
  struct Sequence {
    const Text* text;
    int32_t prompt, end;  // positions: of the prompt, of all
    int32_t at;           // positions computed
    std::vector<int32_t> blocks;
  };
  struct Piece {
    size_t sequence;  // in active_
    int32_t first, count;
  };

  uint32_t Below(uint32_t n) { return draw_() % n; }
  void Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  // Begins a sequence, with blocks of one that has begun in the same way; false: too few are free.
  bool Start() {
    Sequence s = {.text = &texts_[Below(static_cast<uint32_t>(texts_.size()))], .at = 0};
    s.prompt = static_cast<int32_t>(Below(8) == 0 ? 200 + Below(96) : 1 + Below(50));
    s.end = s.prompt + static_cast<int32_t>(Below(24)) + 1;
    for (const Sequence& other : active_) {
      const auto& [a, b] = std::pair(s.text->tokens.begin(), other.text->tokens.begin());
      const auto most = std::min(other.at, s.prompt - 1);
      const auto equal = static_cast<int32_t>(std::mismatch(a, a + most, b).first - a);
      const int32_t blocks = equal / kBlock;
      if (blocks == 0 || Below(4) == 0) continue;
      s.blocks.assign(other.blocks.begin(), other.blocks.begin() + 1 + Below(blocks));
      shared_ = true;
      break;
    }
    const size_t needed = (s.end + kBlock - 1) / kBlock - s.blocks.size();
    if (needed > free_.size()) return false;
    s.at = static_cast<int32_t>(s.blocks.size() * kBlock);
    std::shuffle(free_.begin(), free_.end(), draw_);
    s.blocks.insert(s.blocks.end(), free_.end() - static_cast<int64_t>(needed), free_.end());
    free_.resize(free_.size() - needed);
    for (const int32_t block : s.blocks) ++users_[block];
    active_.push_back(std::move(s));
    --waiting_;
    return true;
  }

  void Release(const std::vector<int32_t>& blocks) {
    for (const int32_t block : blocks) {
      if (--users_[block] > 0) continue;
      pool_.Clear(block);
      free_.push_back(block);
    }
  }

  // Chooses which sequences have rows in the step, and how many: a piece of a prompt, or one.
  std::vector<Piece> Pieces() {
    constexpr uint32_t kMost[] = {1, 4, 16, 64, kTokens};
    int32_t left = static_cast<int32_t>(1 + Below(kMost[Below(5)]));
    std::vector<size_t> order(active_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), draw_);
    std::vector<Piece> pieces;
    for (const size_t i : order) {
      const Sequence& s = active_[i];
      if (left == 0 || (!pieces.empty() && Below(5) == 0)) continue;
      const int32_t most = std::min(left, std::max(s.prompt - s.at, 1));
      const auto count =
          static_cast<int32_t>(Below(2) == 0 ? most : 1 + Below(static_cast<uint32_t>(most)));
      pieces.push_back({i, s.at, count});
      left -= count;
    }
    return pieces;
  }

  const LoadedPlan& ChoosePlan(int64_t rows) {
    if (fault_ == Fault::kOtherSignature && Below(2) == 0) return decoder_.foreign();
    std::vector<const LoadedPlan*> able;
    for (const LoadedPlan& plan : decoder_.plans()) {
      if (plan.spans[0].min <= rows && rows <= plan.spans[0].max) able.push_back(&plan);
    }
    const LoadedPlan& plan = *able[Below(static_cast<uint32_t>(able.size()))];
    used_plans_.insert(plan.name);
    return plan;
  }

  // Returns the lines of the sequences in active_, by number, as wide as they need or wider. Cells
  // that no row may read name any block.
  std::vector<std::vector<int32_t>> Table(const std::vector<size_t>& sequences) {
    size_t width = 1;
    for (const size_t i : sequences) width = std::max(width, active_[i].blocks.size());
    constexpr size_t kMost = kContext / kBlock;
    if (Below(2) == 0) width = std::min(std::bit_ceil(width), kMost);
    if (Below(8) == 0) width = kMost;
    const bool strangers = Below(2) == 0;
    std::vector<std::vector<int32_t>> table;
    for (const size_t i : sequences) {
      std::vector<int32_t>& line = table.emplace_back(active_[i].blocks);
      while (line.size() < width) {
        line.push_back(strangers ? static_cast<int32_t>(Below(kBlocks)) : 0);
      }
    }
    return table;
  }

  void RunStep() {
    const std::vector<Piece> pieces = Pieces();
    Step step;
    std::vector<size_t> lines;
    for (const Piece& piece : pieces) {
      const Sequence& s = active_[piece.sequence];
      for (int32_t p = piece.first; p < piece.first + piece.count; ++p) {
        step.rows.push_back({s.text->tokens[p], static_cast<int32_t>(lines.size()), p});
      }
      lines.push_back(piece.sequence);
    }
    if (Below(4) == 0) std::shuffle(step.rows.begin(), step.rows.end(), draw_);
    for (size_t r = 0; r < step.rows.size(); ++r) {
      if (Below(2) == 0) step.wanted.push_back(static_cast<int32_t>(r));
    }
    if (Below(4) == 0) std::shuffle(step.wanted.begin(), step.wanted.end(), draw_);
    const LoadedPlan& plan = ChoosePlan(std::ssize(step.rows));
    // Lines without rows.
    for (size_t i = 0; i < active_.size() && std::ssize(lines) < plan.spans[2].max; ++i) {
      if (Below(3) == 0) lines.push_back(i);
    }
    step.table = Table(lines);
    Step computed = step;
    Break(lines, &computed);
    const absl::StatusOr<std::vector<float>> logits = pool_.Run(plan, computed);
    if (!logits.ok()) return Fail(absl::StrCat(plan.name, ": ", logits.status().ToString()));
    Compare(plan, step, lines, *logits);
    for (const Piece& piece : pieces) active_[piece.sequence].at += piece.count;
  }

  // Commits the fault, where the step allows it.
  void Break(const std::vector<size_t>& lines, Step* step) {
    if (fault_ == Fault::kLinesSwapped && lines.size() > 1) {
      std::swap(step->table[0], step->table[1]);
    } else if (fault_ == Fault::kFreedTooEarly && active_[lines[0]].at > 0 && Below(8) == 0) {
      pool_.Clear(active_[lines[0]].blocks[(active_[lines[0]].at - 1) / kBlock]);
    } else if (fault_ == Fault::kSharedBlockWritten) {
      for (size_t i = 0; i < lines.size(); ++i) {
        const Sequence& s = active_[lines[i]];
        // A row of another token, computed again, of which no one wants logits.
        if (users_[s.blocks[0]] < 2 || s.at < kBlock || std::ssize(step->rows) == kTokens) continue;
        Step rewrite = *step;
        rewrite.rows = {{(s.text->tokens[3] + 1) % kWords, static_cast<int32_t>(i), 3}};
        rewrite.wanted = {};
        const auto written = pool_.Run(decoder_.plans()[0], rewrite);
        if (!written.ok()) Fail(written.status().ToString());
        return;
      }
    }
  }

  void Compare(const LoadedPlan& plan, const Step& step, const std::vector<size_t>& lines,
               const std::vector<float>& logits) {
    for (size_t r = 0; r < step.wanted.size(); ++r) {
      const Row& row = step.rows[step.wanted[r]];
      const float* const alone =
          active_[lines[row.sequence]].text->logits.data() + int64_t{row.position} * kWords;
      const float* const found = logits.data() + r * kWords;
      ++compared_;
      if (std::memcmp(found, alone, kWords * sizeof(float)) == 0) continue;
      const auto at = std::mismatch(found, found + kWords, alone).first - found;
      Fail(absl::StrCat("position ", row.position, ", row ", step.wanted[r], " of ",
                        step.rows.size(), ", ", step.table.size(), " lines of ",
                        step.table[0].size(), ", plan ", plan.name, ": logit ", at, " is ",
                        found[at], ", alone ", alone[at]));
    }
  }

  const Decoder& decoder_;
  Pool& pool_;
  const std::vector<Text>& texts_;
  std::mt19937 draw_;
  const Fault fault_;
  int waiting_ = 0;
  std::vector<Sequence> active_;
  std::vector<int32_t> free_;
  std::array<int, kBlocks> users_ = {};
  std::string error_;
  int64_t compared_ = 0;
  std::set<std::string> used_plans_;
  bool shared_ = false;
};

int Schedules() {
  const char* const given = std::getenv("ATHANOR_PAGED_SCHEDULES");
  int schedules = 1000;
  EXPECT_TRUE(given == nullptr || absl::SimpleAtoi(given, &schedules)) << given;
  return schedules;
}

// Shared by all tests of a family.
const Decoder& DecoderOf(const std::string& family) {
  static auto& decoders = *new std::map<std::string, absl::StatusOr<std::unique_ptr<Decoder>>>;
  const auto [at, added] = decoders.try_emplace(family, absl::UnknownError(""));
  if (added) at->second = Decoder::Create(CheckpointOf(family));
  return *at->second.value();
}

class PagedBits : public testing::TestWithParam<const char*> {};

TEST_P(PagedBits, PlansHaveOneSignature) {
  const Decoder& decoder = DecoderOf(GetParam());
  ASSERT_EQ(decoder.plans().size(), 11);
  EXPECT_EQ(decoder.plans()[1].spans[0], (DimSpan{1, 1}));
  for (const LoadedPlan& plan : decoder.plans()) {
    EXPECT_EQ(plan.signature, decoder.plans()[0].signature) << plan.name;
  }
  EXPECT_NE(decoder.plans()[0].signature, "");
  EXPECT_NE(decoder.plans()[0].signature, decoder.foreign().signature);
}

// Bits that are equal and wrong would pass the rest.
TEST_P(PagedBits, AloneIsWhatTheReferenceComputes) {
  Checkpoint checkpoint = CheckpointOf(GetParam());
  const absl::StatusOr<ImportedCheckpoint> whole = checkpoint.Import();
  ASSERT_TRUE(whole.ok()) << whole.status();
  Text text;
  std::vector<int32_t> all;
  for (int32_t i = 0; i < 70; ++i) {
    text.tokens.push_back((i * 7 + i / 5) % kWords);
    all.push_back(i);
  }
  ASSERT_TRUE(ComputeAlone(DecoderOf(GetParam()), &text).ok());
  std::vector<std::vector<float>> rows;
  for (auto row = text.logits.begin(); row != text.logits.end(); row += kWords) {
    rows.emplace_back(row, row + kWords);
  }
  ExpectGolden(rows, Logits(checkpoint, *whole, text.tokens, all));
}

TEST_P(PagedBits, EqualInAnySchedule) {
  constexpr int kSchedulesOfTexts = 500;
  const Decoder& decoder = DecoderOf(GetParam());
  Pool pool(decoder);
  absl::StatusOr<std::vector<Text>> texts;
  int64_t compared = 0;
  int shared = 0;
  std::set<std::string> plans;
  const int schedules = Schedules();
  for (int seed = 0; seed < schedules; ++seed) {
    if (seed % kSchedulesOfTexts == 0) {
      texts = MakeTexts(decoder, 12, seed + 1);
      ASSERT_TRUE(texts.ok()) << texts.status();
    }
    Schedule schedule(decoder, pool, *texts, seed, Fault::kNone);
    schedule.Run();
    ASSERT_EQ(schedule.error(), "") << "seed " << seed;
    compared += schedule.compared();
    shared += schedule.shared() ? 1 : 0;
    plans.insert(schedule.plans().begin(), schedule.plans().end());
  }
  EXPECT_GT(compared, 40 * schedules);
  EXPECT_GT(shared, schedules / 20);
  EXPECT_EQ(plans.size(), decoder.plans().size());
  RecordProperty("rows_compared", absl::StrCat(compared));
}

TEST_P(PagedBits, FaultsAreSeen) {
  const Decoder& decoder = DecoderOf(GetParam());
  Pool pool(decoder);
  const absl::StatusOr<std::vector<Text>> texts = MakeTexts(decoder, 6, 0);
  ASSERT_TRUE(texts.ok()) << texts.status();
  for (const Fault fault : {Fault::kSharedBlockWritten, Fault::kLinesSwapped, Fault::kFreedTooEarly,
                            Fault::kOtherSignature}) {
    int seen = 0;
    for (int seed = 0; seed < 60; ++seed) {
      Schedule schedule(decoder, pool, *texts, seed, fault);
      schedule.Run();
      seen += schedule.error().empty() ? 0 : 1;
    }
    EXPECT_GT(seen, 5) << "fault " << static_cast<int>(fault);
  }
}

// Full attention; a window in the second layer, and biases.
INSTANTIATE_TEST_SUITE_P(Tiny, PagedBits, testing::Values("wide_llama", "qwen2_window"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace athanor::checkpoint
