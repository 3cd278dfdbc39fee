#include "server/generate/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry_after.h"
#include "server/generate/engine_testing.h"
#include "server/generate/reply.h"
#include "server/text/tokens/detokenizer.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kVocabulary = 48;

// Token t is the letter t of the alphabet, then pairs of letters; 42 to 44 are the bytes of "€",
// 45 begins a code point and nothing ends it, 46 is a special token.
std::shared_ptr<const Tokenizer> Letters() {
  TokenizerData data;
  data.byte_fallback = true;
  for (char c = 'a'; c <= 'z'; ++c) data.pieces.push_back(std::string(1, c));
  for (char c = 'a'; data.pieces.size() < 42; ++c) data.pieces.push_back({c, c});
  for (const char* byte : {"<0xE2>", "<0x82>", "<0xAC>", "<0xF0>"}) data.pieces.push_back(byte);
  data.pieces.push_back("<end>");
  data.pieces.push_back("\xC3\xA9");
  data.added.push_back({.content = "<end>", .id = 46, .special = true});
  auto tokenizer = Tokenizer::Create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

EngineOptions Small() {
  return {.scheduler = {.max_batched_tokens = 8,
                        .max_sequences = 4,
                        .max_model_len = 64,
                        .max_waiting = 100,
                        .block = 4,
                        .longest_pause = seconds(30)},
          .vocabulary = kVocabulary,
          .blocks = 40,
          .block_bytes = HashRunner::kBlockBytes,
          .outbox_events = 64,
          .room_wait = milliseconds(50)};
}

GenerateInput Ask(std::vector<int32_t> prompt, int64_t max_tokens = 8) {
  return {.sequence = {.prompt = std::move(prompt), .max_tokens = max_tokens},
          .sampling = {.temperature = 0}};
}

class EngineTest : public ::testing::Test {
 protected:
  void Make() { Make(Small()); }
  void Make(const EngineOptions& options, bool with_text = true) {
    engine_ = Engine::Create(options, std::make_unique<HashRunner>(options, knobs_),
                             with_text ? Letters() : nullptr);
  }
  void TearDown() override {
    if (engine_ == nullptr) return;
    const EngineView view = engine_->view();
    EXPECT_EQ(view.running + view.waiting + view.paused, 0);
    EXPECT_EQ(view.free_blocks, view.blocks) << "blocks leaked";
  }
  Heard Hear(GenerateInput input) { return Client(engine_.get(), std::move(input)).Listen(); }
  // Returns the refusal of a request.
  std::string Refusal(GenerateInput input) { return Hear(std::move(input)).end.ToString(); }

  const std::shared_ptr<HashRunner::Knobs> knobs_ = std::make_shared<HashRunner::Knobs>();
  std::unique_ptr<Engine> engine_;
};

// Says by the runner's hash and the sampler alone what a sequence generates.
std::vector<int32_t> Alone(const GenerateInput& input, int64_t signature = 0) {
  std::vector<int32_t> tokens = input.sequence.prompt;
  TokenCounts counts(input.sequence.prompt);
  Sampler sampler(kVocabulary);
  for (int64_t i = 0; i < input.sequence.max_tokens; ++i) {
    uint64_t hash = 0;
    for (size_t j = 0; j < tokens.size(); ++j) {
      hash = MixHash(hash, CellOf(static_cast<int64_t>(j), tokens[j], signature));
    }
    std::vector<float> logits;
    AppendLogits(hash, kVocabulary, &logits);
    const auto next =
        sampler.Sample(logits, input.sampling, counts, static_cast<int64_t>(tokens.size()), {});
    EXPECT_TRUE(next.ok()) << next.status();
    tokens.push_back(next->token);
    counts.Add(next->token);
  }
  return {tokens.begin() + static_cast<ptrdiff_t>(input.sequence.prompt.size()), tokens.end()};
}

std::string TextOf(const std::vector<int32_t>& tokens) {
  Detokenizer detokenizer(Letters());
  std::string text;
  for (int32_t token : tokens) detokenizer.Add(token, &text);
  detokenizer.End(&text);
  return text;
}

// Prompts and settings of all kinds, by number.
GenerateInput Varied(int number) {
  GenerateInput input = Ask({}, 3 + number % 17);
  for (int i = 0; i < 1 + number * 7 % 23; ++i) {
    input.sequence.prompt.push_back((number * 5 + i * 11) % kFailingToken);
  }
  input.sampling = {.temperature = number % 4 == 0 ? 0.0f : 0.5f + 0.1f * (number % 9),
                    .top_k = number % 3 == 0 ? 7 : 0,
                    .top_p = number % 5 == 0 ? 0.8f : 1.0f,
                    .repetition = number % 6 == 0 ? 1.3f : 1.0f,
                    .presence = number % 7 == 0 ? 0.5f : 0.0f,
                    .seed = static_cast<uint64_t>(number % 10)};
  return input;
}

TEST_F(EngineTest, EqualSeedsGiveEqualTokensAloneAndInAnyBatch) {
  for (int64_t most : {1, 4}) {
    SCOPED_TRACE(most);
    EngineOptions options = Small();
    options.scheduler.max_sequences = most;
    Make(options);
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 40; ++i) {
      clients.push_back(std::make_unique<Client>(engine_.get(), Varied(i)));
    }
    for (int i = 0; i < 40; ++i) {
      const Heard& heard = clients[i]->Listen();
      const std::vector<int32_t> alone = Alone(Varied(i));
      ASSERT_TRUE(heard.end.ok()) << heard.end;
      EXPECT_EQ(heard.tokens, alone) << i;
      EXPECT_EQ(heard.text, TextOf(alone)) << i;
      EXPECT_EQ(heard.finish, Finish::kLength);
      EXPECT_EQ(heard.summary.generated_tokens, static_cast<int64_t>(alone.size()));
      EXPECT_EQ(heard.summary.prompt_tokens,
                static_cast<int64_t>(Varied(i).sequence.prompt.size()));
    }
    TearDown();
  }
  EXPECT_EQ(knobs_->most_sequences, 4) << "they shared steps";
}

