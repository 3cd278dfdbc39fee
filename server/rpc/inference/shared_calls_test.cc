// Tests requests that share a call of the plan (server/batch), through gRPC.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kIds = 16;  // most ids in a call

// A model y = table[ids + shift] with i32 ids [b], b in [0, 16], i32 shift [1], and n = shift. An
// id out of range is detected only by the run.
TestModel ShiftedGatherModel() {
  Graph graph = ParseGraph(R"(graph "shifted" {
    dim b in [0, 16]
    %0 = Input "ids" : i32[b]
    %1 = Input "shift" : i32[1]
    %2 = IndexMap(%1) {map=map[b](0)}
    %3 = Add(%0, %2)
    %4 = Parameter "table" : i32[100]
    %5 = Gather(%4, %3) {axis=0}
    output "y" = %5
    output "n" = %1
  })")
                    .value();
  std::string table;
  for (int32_t i = 0; i < 100; ++i) {
    const int32_t value = 7 * i - 50;
    table.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return ModelOf(graph, {table});
}

TestModel SoftmaxModel() {
  Graph graph = ParseGraph(R"(graph "mixes" {
    dim b in [1, 8]
    %0 = Input "x" : f32[b]
    %1 = Softmax "p"(%0) {axis=0}
    output "y" = %1
  })")
                    .value();
  return ModelOf(graph, {});
}

std::vector<v1::UploadModelRequest> Batched(const std::string& name, const TestModel& model) {
  std::vector<v1::UploadModelRequest> messages = UploadMessages(name, model);
  messages[0].mutable_header()->set_batch_dim("b");
  return messages;
}

std::string Int32s(const std::vector<int32_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t));
}

inference::ModelInferRequest Ids(const std::vector<int32_t>& ids, int32_t shift = 3) {
  inference::ModelInferRequest request;
  request.set_model_name("m");
  const auto add = [&](const char* name, const std::vector<int32_t>& values) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype("INT32");
    input->add_shape(static_cast<int64_t>(values.size()));
    request.add_raw_input_contents(Int32s(values));
  };
  add("ids", ids);
  add("shift", {shift});
  return request;
}

// Returns the expected answer to Ids(ids, shift).
std::string Looked(const std::vector<int32_t>& ids, int32_t shift = 3) {
  std::vector<int32_t> y;
  for (int32_t id : ids) y.push_back(7 * (id + shift) - 50);
  return Int32s(y);
}

ServerOptions OneAtATime() {
  ServerOptions options;
  options.contexts = 1;
  options.threads = 1;
  options.max_queue_delay_ms = 0;  // runs are delayed here
  return options;
}

struct Answer {
  grpc::Status status;
  inference::ModelInferResponse reply;
  int64_t rows() const { return reply.parameters().at("batch_rows").int64_param(); }
};

class SharedCallsTest : public ::testing::Test {
 protected:
  void Upload(const std::vector<v1::UploadModelRequest>& messages) {
    v1::UploadModelResponse reply;
    const grpc::Status status = test_->Send(messages, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(test_->WaitForJob(reply.compile_job_id()).phase(), v1::CompileJob::DONE);
  }

  int64_t Waiting() {
    int64_t waiting = 0;
    for (const auto& queue : test_->server->core().requests().waiting()) waiting += queue.requests;
    return waiting;
  }

  // Sends the requests while another one runs, so that all of them wait before the first begins.
  std::vector<Answer> SendTogether(const std::vector<inference::ModelInferRequest>& requests) {
    std::vector<Answer> answers(requests.size());
    test_->control->HoldRuns();
    std::vector<std::thread> calls;
    calls.emplace_back([&] { EXPECT_TRUE(test_->Infer(Ids({1})).ok()); });
    while (test_->control->runs_waiting() == 0) std::this_thread::yield();
    for (size_t i = 0; i < requests.size(); ++i) {
      calls.emplace_back(
          [&, i] { answers[i].status = test_->Infer(requests[i], &answers[i].reply); });
      while (Waiting() < static_cast<int64_t>(i) + 1) std::this_thread::yield();
    }
    test_->control->ReleaseRuns();
    for (std::thread& call : calls) call.join();
    return answers;
  }

  MetricCells& Cells() {
    return test_->server->core().registry().Find("m", "").value()->metrics().cells;
  }

  std::unique_ptr<TestServer> test_ = std::make_unique<TestServer>(OneAtATime());
};

TEST_F(SharedCallsTest, EachIsAnsweredWithItsOwnRows) {
  Upload(Batched("m", ShiftedGatherModel()));
  const std::vector<std::vector<int32_t>> ids = {{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9}, {10, 0}};
  std::vector<inference::ModelInferRequest> requests;
  for (const auto& one : ids) requests.push_back(Ids(one));
  requests[2].add_outputs()->set_name("n");
  const std::vector<Answer> answers = SendTogether(requests);
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(answers[i].rows(), 11);
    EXPECT_EQ(answers[i].reply.parameters().at("batch_us").int64_param(), 0);
    const auto& raw = answers[i].reply.raw_output_contents();
    if (i == 2) {
      EXPECT_THAT(raw, testing::ElementsAre(Int32s({3})));
    } else {
      EXPECT_THAT(raw, testing::ElementsAre(Looked(ids[i]), Int32s({3})));
    }
  }
  // Two runs: the one that was held, and this one.
  const HistogramCounts rows = Cells().histogram(Metric::kBatchRows);
  EXPECT_EQ(rows.count(), 2);
  EXPECT_EQ(rows.sum, 12);
  EXPECT_EQ(Cells().histogram(Metric::kExecSeconds).count(), 2);
  EXPECT_EQ(Cells().histogram(Metric::kQueueSeconds).count(), 6);
  EXPECT_EQ(Cells().value(Metric::kBatchSplits), 0);
}

