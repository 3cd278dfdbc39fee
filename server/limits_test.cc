// Tests every flag that limits something: what is within the limit is accepted; what exceeds it is
// refused with a code, the numbers and, if the server itself enforces it, the flag. Fails if the
// flag table marks a row as a limit and there is no case for it here.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/cache_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/options.h"
#include "server/generate/language_model.h"
#include "server/limits_testing.h"
#include "server/testing/checkpoint_testing.h"
#include "server/testing/onnx_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

void MemoryLimit() {
  ExpectBound({.memory_limit = 1 << 20, .max_chunk_bytes = 1 << 10}, Weights(1), Weights(1 << 18),
              kExhausted, {"1048576 bytes for parameters", "limit of 1048576", "--memory_limit"});
  // Memory that an import works with counts too.
  TestServer test({.memory_limit = 1 << 20, .max_chunk_bytes = 1 << 10});
  OnnxFiles model = OnnxModelOf({});
  EXPECT_TRUE(test.Send(OnnxMessages("m", model)).ok());
  model.model.set_doc_string(std::string(100 << 10, 'x'));
  ExpectRefused(test.Send(OnnxMessages("n", model)), kExhausted,
                {"the import of model \"n\"", "limit of 1048576", "--memory_limit"});
}

void MessageBytes() {
  TestServer test({.max_message_bytes = 64 << 10, .max_chunk_bytes = 32 << 10});
  test.Upload("m", ReluModel());
  // gRPC's own message: our code never sees the call.
  ExpectRefused(test.Infer(FloatRequest("m", std::vector<float>(32 << 10))), kExhausted, {"65536"});
}

void ChunkBytes() {
  TestServer test({.max_chunk_bytes = 16});
  EXPECT_TRUE(test.Send(UploadMessages("m", Weights(6), 16)).ok());
  ExpectRefused(test.Send(UploadMessages("n", ScaleModel({1, 2, 3, 4, 5, 7}), 24)), kExhausted,
                {"24 bytes; at most 16", "--max_chunk_bytes"});
}

void Models() {
  ExpectBound({.max_models = 1}, ReluModel(), Weights(1), kExhausted,
              {"1 model versions", "--max_models"});
}

ServerOptions WithCache(ServerOptions options = {}) {
  options.cache = FreshDirectory() + "/cache.db";
  return options;
}

void ImportBytes() {
  TestServer from(WithCache());
  from.control->cache()->recipes().Put(TestRecipeKey(0), TestRecipe("tile 4"));
  ASSERT_TRUE(from.control->cache()->Flush(std::chrono::seconds(60)).ok());
  grpc::ClientContext exporting;
  auto reader = from.cache_stub->Export(&exporting, {});
  std::vector<v1::CacheBundleChunk> chunks;
  for (v1::CacheBundleChunk chunk; reader->Read(&chunk);) chunks.push_back(chunk);
  ASSERT_TRUE(reader->Finish().ok());
  const auto import = [&](ServerOptions options) {
    TestServer to(WithCache(std::move(options)));
    grpc::ClientContext context;
    v1::ImportCacheReply reply;
    auto writer = to.cache_stub->Import(&context, &reply);
    for (const v1::CacheBundleChunk& chunk : chunks) writer->Write(chunk);
    writer->WritesDone();
    return writer->Finish();
  };
  EXPECT_TRUE(import({}).ok());
  ExpectRefused(import({.max_import_bytes = 100}), kExhausted,
                {"at most 100", "--max_import_bytes"});
}

void OnnxBytes() {
  OnnxFiles model = OnnxModelOf({{"w", {1, 2, 3}}});
  model.files = {{"a", std::string(100, 'a')}, {"b", std::string(100, 'b')}};
  const auto bytes = static_cast<int64_t>(model.model.ByteSizeLong()) + 200;
  TestServer test({.max_onnx_bytes = bytes});
  EXPECT_TRUE(test.Send(OnnxMessages("m", model)).ok());
  model.files[1].second += "b";
  ExpectRefused(test.Send(OnnxMessages("m", model)), kExhausted,
                {"file \"b\" of 101 bytes", absl::StrCat(bytes), "--max_onnx_bytes"});
}

void OnnxCount() {
  OnnxFiles model = OnnxModelOf({});
  model.files = {{"a", ""}, {"b", ""}};
  TestServer test({.max_onnx_files = 2});
  EXPECT_TRUE(test.Send(OnnxMessages("m", model)).ok());
  model.files.push_back({"c", ""});
  ExpectRefused(test.Send(OnnxMessages("m", model)), kExhausted,
                {"3 files; at most 2", "--max_onnx_files"});
}