TEST_F(EngineTest, ManyStreamsOfManyThreads) {
  EngineOptions options = Small();
  options.scheduler.max_sequences = 16;
  options.scheduler.max_batched_tokens = 32;
  options.blocks = 120;
  options.outbox_events = 2;  // they pause, too
  Make(options);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<std::unique_ptr<Client>> clients;
      for (int i = 0; i < 8; ++i) {
        clients.push_back(std::make_unique<Client>(engine_.get(), Varied(thread * 8 + i)));
      }
      for (int i = 0; i < 8; ++i) {
        if (clients[i]->Listen().tokens == Alone(Varied(thread * 8 + i))) ++right;
      }
      engine_->view();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 64);
}

TEST_F(EngineTest, TellsTimesAndWhatItDid) {
  knobs_->before = [](int64_t) { std::this_thread::sleep_for(milliseconds(2)); };
  Make();
  const SequenceTime before = std::chrono::steady_clock::now();
  const Heard heard = Hear(Ask({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5));
  EXPECT_EQ(heard.events, 5) << "one a step";
  EXPECT_GE(heard.summary.started, before);
  EXPECT_GE(heard.summary.first_token, heard.summary.started + milliseconds(4)) << "two steps";
  EXPECT_GE(heard.summary.last_token, heard.summary.first_token + milliseconds(8));
  EXPECT_EQ(heard.summary.plan_id, "plan6");
  EXPECT_EQ(heard.summary.cached_tokens, 0);
  const EngineView view = engine_->view();
  EXPECT_EQ(view.steps, 6);
  EXPECT_EQ(view.prompt_tokens, 10);
  EXPECT_EQ(view.generated_tokens, 5);
  EXPECT_EQ(view.plan_id, "plan6");
  EXPECT_EQ(view.blocks, 39);
  EXPECT_EQ(view.committed_bytes, 400) << "14 positions";
}

TEST_F(EngineTest, CountsByVersion) {
  Metrics all(10);
  EngineOptions options = Small();
  options.metrics = all.ForVersion("m", 1);
  options.outbox_events = 6;
  options.scheduler.longest_pause = milliseconds(20);
  Make(options);
  const MetricCells& cells = options.metrics->cells;
  const auto ended = [&](FinishedReason reason) {
    return cells.value(Metric::kSequencesEnded, static_cast<int>(reason));
  };
  Hear(Ask({1, 2, 3}, 5));
  EXPECT_EQ(ended(FinishedReason::kLength), 1);
  EXPECT_EQ(cells.value(Metric::kPromptTokens), 3);
  EXPECT_EQ(cells.value(Metric::kGenerationTokens), 5);
  EXPECT_EQ(cells.histogram(Metric::kTimeToFirstToken).count(), 1);
  EXPECT_EQ(cells.histogram(Metric::kInterTokenLatency).count(), 4);
  EXPECT_EQ(cells.histogram(Metric::kTimePerOutputToken).count(), 1);
  EXPECT_EQ(cells.histogram(Metric::kSequenceSeconds).count(), 1);
  EXPECT_EQ(cells.histogram(Metric::kSequenceQueueSeconds).count(), 1);
  EXPECT_EQ(cells.histogram(Metric::kStepTokens).sum, 8);
  EXPECT_LE(cells.histogram(Metric::kInterTokenLatency).sum,
            cells.histogram(Metric::kSequenceSeconds).sum);
  GenerateInput input = Ask({1}, 5);
  input.sequence.stop_tokens = {Alone(input)[0]};
  Hear(input);
  EXPECT_EQ(ended(FinishedReason::kStop), 1);
  EXPECT_EQ(cells.histogram(Metric::kTimePerOutputToken).count(), 1) << "one token has no gap";
  Hear(Ask({kFailingToken}));
  Client never(engine_.get(), Ask({1}, 10));
  while (ended(FinishedReason::kError) < 2) std::this_thread::sleep_for(milliseconds(1));
  Client leaves(engine_.get(), Ask({1}, 10));
  engine_->Cancel(leaves.id(), absl::CancelledError("left"));
  input = Ask({1});
  input.sequence.deadline = std::chrono::steady_clock::now();
  Hear(input);
  leaves.Listen();
  EXPECT_EQ(ended(FinishedReason::kAbort), 2);
}

TEST_F(EngineTest, RefusesWhatIsWrongByItsName) {
  Make();
  const auto with = [](auto change) {
    GenerateInput input = Ask({1});
    change(&input);
    return input;
  };
  // Those of a request are counted by the service, and the model's are beside them.
  EXPECT_TRUE(CheckInput(with([](GenerateInput* in) { in->sequence.stop_tokens.assign(5000, 1); }),
                         48, nullptr)
                  .ok());
  EXPECT_THAT(Refusal(Ask({})), HasSubstr("INVALID_ARGUMENT: the prompt has no tokens"));
  EXPECT_THAT(Refusal(Ask({1, 48})), HasSubstr("prompt[1] is 48; the model's tokens are 0 to 47"));
  EXPECT_THAT(Refusal(Ask({-1})), HasSubstr("prompt[0] is -1"));
  EXPECT_THAT(Refusal(Ask({1}, 0)), HasSubstr("max_tokens is 0"));
  EXPECT_THAT(Refusal(Ask(std::vector<int32_t>(64, 1))), HasSubstr("at most 63"));
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->sequence.min_tokens = 9; })),
              HasSubstr("min_tokens is 9; it has to be from 0 to max_tokens, 8"));
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->sequence.min_tokens = -1; })),
              HasSubstr("min_tokens is -1"));
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->sequence.stop_tokens = {0, 99}; })),
              HasSubstr("stop_tokens[1] is 99"));
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->sampling.temperature = NAN; })),
              HasSubstr("temperature is nan"));
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->sampling.bias = {{48, 1}}; })),
              HasSubstr("bias names token 48"));
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->stop = {""}; })), HasSubstr("empty"));
  EXPECT_EQ(knobs_->steps, 0);
  Make(Small(), /*with_text=*/false);
  EXPECT_THAT(Refusal(with([](GenerateInput* in) { in->stop = {"x"}; })),
              HasSubstr("the model has no tokenizer"));
  const Heard heard = Hear(Ask({1}));
  EXPECT_EQ(heard.tokens, Alone(Ask({1})));
  EXPECT_EQ(heard.text, "");
}