TEST_F(SharedCallsTest, AWrongOneOfSixteenIsSplitOut) {
  Upload(Batched("m", ShiftedGatherModel()));
  std::vector<inference::ModelInferRequest> requests;
  for (int i = 0; i < kIds; ++i) requests.push_back(Ids({i == 5 ? 1000 : i}));
  const std::vector<Answer> answers = SendTogether(requests);
  const grpc::Status alone = test_->Infer(Ids({1000}));
  ASSERT_FALSE(alone.ok());
  for (int i = 0; i < kIds; ++i) {
    if (i == 5) {
      EXPECT_EQ(answers[i].status.error_code(), alone.error_code());
      EXPECT_EQ(answers[i].status.error_message(), alone.error_message());
      continue;
    }
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(answers[i].reply.raw_output_contents(0), Looked({i}));
    EXPECT_EQ(answers[i].rows(), 1);
  }
  EXPECT_EQ(Cells().value(Metric::kBatchSplits), 1);
}

TEST_F(SharedCallsTest, OnlyRequestsThatDifferInTheirRowsAlone) {
  Upload(Batched("m", ShiftedGatherModel()));
  std::vector<inference::ModelInferRequest> requests = {Ids({1}, 3), Ids({2}, 4), Ids({3}, 3),
                                                        Ids({4}, 4), Ids({5}, 3)};
  std::vector<Answer> answers = SendTogether(requests);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(answers[i].rows(), i % 2 == 0 ? 3 : 2) << i;
    EXPECT_EQ(answers[i].reply.raw_output_contents(0), Looked({i + 1}, 3 + i % 2)) << i;
  }
  // Requests with taps or of another priority do not share.
  requests = {Ids({1}), Ids({2}), Ids({3}), Ids({4})};
  (*requests[1].mutable_parameters())["taps"].set_string_param("ids");
  (*requests[3].mutable_parameters())["priority"].set_int64_param(1);
  answers = SendTogether(requests);
  EXPECT_EQ(answers[0].rows(), 2);
  EXPECT_FALSE(answers[1].reply.parameters().contains("batch_rows"));
  EXPECT_EQ(answers[2].rows(), 2);
  EXPECT_EQ(answers[3].rows(), 1);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(answers[i].status.ok()) << i;
}

TEST_F(SharedCallsTest, NoMoreRowsThanTheFlagAllows) {
  ServerOptions options = OneAtATime();
  options.max_batch_rows = 4;
  test_ = std::make_unique<TestServer>(options);
  Upload(Batched("m", ShiftedGatherModel()));
  EXPECT_EQ(test_->Get("m").batching().max_rows(), 4);
  const std::vector<Answer> answers =
      SendTogether({Ids({1, 2}), Ids({3, 4}), Ids({5, 6, 7, 8, 9}), Ids({10}), Ids({11, 12, 13})});
  std::vector<int64_t> rows;
  for (const Answer& answer : answers) rows.push_back(answer.rows());
  EXPECT_THAT(rows, testing::ElementsAre(4, 4, 5, 4, 4));
}