std::vector<v1::UploadModelRequest> CheckpointMessages(
    const std::map<std::string, int64_t>& files) {
  std::vector<v1::UploadModelRequest> messages(1);
  v1::UploadHeader* header = messages[0].mutable_header();
  header->set_name("m");
  header->set_format("hf");
  for (const auto& [path, bytes] : files) {
    v1::UploadFile* file = header->add_files();
    file->set_path(path);
    file->set_bytes(bytes);
  }
  return messages;
}

void CheckpointBytes() {
  TestServer test({.max_checkpoint_bytes = 100});
  ExpectRefused(test.Send(CheckpointMessages({{"config.json", 1}, {"a.safetensors", 99}})),
                grpc::StatusCode::INVALID_ARGUMENT, {"ended before its commit"});
  ExpectRefused(test.Send(CheckpointMessages({{"config.json", 1}, {"a.safetensors", 100}})),
                kExhausted, {"of 1 bytes", "more than the 100", "--max_checkpoint_bytes"});
}

void CheckpointCount() {
  TestServer test({.max_checkpoint_files = 2});
  ExpectRefused(test.Send(CheckpointMessages({{"config.json", 1}, {"a.safetensors", 1}})),
                grpc::StatusCode::INVALID_ARGUMENT, {"ended before its commit"});
  ExpectRefused(test.Send(CheckpointMessages(
                    {{"config.json", 1}, {"a.safetensors", 1}, {"b.safetensors", 1}})),
                kExhausted, {"3 files; at most 2", "--max_checkpoint_files"});
}

void KvMemory() {
  // 16 positions of the tiny llama have 4,096 bytes of keys and values.
  TestServer enough({.kv_memory = 4096});
  EXPECT_TRUE(enough.Send(CheckpointMessagesOf("gguf", LlamaGguf())).ok());
  TestServer test({.kv_memory = 4095});
  ExpectRefused(test.Send(CheckpointMessagesOf("gguf", LlamaGguf())), kExhausted,
                {"16 positions have 4096 bytes", "room for 4095", "--kv_memory"});
}