TEST_F(EngineTest, RowsBeyondTheTokenizerAreNotChosen) {
  EngineOptions options = Small();
  options.vocabulary = 64;
  Make(options);
  GenerateInput input = Ask({63, 1}, 40);
  input.sampling.temperature = 1000;
  input.sequence.stop_tokens = {63};
  EXPECT_EQ(Hear(input).tokens, Alone(input));
  input.sampling.bias = {{kVocabulary, 1}};
  EXPECT_THAT(Refusal(input), HasSubstr("bias names token 48"));
  EXPECT_THAT(Refusal(Ask({64})), HasSubstr("prompt[0] is 64"));
}

TEST_F(EngineTest, AtMostSoManyWait) {
  EngineOptions options = Small();
  options.scheduler.max_sequences = 1;
  options.scheduler.max_waiting = 2;
  std::atomic<bool> go = false;
  knobs_->before = [&](int64_t) {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
  };
  Make(options);
  Client first(engine_.get(), Ask({1}));
  while (engine_->view().running == 0) std::this_thread::sleep_for(milliseconds(1));
  Client second(engine_.get(), Ask({2})), third(engine_.get(), Ask({3}));
  EXPECT_EQ(engine_->view().waiting, 2) << "while a step runs";
  const absl::Status full = Hear(Ask({4})).end;
  EXPECT_THAT(full.ToString(), HasSubstr("RESOURCE_EXHAUSTED: 2 sequences"));
  EXPECT_EQ(RetryAfter(full), kUnmeasuredRetry) << "none has ended yet";
  go = true;
  for (Client* client : {&first, &second, &third}) EXPECT_TRUE(client->Listen().end.ok());
}

TEST_F(EngineTest, StopsAtTokensAndTexts) {
  Make();
  const std::vector<int32_t> alone = Alone(Ask({3}, 20));
  GenerateInput input = Ask({3}, 20);
  input.sequence.stop_tokens = {alone[4]};
  const auto first = std::find(alone.begin(), alone.end(), alone[4]) - alone.begin();
  Heard heard = Hear(input);
  EXPECT_EQ(heard.finish, Finish::kStop);
  EXPECT_EQ(heard.tokens, std::vector<int32_t>(alone.begin(), alone.begin() + first + 1));
  EXPECT_EQ(heard.text, TextOf({alone.begin(), alone.begin() + first})) << "without the token's";
  EXPECT_EQ(heard.summary.stop_token, alone[4]);
  EXPECT_EQ(heard.summary.stop_text, "");
  input.sequence.min_tokens = 20;
  heard = Hear(input);
  EXPECT_EQ(heard.finish, Finish::kLength);
  EXPECT_EQ(heard.tokens.size(), 20u);
  EXPECT_EQ(std::count(heard.tokens.begin(), heard.tokens.end(), alone[4]), 0) << "left out";

  const std::string text = TextOf(alone);
  for (size_t at : {0, 1, 3, 6, 9}) {  // also over edges of tokens, and the whole text
    for (size_t size : {1, 2, 5}) {
      const std::string stop = text.substr(at, size);
      input = Ask({3}, 20);
      input.stop = {"never", stop};
      heard = Hear(input);
      EXPECT_EQ(heard.finish, Finish::kStop) << stop;
      EXPECT_EQ(heard.text, text.substr(0, text.find(stop))) << stop;
      EXPECT_EQ(heard.summary.stop_text, stop);
      EXPECT_EQ(heard.summary.stop_token, std::nullopt);
    }
  }
  input.stop = {text + "!"};  // held back to the end
  EXPECT_EQ(Hear(input).text, text);
}

