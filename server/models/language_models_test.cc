#include "server/models/language_models.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "compiler/frontend/checkpoint/import_testing.h"
#include "gmock/gmock.h"
#include "server/generate/language_model.h"
#include "server/testing/checkpoint_testing.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// The tiny llama has 2 layers, 2 heads of keys and values of 8 elements.
constexpr int64_t kTokenBytes = 2 * 2 * 2 * 8 * sizeof(float);
constexpr int64_t kBlockBytes = 16 * kTokenBytes;

Graph LlamaGraph(const checkpoint::DecoderLimits& limits = {}) {
  checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::Hf("llama");
  checkpoint.options.form = checkpoint::DecoderForm::kPaged;
  checkpoint.options.limits = limits;
  return checkpoint.Import().value().graph;
}

TEST(EngineSizes, OfFlagsWithinTheGraph) {
  const Graph graph = LlamaGraph();
  const EngineSizes sizes = EngineSizesOf({}, graph, int64_t{1} << 40).value();
  EXPECT_EQ(sizes.token_kv_bytes, kTokenBytes);
  EXPECT_EQ(sizes.scheduler.block, 16);
  EXPECT_EQ(sizes.scheduler.max_batched_tokens, 512);
  EXPECT_EQ(sizes.scheduler.max_sequences, 64);
  EXPECT_EQ(sizes.scheduler.max_model_len, 256);
  EXPECT_EQ(sizes.table_blocks, 16);
  EXPECT_EQ(sizes.blocks, 1 + 64 * 16);  // 64 sequences, and block 0
  EXPECT_EQ(sizes.scheduler.itl_target, std::chrono::milliseconds(50));
  EXPECT_EQ(sizes.scheduler.max_preemptions, 8);
  const EngineSizes less = EngineSizesOf({.kv_memory = 5 * kBlockBytes + 1,
                                          .max_model_len = 33,
                                          .max_batched_tokens = 7,
                                          .max_sequences = 3,
                                          .itl_target_ms = 0,
                                          .max_preemptions = 2},
                                         graph, 0)
                               .value();
  EXPECT_EQ(less.scheduler.itl_target, std::chrono::milliseconds(0));
  EXPECT_EQ(less.scheduler.max_preemptions, 2);
  EXPECT_EQ(less.scheduler.max_batched_tokens, 7);
  EXPECT_EQ(less.scheduler.max_sequences, 3);
  EXPECT_EQ(less.scheduler.max_model_len, 33);
  EXPECT_EQ(less.table_blocks, 3);
  EXPECT_EQ(less.blocks, 1 + 5);
  const EngineSizes most =
      EngineSizesOf({.kv_memory = int64_t{1} << 60,
                     .max_model_len = 1 << 20,
                     .max_batched_tokens = 1 << 20,
                     .max_sequences = 1 << 20},
                    LlamaGraph({.tokens = 9, .sequences = 2, .context = 40}), 0)
          .value();
  EXPECT_EQ(most.scheduler.max_batched_tokens, 9);
  EXPECT_EQ(most.scheduler.max_sequences, 2);
  EXPECT_EQ(most.table_blocks, 3);
  EXPECT_EQ(most.blocks, 1 + 2 * 3);
}