TEST_F(SharedCallsTest, NeverOfADeterministicVersion) {
  auto messages = Batched("m", ShiftedGatherModel());
  messages[0].mutable_header()->set_deterministic(true);
  Upload(messages);
  EXPECT_FALSE(test_->Get("m").batching().on());
  EXPECT_THAT(test_->Get("m").batching().reason(), HasSubstr("deterministic"));
  for (const Answer& answer : SendTogether({Ids({1}), Ids({2}), Ids({3})})) {
    EXPECT_FALSE(answer.reply.parameters().contains("batch_rows"));
  }
  EXPECT_EQ(Cells().histogram(Metric::kExecSeconds).count(), 4);
  EXPECT_EQ(Cells().histogram(Metric::kBatchRows).count(), 0);
}

TEST_F(SharedCallsTest, TheBoxOfACallIsThatOfAllItsRows) {
  auto messages = Batched("m", ShiftedGatherModel());
  v1::DimBuckets* buckets = messages[0].mutable_header()->add_buckets();
  buckets->set_dim("b");
  for (const auto& [min, max] : {std::pair{0, 4}, {5, 9}, {10, kIds}}) {
    auto* range = buckets->add_ranges();
    range->set_min(min);
    range->set_max(max);
  }
  Upload(messages);
  const auto bucket = [](const Answer& answer) {
    return answer.reply.parameters().at("bucket").string_param();
  };
  std::vector<Answer> answers = SendTogether({Ids({1, 2, 3}), Ids({4, 5, 6}), Ids({7, 8}, 4)});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(bucket(answers[i]), i < 2 ? "b=5..9" : "b=0..4") << "one that may share, alone, too";
  }
  EXPECT_EQ(answers[1].reply.raw_output_contents(0), Looked({4, 5, 6}));
  // After the shared call fails, each request runs alone in its own bucket.
  answers = SendTogether({Ids({1, 2, 3}), Ids({4, 5, 6, 7, 1000}), Ids({1, 2, 3, 4, 5})});
  EXPECT_EQ(bucket(answers[0]), "b=0..4");
  EXPECT_EQ(answers[1].status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(bucket(answers[2]), "b=5..9");
  EXPECT_EQ(answers[2].reply.raw_output_contents(0), Looked({1, 2, 3, 4, 5}));
}

TEST_F(SharedCallsTest, WhatCannotBeProvedIsServedUnjoinedAndSaysWhy) {
  v1::UploadModelResponse reply;
  ASSERT_TRUE(test_->Send(Batched("m", SoftmaxModel()), &reply).ok());
  EXPECT_EQ(reply.batching().dim(), "b");
  EXPECT_FALSE(reply.batching().on());
  const std::string why = "\"p\" (Softmax): normalises across the rows of dim b";
  EXPECT_THAT(reply.batching().reason(), HasSubstr(why));
  test_->WaitForJob(reply.compile_job_id());
  for (const bool restarted : {false, true}) {
    if (restarted) test_->Restart();
    EXPECT_THAT(test_->Get("m").batching().reason(), HasSubstr(why));
    EXPECT_THAT(test_->Infer("m", {0, 0}), testing::ElementsAre(0.5, 0.5));
  }
}

TEST_F(SharedCallsTest, IsKnownAndProvedAgainAfterARestart) {
  v1::UploadModelResponse reply;
  ASSERT_TRUE(test_->Send(Batched("m", ShiftedGatherModel()), &reply).ok());
  EXPECT_TRUE(reply.batching().on());
  EXPECT_EQ(reply.batching().max_rows(), kIds);
  test_->WaitForJob(reply.compile_job_id());
  test_->Restart();
  EXPECT_TRUE(test_->Get("m").batching().on());
  EXPECT_TRUE(test_->Infer(Ids({1})).ok());
  EXPECT_EQ(SendTogether({Ids({1}), Ids({2})})[1].rows(), 2);
}