// Makes the sequence say these tokens: a bias that grows with the token makes the highest chosen.
GenerateInput Only(std::vector<int32_t> tokens, int64_t max_tokens) {
  GenerateInput input = Ask({1}, max_tokens);
  for (int32_t token : tokens) input.sampling.bias.emplace_back(token, 50);
  return input;
}

TEST_F(EngineTest, TextLeavesInWholeCodePoints) {
  Make();
  EXPECT_EQ(Hear(Only({47}, 3)).text, "ééé");
  EXPECT_EQ(Hear(Only({45}, 2)).text, "\uFFFD\uFFFD") << "what is broken";
  EXPECT_EQ(Hear(Only({42}, 1)).text, "\uFFFD") << "what the end cuts off";
  EXPECT_EQ(Hear(Only({46}, 2)).text, "") << "special tokens";
  GenerateInput input = Only({46}, 2);
  input.special_in_text = true;
  EXPECT_EQ(Hear(input).text, "<end><end>");
}

TEST_F(EngineTest, TellsLogProbabilitiesIfAsked) {
  Make();
  GenerateInput input = Ask({5}, 3);
  EXPECT_THAT(Hear(input).sampled[0].likeliest, IsEmpty());
  input.sampling.logprobs = 4;
  for (const Sampled& sampled : Hear(input).sampled) {
    ASSERT_EQ(sampled.likeliest.size(), 4u);
    EXPECT_EQ(sampled.likeliest[0], (TokenLogprob{sampled.token, sampled.logprob})) << "greedy";
    EXPECT_LT(sampled.logprob, 0);
  }
}

TEST_F(EngineTest, EndsWhatIsCancelled) {
  std::atomic<int64_t> allowed = 1;
  knobs_->before = [&](int64_t step) {
    while (step >= allowed) std::this_thread::sleep_for(milliseconds(1));
  };
  EngineOptions options = Small();
  options.scheduler.max_sequences = 2;
  Make(options);
  Client prompt(engine_.get(), Ask(std::vector<int32_t>(30, 1), 30));
  Client waiting(engine_.get(), Ask({2}, 30)), behind(engine_.get(), Ask({3}, 30));
  while (knobs_->steps < 1) std::this_thread::sleep_for(milliseconds(1));
  engine_->Cancel(prompt.id(), absl::CancelledError("in the prompt"));
  engine_->Cancel(behind.id(), absl::CancelledError("waits"));
  engine_->Cancel(12345, absl::CancelledError("nobody"));
  allowed = 5;
  EXPECT_EQ(prompt.Listen().end, absl::CancelledError("in the prompt"));
  EXPECT_THAT(prompt.heard().tokens, IsEmpty());
  EXPECT_EQ(behind.Listen().end, absl::CancelledError("waits"));
  EXPECT_FALSE(waiting.ListenFor(2).tokens.empty());
  engine_->Cancel(waiting.id(), absl::CancelledError("in the middle"));
  engine_->Cancel(waiting.id(), absl::CancelledError("again"));
  allowed = 1000;
  EXPECT_EQ(waiting.Listen().end, absl::CancelledError("in the middle"));
  EXPECT_LT(waiting.heard().tokens.size(), 30u);
  EXPECT_TRUE(Hear(Ask({4})).end.ok()) << "others go on";
}