// As graphs have them that are older than that order, or whose tensors are bounded.
TEST(EngineSizes, StatesLieByThemselvesWhereBlocksHaveTooFewNumbers) {
  Graph graph = LlamaGraph();
  int64_t* numbers = nullptr;
  for (Dim& dim : graph.dims) {
    if (dim.name == "N") numbers = &dim.max;
  }
  const int64_t states = std::ssize(graph.StateIds()), free = int64_t{1} << 40;
  const auto expect = [&](int64_t given, int64_t blocks, StateMemory::Order order) {
    const EngineSizes sizes =
        EngineSizesOf({.kv_memory = given * kBlockBytes}, graph, free).value();
    EXPECT_EQ(sizes.blocks, blocks);
    EXPECT_EQ(sizes.order, order);
    EXPECT_THAT(sizes.scheduler.more_blocks,
                HasSubstr(blocks < 1 + given ? "--max_tensor_bytes" : "--kv_memory"));
  };
  EXPECT_EQ(*numbers, states * (1 + 64 * 16));
  expect(64 * 16, 1 + 64 * 16, StateMemory::Order::kByBlock);
  *numbers -= 1;
  expect(64 * 16, 1 + 64 * 16, StateMemory::Order::kByState);
  *numbers = 25 * states;
  expect(24, 25, StateMemory::Order::kByBlock);
  expect(25, 26, StateMemory::Order::kByState);
  expect(200, 25 * states, StateMemory::Order::kByState);
  *numbers = 2;
  expect(24, 2, StateMemory::Order::kByState);
  *numbers = 1;
  EXPECT_EQ(EngineSizesOf({}, graph, free).status(),
            absl::ResourceExhaustedError(
                "keys and values need 2 blocks of 16 positions, and the graph has room for 1 (dim "
                "\"N\"): upload the model with a higher --max_tensor_bytes"));
}

TEST(EngineSizes, HalfOfTheFreeMemoryUnlessAFlagSays) {
  const Graph graph = LlamaGraph();
  EXPECT_EQ(EngineSizesOf({}, graph, 2 * 10 * kBlockBytes + 1)->blocks, 1 + 10);
  EXPECT_EQ(EngineSizesOf({}, graph, 2 * kBlockBytes)->blocks, 1 + 1);
  for (const int64_t free : {2 * kBlockBytes - 1, int64_t{0}, int64_t{-5}}) {
    const absl::Status status = EngineSizesOf({}, graph, free).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--memory_limit"));
  }
  const absl::Status status =
      EngineSizesOf({.kv_memory = kBlockBytes - 1}, graph, 1 << 30).status();
  EXPECT_EQ(status.message(),
            "keys and values of a block of 16 positions have 4096 bytes, and there is room for "
            "4095, as --kv_memory says");
}

TEST(EngineSizes, OtherEnginesKeepWhatTheyWerePromised) {
  const Graph graph = LlamaGraph();
  const int64_t free = 2 * 100 * kBlockBytes;
  EXPECT_EQ(EngineSizesOf({}, graph, free, 2 * 60 * kBlockBytes)->blocks, 1 + 40);
  // But for a sequence of 256 tokens, if that is there.
  EXPECT_EQ(EngineSizesOf({}, graph, free, 2 * 90 * kBlockBytes)->blocks, 1 + 16);
  EXPECT_EQ(EngineSizesOf({}, graph, free, 4 * free)->blocks, 1 + 16);
  EXPECT_EQ(EngineSizesOf({}, graph, 2 * 10 * kBlockBytes, free)->blocks, 1 + 10);
  EXPECT_EQ(EngineSizesOf({.kv_memory = 50 * kBlockBytes}, graph, free, free)->blocks, 1 + 50);
}

// Takes all of a sequence.
class Reader {
 public:
  explicit Reader(const ModelVersion& version, const std::vector<int32_t>& prompt,
                  int64_t max_tokens) {
    GenerateInput input;
    input.sequence.prompt = prompt;
    input.sequence.max_tokens = max_tokens;
    input.sampling.temperature = 0;
    absl::StatusOr<Engine::Started> started =
        version.language_model()->engine->Start(std::move(input), [this] {
          MutexLock lock(mu_);
          filled_ = true;
          changed_.NotifyAll();
        });
    EXPECT_TRUE(started.ok()) << started.status();
    outbox_ = started->outbox;
  }