TEST_F(SharedCallsTest, ADeadlineShorterThanTheDelayIsMet) {
  ServerOptions options = OneAtATime();
  options.batch_delay_us = int64_t{3600} * 1'000'000;
  test_ = std::make_unique<TestServer>(options);
  Upload(Batched("m", ShiftedGatherModel()));
  EXPECT_EQ(test_->Get("m").batching().max_delay_us(), options.batch_delay_us);
  inference::ModelInferRequest request = Ids({1});
  (*request.mutable_parameters())["timeout_us"].set_int64_param(6'000'000);
  Answer answer;
  answer.status = test_->Infer(request, &answer.reply);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_GT(answer.reply.parameters().at("batch_us").int64_param(), 0);
  // A full call does not wait at all.
  std::vector<std::thread> calls;
  for (int i = 0; i < kIds; ++i) {
    calls.emplace_back([&] {
      Answer one;
      one.status = test_->Infer(Ids({2}), &one.reply);
      EXPECT_TRUE(one.status.ok()) << one.status.error_message();
      EXPECT_EQ(one.rows(), kIds);
    });
  }
  for (std::thread& call : calls) call.join();
}

TEST_F(SharedCallsTest, OneThatIsCancelledLeavesTheOthersTheirCall) {
  Upload(Batched("m", ShiftedGatherModel()));
  test_->control->HoldRuns();
  std::vector<std::thread> calls;
  calls.emplace_back([&] { EXPECT_TRUE(test_->Infer(Ids({1})).ok()); });
  while (test_->control->runs_waiting() == 0) std::this_thread::yield();
  grpc::ClientContext context;
  Answer cancelled;
  calls.emplace_back([&] {
    cancelled.status = test_->inference_stub->ModelInfer(&context, Ids({2}), &cancelled.reply);
  });
  while (Waiting() < 1) std::this_thread::yield();
  Answer other;
  calls.emplace_back([&] { other.status = test_->Infer(Ids({3, 4}), &other.reply); });
  while (Waiting() < 2) std::this_thread::yield();
  context.TryCancel();
  while (Waiting() > 1) std::this_thread::yield();
  test_->control->ReleaseRuns();
  for (std::thread& call : calls) call.join();
  EXPECT_EQ(cancelled.status.error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(other.status.ok());
  EXPECT_EQ(other.rows(), 2);
  EXPECT_EQ(other.reply.raw_output_contents(0), Looked({3, 4}));
}

// Plans are swapped while calls are shared: each call uses one plan, and every answer is right.
TEST_F(SharedCallsTest, WhilePlansAreSwapped) {
  ServerOptions options;
  options.contexts = 2;
  options.threads = 2;
  options.batch_delay_us = 2'000;
  options.search_budget = "1h";
  test_ = std::make_unique<TestServer>(options);
  constexpr int kPlans = 5;
  test_->control->Search({.plans = kPlans});
  test_->control->HoldSearches();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test_->Send(Batched("m", ShiftedGatherModel()), &uploaded).ok());
  std::atomic<bool> stop = false;
  std::atomic<int> shared = 0, wrong = 0;
  std::vector<std::set<std::string>> plans(8);
  std::vector<std::thread> calls;
  for (int t = 0; t < 8; ++t) {
    calls.emplace_back([&, t] {
      for (int i = 0; !stop; i = (i + 1) % 90) {
        Answer answer;
        answer.status = test_->Infer(Ids({i, t}), &answer.reply);
        if (!answer.status.ok() || answer.reply.raw_output_contents(0) != Looked({i, t})) {
          ++wrong;
          return;
        }
        if (answer.rows() > 2) ++shared;
        plans[t].insert(answer.reply.parameters().at("plan_id").string_param());
      }
    });
  }
  for (int step = 0; step < kPlans; ++step) {
    test_->control->AwaitSearch();
    const int before = shared;
    while (shared < before + 20 && wrong == 0) std::this_thread::yield();
    test_->control->LetSearch(1);
  }
  test_->control->ReleaseSearches();
  test_->WaitForJob(uploaded.compile_job_id());
  const int before = shared;
  while (shared < before + 20 && wrong == 0) std::this_thread::yield();
  stop = true;
  for (std::thread& call : calls) call.join();
  EXPECT_EQ(wrong, 0);
  std::set<std::string> seen;
  for (const auto& each : plans) seen.insert(each.begin(), each.end());
  EXPECT_THAT(seen, Contains(StartsWith("p-")));
  EXPECT_THAT(seen, Contains("found-5"));
}

}  // namespace
}  // namespace athanor