TEST_F(EngineTest, EndsAtTheDeadline) {
  knobs_->before = [](int64_t) { std::this_thread::sleep_for(milliseconds(20)); };
  Make();
  GenerateInput input = Ask({1}, 60);
  input.sequence.deadline = std::chrono::steady_clock::now() + milliseconds(300);
  const Heard heard = Hear(input);
  EXPECT_EQ(heard.end.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(heard.tokens.empty());
  EXPECT_LT(heard.tokens.size(), 40u);
  input.sequence.deadline = std::chrono::steady_clock::now() - milliseconds(1);
  EXPECT_EQ(Hear(input).end.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(EngineTest, CloseEndsAll) {
  EngineOptions options = Small();
  options.scheduler.max_sequences = 2;
  knobs_->before = [](int64_t) { std::this_thread::sleep_for(milliseconds(1)); };
  Make(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<Client>(engine_.get(), Ask({i}, 60)));
  }
  clients[0]->ListenFor(2);
  std::thread other([&] { engine_->Close(absl::UnavailableError("deleted")); });
  engine_->Close(absl::UnavailableError("deleted"));
  other.join();
  for (auto& client : clients) EXPECT_EQ(client->Listen().end, absl::UnavailableError("deleted"));
  EXPECT_THAT(Refusal(Ask({1})), HasSubstr("deleted")) << "later ones";
  engine_->Close(absl::InternalError("late"));
  EXPECT_THAT(Refusal(Ask({1})), HasSubstr("deleted")) << "the first status counts";
  engine_->Cancel(1, absl::CancelledError("late"));
}

TEST_F(EngineTest, OutboxesOutliveTheEngine) {
  EngineOptions options = Small();
  options.outbox_events = 2;
  Make(options);
  Client client(engine_.get(), Ask({1}, 60));
  while (engine_->view().paused == 0) std::this_thread::sleep_for(milliseconds(1));
  engine_ = nullptr;
  EXPECT_EQ(client.Listen().end.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client.heard().tokens.size(), 2u);
}

TEST_F(EngineTest, WhoeverDoesNotReadPausesAndThenEnds) {
  EngineOptions options = Small();
  options.outbox_events = 3;
  options.scheduler.longest_pause = milliseconds(500);
  Make(options);
  Client never(engine_.get(), Ask({1}, 40)), reads(engine_.get(), Ask({2}, 40));
  EXPECT_EQ(reads.Listen().tokens, Alone(Ask({2}, 40)));
  while (engine_->view().free_blocks < 39) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(never.Listen().end.ToString(), HasSubstr("RESOURCE_EXHAUSTED: the client read noth"));
  EXPECT_EQ(never.heard().tokens.size(), 3u);
}

TEST_F(EngineTest, ASlowReaderGetsAll) {
  EngineOptions options = Small();
  options.outbox_events = 1;
  Make(options);
  Client slow(engine_.get(), Ask({1}, 30));
  while (slow.Read()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(slow.heard().tokens, Alone(Ask({1}, 30)));
  EXPECT_TRUE(slow.heard().end.ok());
}

TEST_F(EngineTest, ANanEndsItsSequenceAlone) {
  Make();
  Client first(engine_.get(), Ask({1}, 20)), bad(engine_.get(), Ask({2, kNanToken}, 20)),
      last(engine_.get(), Ask({3}, 20));
  EXPECT_THAT(bad.Listen().end.ToString(), HasSubstr("DATA_LOSS"));
  EXPECT_THAT(bad.heard().end.ToString(), HasSubstr("45")) << "the token";
  EXPECT_THAT(bad.heard().tokens, IsEmpty());
  EXPECT_EQ(first.Listen().tokens, Alone(Ask({1}, 20)));
  EXPECT_EQ(last.Listen().tokens, Alone(Ask({3}, 20)));
}

TEST_F(EngineTest, AFailingStepEndsTheGuiltyAlone) {
  knobs_->failing_steps = 5;
  Make();
  Client first(engine_.get(), Ask({1}, 20)), bad(engine_.get(), Ask({2, kFailingToken}, 20)),
      last(engine_.get(), Ask({3}, 20));
  EXPECT_EQ(bad.Listen().end, absl::UnavailableError("the failing token"));
  EXPECT_EQ(first.Listen().tokens, Alone(Ask({1}, 20)));
  EXPECT_EQ(last.Listen().tokens, Alone(Ask({3}, 20)));
}

// Without memory for a block, the last sequence gives up its blocks; the one that is alone ends.
TEST_F(EngineTest, WithoutMemoryForABlockSequencesGiveWay) {
  knobs_->most_committed = 4;
  Make();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(engine_.get(), Ask({i, 1, 2}, 13)));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(clients[i]->Listen().tokens, Alone(Ask({i, 1, 2}, 13))) << i;
    EXPECT_TRUE(clients[i]->heard().end.ok()) << clients[i]->heard().end;
  }
  EXPECT_EQ(Hear(Ask(std::vector<int32_t>(7, 1), 20)).end,
            absl::ResourceExhaustedError("no memory for another block"));
  EXPECT_EQ(Hear(Ask({2}, 3)).tokens, Alone(Ask({2}, 3))) << "blocks kept until then give way";
  EXPECT_LE(knobs_->committed, 4);
}

// One that is alone waits for what others were asked for.
TEST_F(EngineTest, WhoeverIsAloneWaitsForMemory) {
  EngineOptions options = Small();
  options.room_wait = std::chrono::hours(1);
  std::atomic<int> counted = 0;
  options.refused = [&counted] { ++counted; };
  knobs_->most_committed = 2;
  Make(options);
  const GenerateInput input = Ask({1, 2, 3}, 20);
  Client waits(engine_.get(), input);
  while (knobs_->refused < 10) std::this_thread::sleep_for(milliseconds(1));
  const EngineView view = engine_->view();
  EXPECT_EQ(view.running + view.waiting, 1);
  EXPECT_EQ(engine_->room().lock()->unused_bytes(), 0) << "it has given all";
  knobs_->most_committed = 6;
  EXPECT_EQ(waits.Listen().tokens, Alone(input));
  EXPECT_GE(waits.heard().summary.preemptions, 1) << "it gave up its blocks, and waited";
  EXPECT_LE(waits.heard().summary.preemptions, 3);
  EXPECT_EQ(counted, 1 + waits.heard().summary.preemptions) << "however often it tried";

  // Cancels, deadlines and new sequences act meanwhile.
  knobs_->most_committed = 0;
  Client leaves(engine_.get(), Ask({4}, 20));
  GenerateInput late = Ask({5}, 20);
  late.sequence.deadline = std::chrono::steady_clock::now() + milliseconds(100);
  Client is_late(engine_.get(), late);
  EXPECT_EQ(is_late.Listen().end.code(), absl::StatusCode::kDeadlineExceeded);
  engine_->Cancel(leaves.id(), absl::CancelledError("left"));
  EXPECT_EQ(leaves.Listen().end, absl::CancelledError("left"));
  const int64_t refused = knobs_->refused;
  Client closed(engine_.get(), Ask({6}, 20));
  while (knobs_->refused == refused) std::this_thread::sleep_for(milliseconds(1));
  engine_->Close(absl::UnavailableError("closed"));
  EXPECT_EQ(closed.Listen().end, absl::UnavailableError("closed"));
}

EngineOptions Large() {
  EngineOptions options = Small();
  options.scheduler.max_batched_tokens = 128;
  options.scheduler.max_sequences = 16;
  options.scheduler.max_model_len = 2048;
  options.scheduler.block = 16;
  options.blocks = 400;
  return options;
}

// Returns a prompt that has its first `shared` tokens from `beginning`, and then its own.
GenerateInput Prefixed(int beginning, int shared, int own, int64_t max_tokens = 5) {
  GenerateInput input = Ask({}, max_tokens);
  for (int i = 0; i < shared; ++i) input.sequence.prompt.push_back((beginning + i * i) % 37);
  for (int i = 0; i < 9; ++i) input.sequence.prompt.push_back((own + i * 7) % 37);
  return input;
}

TEST_F(EngineTest, ASharedBeginningIsComputedOnce) {
  Metrics all(10);
  EngineOptions options = Large();
  options.metrics = all.ForVersion("m", 1);
  Make(options);
  const Heard first = Hear(Prefixed(3, 1000, 1));
  EXPECT_EQ(first.tokens, Alone(Prefixed(3, 1000, 1)));
  EXPECT_EQ(first.summary.cached_tokens, 0);
  const int64_t rows = knobs_->rows;
  const Heard second = Hear(Prefixed(3, 1000, 2));
  EXPECT_EQ(second.tokens, Alone(Prefixed(3, 1000, 2)));
  EXPECT_EQ(second.summary.cached_tokens, 62 * 16);
  EXPECT_EQ(knobs_->rows - rows, 1009 - 62 * 16 + 4) << "the rest of the prompt, then 4 tokens";
  const Heard again = Hear(Prefixed(3, 1000, 2));
  EXPECT_EQ(again.tokens, second.tokens);
  EXPECT_EQ(again.summary.cached_tokens, 63 * 16) << "all but the last token's block";
  const EngineView view = engine_->view();
  EXPECT_EQ(view.queried_tokens, 3 * 1009);
  EXPECT_EQ(view.cached_tokens, (62 + 63) * 16);
  EXPECT_EQ(view.prompt_tokens, 3 * 1009 - view.cached_tokens);
  EXPECT_EQ(view.kept_blocks, 64) << "63 of the first, 1 of the second";
  EXPECT_EQ(view.free_blocks, view.blocks);
  const MetricCells& cells = options.metrics->cells;
  EXPECT_EQ(cells.value(Metric::kPrefixQueries), view.queried_tokens);
  EXPECT_EQ(cells.value(Metric::kPrefixHits), view.cached_tokens);
  EXPECT_EQ(cells.value(Metric::kPromptTokens), view.prompt_tokens);
}

// Several that come at once wait for the first one's blocks.
TEST_F(EngineTest, ChoicesOfAPromptComputeItOnce) {
  std::atomic<bool> go = false;
  knobs_->before = [&](int64_t) {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
  };
  Make(Large());
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    GenerateInput input = Prefixed(3, 1000, 1);
    input.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
    clients.push_back(std::make_unique<Client>(engine_.get(), input));
  }
  go = true;
  for (int i = 0; i < 8; ++i) {
    GenerateInput input = Prefixed(3, 1000, 1);
    input.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
    EXPECT_EQ(clients[i]->Listen().tokens, Alone(input)) << i;
  }
  EXPECT_EQ(engine_->view().prompt_tokens, 1009 + 7);
}