  // Waits for so many tokens, or the end.
  void Await(size_t tokens) {
    while (tokens_.size() < tokens && !end_.has_value()) {
      {
        MutexLock lock(mu_);
        while (!filled_) changed_.Wait(lock);
        filled_ = false;
      }
      Outbox::Content content = outbox_->Take();
      for (const GenerateEvent& event : content.events) {
        for (const Sampled& sampled : event.tokens) tokens_.push_back(sampled.token);
        if (event.summary.has_value()) plan_id_ = event.summary->plan_id;
      }
      if (content.end.has_value()) end_ = content.end;
    }
  }
  absl::Status End() {
    Await(SIZE_MAX);
    return *end_;
  }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::string& plan_id() const { return plan_id_; }

 private:
  Mutex mu_;
  CondVar changed_;
  bool filled_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Outbox> outbox_;
  std::vector<int32_t> tokens_;
  std::string plan_id_;
  std::optional<absl::Status> end_;
};

class LanguageModelsTest : public CoreTest {
 protected:
  std::shared_ptr<ModelVersion> StoreLlama(const std::string& format = "hf") {
    const auto version =
        Store(CheckpointMessagesOf(format, format == "hf" ? LlamaFiles() : LlamaGguf()));
    EXPECT_TRUE(core_->workers().Start(version).ok());
    return version;
  }
  std::shared_ptr<ModelVersion> Version() {
    return core_->registry().versions().Find("m", "").value();
  }
  void Restart() {
    core_.reset();
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  }
  // Generates what transformers does.
  void ExpectGolden(const ModelVersion& version) {
    const nlohmann::json golden = LlamaGolden();
    Reader reader(version, golden["ids"], 64);
    EXPECT_TRUE(reader.End().ok()) << reader.End();
    const std::vector<int32_t> greedy = golden["greedy"];
    ASSERT_FALSE(reader.tokens().empty());
    // Both end at an end token.
    const auto end = std::find(greedy.begin(), greedy.end(), 2);
    EXPECT_EQ(reader.tokens().size(), std::min<size_t>(64, end - greedy.begin() + 1));
    const std::vector<double> gaps = golden["gaps"];
    ASSERT_GT(*std::min_element(gaps.begin(), gaps.end()), 1e-3) << "else the first may be another";
    for (size_t i = 0; i < reader.tokens().size(); ++i) {
      EXPECT_EQ(reader.tokens()[i], greedy[i]) << i;
    }
    EXPECT_TRUE(version.plans().view().Find(reader.plan_id()).has_value()) << reader.plan_id();
  }
  const std::vector<int32_t> prompt_ = {5, 40, 5, 1};
};

TEST_F(LanguageModelsTest, GeneratesTheGoldenTokens) {
  for (const char* format : {"hf", "gguf"}) {
    const auto version = StoreLlama(format);
    ASSERT_NE(version->language_model(), nullptr);
    EXPECT_EQ(version->language_model()->family, "llama");
    EXPECT_EQ(version->language_model()->token_kv_bytes, kTokenBytes);
    EXPECT_EQ(version->language_model()->end_tokens, std::vector<int32_t>{2});
    ExpectGolden(*version);  // waits for the plan
  }
  Restart();
  ASSERT_TRUE(Await(*Version()).ok());
  ExpectGolden(*Version());
}

TEST_F(LanguageModelsTest, SequencesSideBySideAreAsAlone) {
  const auto version = StoreLlama();
  std::vector<std::vector<int32_t>> alone;
  for (int32_t first = 3; first < 8; ++first) {
    Reader reader(*version, {first, 9, first}, 40);
    EXPECT_TRUE(reader.End().ok());
    alone.push_back(reader.tokens());
  }
  std::vector<std::unique_ptr<Reader>> readers;
  for (int32_t first = 3; first < 8; ++first) {
    readers.push_back(
        std::make_unique<Reader>(*version, std::vector<int32_t>{first, 9, first}, 40));
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    EXPECT_TRUE(readers[i]->End().ok());
    EXPECT_EQ(readers[i]->tokens(), alone[i]);
  }
}

TEST_F(LanguageModelsTest, HasNoEGraphsSinceItsSearchesUseNoRules) {
  const absl::Status status = StoreLlama()->Picture(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("searches of models with states use no rewriting rules"));
}