void ModelLen() {
  TestServer test({.max_model_len = 5});
  ASSERT_TRUE(test.Send(CheckpointMessagesOf("gguf", LlamaGguf())).ok());
  const auto version = test.server->core().registry().versions().Find("m", "").value();
  const auto start = [&](size_t tokens) {
    GenerateInput input;
    input.sequence.prompt.assign(tokens, 7);
    return version->language_model()->engine->Start(std::move(input), [] {}).status();
  };
  EXPECT_TRUE(start(4).ok());
  const absl::Status status = start(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max_model_len is 5"));
}

// Holds calls that run or wait, until the destructor lets them end.
class Held {
 public:
  explicit Held(const ServerOptions& options) : test(options), contexts_(options.contexts) {
    test.Upload("m", Weights(1));
    while (test.server->core().active_calls() > 0) std::this_thread::yield();
    test.control->HoldRuns();
  }
  ~Held() {
    test.control->ReleaseRuns();
    for (std::thread& call : calls_) call.join();
  }

  // Makes one more call, through `stub`; returns once it runs, or waits because all contexts are
  // busy.
  void Call(inference::GRPCInferenceService::Stub* stub) {
    calls_.emplace_back([this, stub] {
      grpc::ClientContext context;
      inference::ModelInferResponse reply;
      const grpc::Status status = stub->ModelInfer(&context, FloatRequest("m", {1}), &reply);
      ++ended_;
      EXPECT_TRUE(status.ok()) << status.error_message();
    });
    const auto calls = static_cast<int64_t>(calls_.size());
    const int64_t running = std::min(calls, contexts_);
    while (ended_ == 0 && (Running() != running || Waiting() != calls - running)) {
      std::this_thread::yield();
    }
    ASSERT_EQ(ended_, 0);  // held calls end when they are released
  }

  TestServer test;

 private:
  int64_t Running() { return test.control->runs_waiting(); }
  int64_t Waiting() {
    int64_t waiting = 0;
    for (const auto& queue : test.server->core().requests().waiting()) waiting += queue.requests;
    return waiting;
  }

  const int64_t contexts_;
  std::atomic<int> ended_{0};
  std::vector<std::thread> calls_;
};

void Pending() {
  Held held({.threads = 2, .max_pending = 2, .contexts = 2});
  for (int i = 0; i < 2; ++i) held.Call(held.test.inference_stub.get());
  ExpectRefused(held.test.Infer(FloatRequest("m", {1})), kExhausted, {"2 calls", "--max_pending"});
}

// Calls above the limit do not leave the client, and other clients are not affected.
void ConnectionCalls() {
  Held held({.threads = 2, .max_connection_calls = 2, .contexts = 2});
  for (int i = 0; i < 2; ++i) held.Call(held.test.inference_stub.get());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  inference::ModelInferResponse reply;
  EXPECT_EQ(
      held.test.inference_stub->ModelInfer(&context, FloatRequest("m", {1}), &reply).error_code(),
      grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(held.test.server->core().active_calls(), 2);
  const auto other = OtherConnection(held.test);
  held.Call(other.get());
}

void Queue() {
  Held held({.threads = 1, .max_queue = 2, .contexts = 1});
  for (int i = 0; i < 3; ++i) held.Call(held.test.inference_stub.get());
  ExpectRefused(held.test.Infer(FloatRequest("m", {1})), kExhausted,
                {"2 requests wait already", "--max_queue"});
}

void ClientPercent() {
  Held held({.threads = 1, .max_queue = 4, .max_client_percent = 25, .contexts = 1});
  const auto other = OtherConnection(held.test);
  for (int i = 0; i < 2; ++i) held.Call(held.test.inference_stub.get());
  held.Call(other.get());
  ExpectRefused(held.test.Infer(FloatRequest("m", {1})), kExhausted,
                {"1 requests of this client", "25 %", "--max_client_percent"});
}

// The test backend predicts a run of 1 ms (testing.cc).
void QueueDelay() {
  Held held({.threads = 1, .max_queue_delay_ms = 1, .contexts = 1});
  for (int i = 0; i < 6; ++i) held.Call(held.test.inference_stub.get());
  ExpectRefused(held.test.Infer(FloatRequest("m", {1})), kExhausted,
                {"5.0 ms, more than the 4.0 ms", "--max_queue_delay"});
}

void CompileJobs() {
  TestServer test({.compile_workers = 1, .max_compile_jobs = 1});
  test.control->HoldCompiles();
  v1::UploadModelResponse first;
  ASSERT_TRUE(test.Send(UploadMessages("a", Weights(1)), &first).ok());
  const auto compiling = [&] {
    grpc::ClientContext context;
    v1::GetCompileJobRequest request;
    request.set_id(first.compile_job_id());
    v1::CompileJob job;
    EXPECT_TRUE(test.compile->GetCompileJob(&context, request, &job).ok());
    return job.phase() == v1::CompileJob::COMPILING_KERNELS;
  };
  while (!compiling()) std::this_thread::yield();
  ASSERT_TRUE(test.Send(UploadMessages("b", Weights(1))).ok());
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("a");
  v1::CompileJob job;
  ExpectRefused(test.compile->StartCompile(&context, request, &job), kExhausted,
                {"1 compile jobs", "--max_compile_jobs"});
}

void Buckets() {
  TestServer test({.max_buckets = 2});
  const auto cut = [](int ranges) {
    std::vector<v1::UploadModelRequest> messages = UploadMessages("m", ReluModel());
    auto* b = messages[0].mutable_header()->add_buckets();
    b->set_dim("b");
    for (int i = 1; i <= ranges; ++i) {
      auto* range = b->add_ranges();
      range->set_min(i);
      range->set_max(i == ranges ? 64 : i);
    }
    return messages;
  };
  EXPECT_TRUE(test.Send(cut(2)).ok());
  ExpectRefused(test.Send(cut(3)), kExhausted, {"3 buckets; at most 2", "--max_buckets"});
}

inference::ModelInferRequest TapRequest(const std::string& taps) {
  inference::ModelInferRequest request = FloatRequest("m", {2});
  (*request.mutable_parameters())["taps"].set_string_param(taps);
  return request;
}

void TapPlans() {
  TestServer test({.tap_plans = 1});
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  std::thread waiting([&] { EXPECT_TRUE(test.Infer(TapRequest("hidden")).ok()); });
  const auto jobs = [&] {
    grpc::ClientContext context;
    v1::ListCompileJobsResponse reply;
    EXPECT_TRUE(test.compile->ListCompileJobs(&context, {}, &reply).ok());
    return reply.jobs_size();
  };
  while (jobs() < 2) std::this_thread::yield();
  ExpectRefused(test.Infer(TapRequest("doubled")), kExhausted,
                {"plans for 1 other", "--tap_plans"});
  test.control->ReleaseCompiles();
  waiting.join();
}

void Taps() {
  TestServer test({.max_taps = 2});
  test.Upload("m", ChainModel({1}));
  EXPECT_TRUE(test.Infer(TapRequest("x,w")).ok());
  ExpectRefused(test.Infer(TapRequest("x,w,hidden")), kInvalid, {"more than 2", "--max_taps"});
}

void Wait() {
  TestServer test({.max_wait_ms = 30});
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", Weights(1))).ok());
  ExpectRefused(test.Infer(FloatRequest("m", {2})), grpc::StatusCode::DEADLINE_EXCEEDED, {"m"});
}

// Watchers that have received one state.
class Watchers {
 public:
  explicit Watchers(TestServer& test, std::string job) : test_(test), job_(std::move(job)) {}
  ~Watchers() {
    for (Watch& watch : watches_) {
      watch.context->TryCancel();
      (void)watch.reader->Finish();
    }
  }

  grpc::Status Add() {
    Watch watch{std::make_unique<grpc::ClientContext>(), nullptr};
    v1::WatchCompileJobRequest request;
    request.set_id(job_);
    watch.reader = test_.compile->WatchCompileJob(watch.context.get(), request);
    v1::CompileJob state;
    if (!watch.reader->Read(&state)) return watch.reader->Finish();
    watches_.push_back(std::move(watch));
    return grpc::Status::OK;
  }

 private:
  struct Watch {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<v1::CompileJob>> reader;
  };

  TestServer& test_;
  const std::string job_;
  std::vector<Watch> watches_;
};

// Streams do not displace requests either.
void Streams() {
  TestServer test({.max_pending = 1, .max_streams = 3});
  test.Upload("served", Weights(1));
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  test.control->HoldCompiles();
  v1::UploadModelResponse waiting;
  ASSERT_TRUE(test.Send(UploadMessages("m", Weights(2)), &waiting).ok());
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  Watchers watchers(test, waiting.compile_job_id());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(watchers.Add().ok());
  ExpectRefused(watchers.Add(), kExhausted, {"3 streams of jobs", "--max_streams"});
  EXPECT_THAT(test.Infer("served", {2}), testing::ElementsAre(2));
}

LimitCases AllCases() {
  LimitCases cases{
      {"memory_limit", MemoryLimit},
      {"max_message_bytes", MessageBytes},
      {"max_chunk_bytes", ChunkBytes},
      {"max_import_bytes", ImportBytes},
      {"max_onnx_bytes", OnnxBytes},
      {"max_onnx_files", OnnxCount},
      {"max_checkpoint_bytes", CheckpointBytes},
      {"max_checkpoint_files", CheckpointCount},
      {"max_models", Models},
      {"max_connection_calls", ConnectionCalls},
      {"max_pending", Pending},
      {"max_streams", Streams},
      {"max_queue", Queue},
      {"max_client_percent", ClientPercent},
      {"max_queue_delay", QueueDelay},
      {"max_compile_jobs", CompileJobs},
      {"max_buckets", Buckets},
      {"tap_plans", TapPlans},
      {"max_taps", Taps},
      {"kv_memory", KvMemory},
      {"max_model_len", ModelLen},
      {"max_wait", Wait},
  };
  cases.insert(GraphLimitCases().begin(), GraphLimitCases().end());
  cases.insert(ClientLimitCases().begin(), ClientLimitCases().end());
  return cases;
}

const LimitCases& Cases() {
  static const auto& cases = *new LimitCases(AllCases());
  return cases;
}

TEST(LimitsTest, EveryLimitHasACase) {
  std::set<std::string> limits, cases;
  for (const FlagRow& row : FlagTable()) {
    if (row.limit) limits.insert(std::string(row.name));
  }
  for (const auto& [flag, run] : Cases()) cases.insert(flag);
  EXPECT_EQ(limits, cases);
}

class LimitTest : public testing::TestWithParam<std::string> {};

TEST_P(LimitTest, RefusesWhatIsBeyond) { Cases().at(GetParam())(); }

std::vector<std::string> Flags() {
  std::vector<std::string> flags;
  for (const auto& [flag, run] : Cases()) flags.push_back(flag);
  return flags;
}

INSTANTIATE_TEST_SUITE_P(Flags, LimitTest, testing::ValuesIn(Flags()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace athanor