// Whoever is of another group learns nothing of what others have sent, whatever salt it guesses.
TEST_F(EngineTest, GroupAndSaltKeepPromptsApart) {
  Make(Large());
  for (const char* group : {"", "team-a", "team-b"}) {
    for (const char* salt : {"", "a", "b"}) {
      for (int time : {0, 1}) {
        GenerateInput input = Prefixed(3, 100, 1);
        input.cache_group = group;
        input.cache_salt = salt;
        EXPECT_EQ(Hear(input).summary.cached_tokens, time * 96) << group << " " << salt;
      }
    }
  }
}

// Keys and values of one signature are never read by sequences that begin with another.
TEST_F(EngineTest, AnotherSignatureForgetsWhatIsKept) {
  std::atomic<int64_t> allowed = 1'000'000;
  knobs_->before = [&](int64_t step) {
    while (step >= allowed) std::this_thread::sleep_for(milliseconds(1));
  };
  Make(Large());
  const GenerateInput input = Prefixed(3, 100, 1);
  ASSERT_NE(Alone(input, 0), Alone(input, 1));
  for (const int64_t signature : {0, 1, 2}) {
    knobs_->signature = signature;
    Hear(Ask({1}));  // the engine may have asked for the signature before
    Heard heard = Hear(input);
    EXPECT_EQ(heard.tokens, Alone(input, signature));
    EXPECT_EQ(heard.summary.cached_tokens, 0) << "computed by another";
    heard = Hear(input);
    EXPECT_EQ(heard.tokens, Alone(input, signature));
    EXPECT_EQ(heard.summary.cached_tokens, 96);
  }
  // Sequences that run meanwhile leave nothing behind that others find.
  const GenerateInput other = Prefixed(4, 200, 1, 100);
  allowed = knobs_->steps + 10;
  Client runs(engine_.get(), other);
  ASSERT_EQ(runs.ListenFor(2).end.code(), absl::StatusCode::kOk);
  knobs_->signature = 3;
  allowed = 1'000'000;
  EXPECT_TRUE(runs.Listen().end.ok());
  const Heard heard = Hear(other);
  EXPECT_EQ(heard.summary.cached_tokens, 0);
  EXPECT_EQ(heard.tokens, Alone(other, 3));
}