TEST_F(LanguageModelsTest, MemoryOfBlocksIsCountedAndGivenBack) {
  auto version = StoreLlama();
  EXPECT_EQ(core_->ledger().used(HeldKind::kStates), 0);
  Reader reader(*version, prompt_, 20);
  EXPECT_TRUE(reader.End().ok());
  EXPECT_GT(core_->ledger().used(HeldKind::kStates), 0);
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  version.reset();
  while (core_->ledger().used(HeldKind::kStates) > 0) std::this_thread::yield();
}

TEST_F(LanguageModelsTest, EnginesMakeRoomForOthers) {
  LanguageModels& models = core_->registry().language_models();
  ServerLedger& ledger = core_->ledger();
  // Asks for so many bytes more than are free.
  const auto make_room = [&](int64_t more, const std::string& device = "") {
    return models.MakeRoom(device, ledger, ledger.free() + more, SequenceTime::max());
  };
  EXPECT_TRUE(make_room(0));
  EXPECT_FALSE(make_room(1)) << "there is no engine";
  auto version = StoreLlama();
  Reader first(*version, {3}, 1);  // waits for the plan: what it computed is not kept
  EXPECT_TRUE(first.End().ok());
  Reader reader(*version, std::vector<int32_t>(50, 3), 20);
  EXPECT_TRUE(reader.End().ok());
  const int64_t before = core_->ledger().used(HeldKind::kStates);
  EXPECT_EQ(version->language_model()->engine->view().kept_blocks, 4) << "of 69 positions";
  // What can never fit has nothing give way, whoever asks and however often.
  Engine& engine = *version->language_model()->engine;
  const int64_t unused = engine.room().lock()->unused_bytes();
  EXPECT_FALSE(ledger.Reserve(HeldKind::kRequests, int64_t{1} << 60, "much").ok());
  EXPECT_FALSE(ledger.Reserve(HeldKind::kRequests, ledger.free() + unused + 1, "much").ok());
  EXPECT_FALSE(make_room(unused + 1));
  EXPECT_FALSE(make_room(unused, "cuda:0")) << "the blocks are not there";
  Reader waits(*version, {3}, 1);  // a step after that
  EXPECT_TRUE(waits.End().ok());
  EXPECT_EQ(engine.view().kept_blocks, 4);
  // Whoever is refused memory has kept blocks give way until there is enough.
  while (engine.view().kept_blocks == 4) {
    EXPECT_FALSE(ledger.Reserve(HeldKind::kRequests, ledger.free() + unused, "as much").ok());
    std::this_thread::yield();
  }
  Reader again(*version, std::vector<int32_t>(50, 3), 20);
  EXPECT_TRUE(again.End().ok());
  EXPECT_EQ(engine.view().kept_blocks, 4);
  make_room(engine.room().lock()->unused_bytes());
  EXPECT_LT(engine.view().kept_blocks, 4);
  EXPECT_LE(ledger.used(HeldKind::kStates), before) << "a granule may hold block 0";
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  version.reset();
  while (make_room(1)) std::this_thread::yield();
}

TEST_F(LanguageModelsTest, WhatAnEngineMayTakeIsPromisedWhileItLives) {
  control_->HoldCompiles();
  const LanguageModels& models = core_->registry().language_models();
  const auto version = StoreLlama();
  int64_t elements = 0;
  for (NodeId id : version->graph().ParameterIds()) {
    int64_t own = 1;
    for (const Expr& size : version->graph().node(id).type.shape) own *= *size.constant();
    elements += own;
  }
  const LanguageModels::Promised promised = models.promised();
  EXPECT_EQ(promised.prepared, 4 * elements);
  EXPECT_EQ(promised.states, (1 + 64 * 16) * kBlockBytes);
  StoreLlama();
  EXPECT_EQ(models.promised().states, 2 * promised.states);
  control_->ReleaseCompiles();
  Reader reader(*version, prompt_, 5);
  EXPECT_TRUE(reader.End().ok());
  const int64_t taken = core_->ledger().used(HeldKind::kStates);
  EXPECT_GT(taken, 0);
  EXPECT_EQ(models.promised().states, 2 * promised.states - taken);
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  while (models.promised().states > 0 || models.promised().prepared > 0) std::this_thread::yield();
}