TEST_F(EngineTest, AFullPoolCostsTimeOnly) {
  EngineOptions options = Small();
  options.scheduler.max_sequences = 64;
  options.scheduler.max_batched_tokens = 64;
  options.blocks = 64 * 10 / 2;  // for half of the load
  std::atomic<bool> all_asked = false;
  knobs_->before = [&](int64_t) {
    while (!all_asked) std::this_thread::sleep_for(milliseconds(1));
  };
  Make(options);
  std::vector<std::unique_ptr<Client>> clients;
  const auto ask = [](int i) { return Ask({i % 30, i / 30, 5, 6, i % 7}, 35); };
  for (int i = 0; i < 64; ++i) clients.push_back(std::make_unique<Client>(engine_.get(), ask(i)));
  all_asked = true;
  for (int i = 0; i < 64; i += 9) {
    engine_->Cancel(clients[i]->id(), absl::CancelledError("left"));
  }
  int64_t preemptions = 0;
  for (int i = 0; i < 64; ++i) {
    const Heard& heard = clients[i]->Listen();
    if (i % 9 == 0 && !heard.end.ok()) {
      EXPECT_EQ(heard.end, absl::CancelledError("left"));
      continue;
    }
    EXPECT_EQ(heard.tokens, Alone(ask(i))) << i;
    EXPECT_TRUE(heard.end.ok()) << heard.end;
    preemptions += heard.summary.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GE(engine_->view().preemptions, preemptions);
}

// A client that does not read gives up its blocks to others that need them, and has all of its
// tokens when it reads again.
TEST_F(EngineTest, ASlowReaderGivesWayAndGoesOn) {
  EngineOptions options = Small();
  options.outbox_events = 3;
  options.blocks = 16 + 1;
  Make(options);
  Client slow(engine_.get(), Ask({1, 2, 3, 4, 5, 6, 7, 8, 9}, 30));
  while (engine_->view().paused == 0) std::this_thread::sleep_for(milliseconds(1));
  const GenerateInput large = Ask(std::vector<int32_t>(50, 2), 14);
  EXPECT_EQ(Hear(large).tokens, Alone(large));
  EXPECT_EQ(engine_->view().preemptions, 1);
  EXPECT_EQ(slow.Listen().tokens, Alone(Ask({1, 2, 3, 4, 5, 6, 7, 8, 9}, 30)));
  EXPECT_EQ(slow.heard().summary.preemptions, 1);
}

TEST_F(EngineTest, KeptBlocksGiveWayToOthersThatLackMemory) {
  std::atomic<bool> lacks = false;
  EngineOptions options = Large();
  options.lacks = [&] { return lacks.load(); };
  Make(options);
  const GenerateInput input = Prefixed(3, 1000, 1);
  Hear(input);
  while (engine_->view().kept_blocks != 63) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(knobs_->committed, 64) << "the block of the last positions is blank";
  lacks = true;
  EXPECT_EQ(Hear(Ask({1})).tokens, Alone(Ask({1})));
  while (engine_->view().committed_bytes > 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(engine_->view().kept_blocks, 0);
  EXPECT_EQ(knobs_->committed, 0);
  lacks = false;
  const Heard heard = Hear(input);
  EXPECT_EQ(heard.tokens, Alone(input));
  EXPECT_EQ(heard.summary.cached_tokens, 0);
  engine_->Close(absl::CancelledError("`lacks` goes"));
}

constexpr int64_t kMuch = std::numeric_limits<int64_t>::max();

TEST_F(EngineTest, MakesRoomForOthers) {
  Make(Large());
  const std::shared_ptr<BlockRoom> room = engine_->room().lock();
  EXPECT_EQ(room->unused_bytes(), 0);
  room->Await(kMuch, SequenceTime::max());
  Hear(Prefixed(3, 1000, 1));
  EXPECT_GT(knobs_->committed, 0);
  room->Await(kMuch, SequenceTime::max());
  EXPECT_EQ(knobs_->committed, 0);
  EXPECT_EQ(engine_->view().kept_blocks, 0);
  room->Await(kMuch, std::chrono::steady_clock::now());
  engine_->Close(absl::UnavailableError("closed"));
  room->Await(kMuch, SequenceTime::max());
}

TEST_F(EngineTest, GivesNoMoreRoomThanIsAskedFor) {
  Make(Large());
  const std::shared_ptr<BlockRoom> room = engine_->room().lock();
  Hear(Prefixed(3, 1000, 1));
  while (engine_->view().kept_blocks != 63) std::this_thread::sleep_for(milliseconds(1));
  const int64_t block = HashRunner::kBlockBytes;
  EXPECT_EQ(knobs_->committed, 64);
  EXPECT_EQ(room->unused_bytes(), 63 * block) << "of 64, as if block 0 took one";
  room->Await(1, SequenceTime::max());
  EXPECT_EQ(knobs_->committed, 63) << "the blank one first";
  EXPECT_EQ(engine_->view().kept_blocks, 63);
  room->Await(block + 1, SequenceTime::max());
  EXPECT_EQ(knobs_->committed, 61) << "whole blocks";
  EXPECT_EQ(engine_->view().kept_blocks, 61);
  // One of several that ask at once is given the most.
  for (const int64_t blocks : {2, 5, 1}) room->Ask(blocks * block);
  while (knobs_->committed > 56) std::this_thread::yield();
  room->Await(block, SequenceTime::max());
  EXPECT_LE(knobs_->committed, 55);
  EXPECT_GE(knobs_->committed, 61 - 9);
}

TEST_F(EngineTest, WhereBlocksSharePagesAllOrNoneAreUnused) {
  EngineOptions options = Large();
  options.block_bytes = 0;
  std::atomic<int64_t> allowed = 1'000'000;
  knobs_->before = [&](int64_t step) {
    while (step >= allowed) std::this_thread::sleep_for(milliseconds(1));
  };
  Make(options);
  const std::shared_ptr<BlockRoom> room = engine_->room().lock();
  Hear(Prefixed(3, 1000, 1));
  while (room->unused_bytes() != 64 * HashRunner::kBlockBytes) std::this_thread::yield();
  allowed = knobs_->steps + 3;
  Client runs(engine_.get(), Ask({1}, 100));
  runs.ListenFor(1);
  EXPECT_EQ(room->unused_bytes(), 0);
  allowed = 1'000'000;
  runs.Listen();
  const int64_t before = knobs_->committed;
  room->Await(1, SequenceTime::max());
  EXPECT_EQ(knobs_->committed, before - 1);
  EXPECT_TRUE(runs.heard().end.ok());
}

// Loads that ask at once have each what it asked for.
TEST_F(EngineTest, ThoseThatWaitForRoomAllHaveIt) {
  Make(Large());
  const std::shared_ptr<BlockRoom> room = engine_->room().lock();
  Hear(Prefixed(3, 1000, 1));
  while (room->unused_bytes() == 0) std::this_thread::yield();
  std::vector<std::thread> loads;
  for (int i = 0; i < 6; ++i) {
    loads.emplace_back([&] { room->Await(5 * HashRunner::kBlockBytes, SequenceTime::max()); });
  }
  for (std::thread& load : loads) load.join();
  EXPECT_EQ(knobs_->committed, 64 - 6 * 5);
}

TEST_F(EngineTest, IsAskedForRoomWithoutWaiting) {
  Make(Large());
  const std::weak_ptr<BlockRoom> room = engine_->room();
  Hear(Prefixed(3, 1000, 1));
  EXPECT_GT(knobs_->committed, 0);
  room.lock()->Ask(kMuch);
  while (knobs_->committed > 0) std::this_thread::yield();
  EXPECT_EQ(Hear(Prefixed(3, 1000, 1)).tokens, Alone(Prefixed(3, 1000, 1)));
  const std::shared_ptr<BlockRoom> outlives = room.lock();
  engine_->Close(absl::UnavailableError("closed"));
  outlives->Ask(kMuch);
  TearDown();
  engine_ = nullptr;
  outlives->Ask(kMuch);
  outlives->Await(kMuch, SequenceTime::max());
  EXPECT_EQ(outlives->unused_bytes(), 0);
}

// While a sequence runs, only its own blocks keep their memory.
TEST_F(EngineTest, MakesRoomBetweenSteps) {
  std::atomic<int64_t> allowed = 1'000'000;
  knobs_->before = [&](int64_t step) {
    while (step >= allowed) std::this_thread::sleep_for(milliseconds(1));
  };
  Make(Large());
  Hear(Prefixed(3, 1000, 1));
  allowed = knobs_->steps + 3;
  Client runs(engine_.get(), Ask({1}, 100));
  runs.ListenFor(1);
  std::thread asks([&] { engine_->room().lock()->Await(kMuch, SequenceTime::max()); });
  allowed = 1'000'000;
  asks.join();
  EXPECT_EQ(engine_->view().kept_blocks, 0);
  EXPECT_EQ(runs.Listen().tokens, Alone(Ask({1}, 100)));
}

TEST_F(EngineTest, TrimsItsRunnerAgainAndAgainWhileIdle) {
  Make();
  Hear(Ask({1}));
  // The first two may be those of its beginning and of the end of the sequence.
  for (const int64_t begin = knobs_->trims; knobs_->trims < begin + 3;) {
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST_F(EngineTest, RefusesWrongLogits) {
  knobs_->missing_logits = 1;
  Make();
  EXPECT_THAT(Hear(Ask({1})).end.ToString(), HasSubstr("INTERNAL: a step gave 47 logits"));
}

}  // namespace
}  // namespace athanor