TEST_F(LanguageModelsTest, ADeletedVersionEndsItsSequences) {
  const auto version = StoreLlama();
  Reader reader(*version, prompt_, 250);
  reader.Await(1);
  control_->HoldRuns();
  std::thread remove([&] { EXPECT_TRUE(core_->registry().Delete("m", "").ok()); });
  control_->ReleaseRuns();
  remove.join();
  const absl::Status end = reader.End();
  // It may have come to its own end before.
  EXPECT_TRUE(end.ok() || absl::IsNotFound(end)) << end;
  EXPECT_TRUE(absl::IsNotFound(
      version->language_model()->engine->Start({.sequence = {.prompt = prompt_}}, [] {}).status()));
}

TEST_F(LanguageModelsTest, EndsWhileItWaitsForAPlan) {
  control_->HoldCompiles();
  {
    const auto version = StoreLlama();
    Reader reader(*version, prompt_, 5);
    ASSERT_TRUE(core_->registry().Delete("m", "").ok());
    EXPECT_TRUE(absl::IsNotFound(reader.End())) << reader.End();
  }
  Reader reader(*StoreLlama(), prompt_, 5);
  core_.reset();  // the server ends
  EXPECT_FALSE(reader.End().ok());
  control_->ReleaseCompiles();
}

TEST_F(LanguageModelsTest, EndsWithTheErrorOfItsCompileJob) {
  control_->FailCompiles(absl::InternalError("no compiler"));
  Reader reader(*StoreLlama(), prompt_, 5);
  EXPECT_THAT(std::string(reader.End().message()), HasSubstr("no compiler"));
}

TEST_F(LanguageModelsTest, DamagedWeightsEndItsSequences) {
  const auto version = StoreLlama();
  ASSERT_TRUE(Await(*version).ok());
  ExpectGolden(*version);
  version->Withdraw(absl::FailedPreconditionError("its weights are damaged"));
  Reader reader(*version, prompt_, 5);
  EXPECT_EQ(reader.End(), absl::FailedPreconditionError("its weights are damaged"));
}

TEST_F(LanguageModelsTest, ATextThatIsDamagedAtTheStartIsNamed) {
  StoreLlama();
  core_.reset();
  const std::string config = ReadLlama("config.json");
  int damaged = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(options_.state_dir + "/blobs")) {
    if (!entry.is_regular_file() || entry.file_size() != config.size()) continue;
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
    std::ofstream(entry.path(), std::ios::binary) << std::string(config.size(), 'x');
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  const auto version = Version();
  EXPECT_EQ(version->language_model(), nullptr);
  EXPECT_THAT(std::string(version->unusable().message()), HasSubstr("file \"config.json\""));
  EXPECT_EQ(version->state(), v1::Model::FAILED);
  // Another version of the same files serves.
  ExpectGolden(*StoreLlama());
}

TEST_F(LanguageModelsTest, RefusesWhatItCannotServe) {
  const auto send = [&](const CheckpointFiles& files, ServerOptions options) {
    Upload upload(&core_->registry(), &core_->ledger(), options);
    absl::Status status;
    for (const auto& message : CheckpointMessagesOf("hf", files)) {
      if (status.ok()) status = upload.Take(message);
    }
    return status;
  };
  options_.kv_memory = kBlockBytes - 1;
  Restart();
  absl::Status status = send(LlamaFiles(), options_);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--kv_memory"));
  options_.kv_memory = 0;
  Restart();
  CheckpointFiles files = LlamaFiles();
  files.insert(files.begin() + 2, {"tokenizer.json", "{"});
  status = send(files, options_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json"));
  EXPECT_EQ(core_->registry().versions().count(), 0);
}

}  // namespace
}  // namespace athanor
