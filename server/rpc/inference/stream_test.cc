// ModelStreamInfer: requests of one stream are answered in their order, each by itself.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/health/health.grpc.pb.h"
#include "server/rpc/inference/stream_call.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;
using Response = inference::ModelStreamInferResponse;

// A client's end of a stream.
class Stream {
 public:
  explicit Stream(TestServer& test, bool errors_end = false) {
    if (errors_end) context_.AddMetadata("triton_grpc_error", "true");
    stream_ = test.inference_stub->ModelStreamInfer(&context_);
  }

  bool Send(const std::string& model, float x, const std::string& id = "",
            bool wants_final = false) {
    inference::ModelInferRequest request = FloatRequest(model, {x});
    request.set_id(id);
    if (wants_final) {
      (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
    }
    return Send(request);
  }
  bool Send(const inference::ModelInferRequest& request) { return stream_->Write(request); }
  void SentAll() { stream_->WritesDone(); }
  bool Read(Response* response) { return stream_->Read(response); }
  Response Next() {
    Response response;
    EXPECT_TRUE(stream_->Read(&response)) << "the stream has ended";
    return response;
  }
  // Returns the next response's value.
  float Value() {
    const Response response = Next();
    EXPECT_EQ(response.error_message(), "");
    float value = 0;
    if (response.infer_response().raw_output_contents_size() != 1) return value;
    std::memcpy(&value, response.infer_response().raw_output_contents(0).data(), sizeof(value));
    return value;
  }
  grpc::Status Finish() { return stream_->Finish(); }
  void Cancel() { context_.TryCancel(); }
  void Leave() {
    Cancel();
    EXPECT_EQ(Finish().error_code(), Code::CANCELLED);
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<inference::ModelInferRequest, Response>> stream_;
};

// Waits until calls have ended on the server's side too: a client hears of their end before that.
void AwaitNoCalls(TestServer& test) {
  auto& core = test.server->core();
  while (core.active_calls() > 0 || core.ledger().used(HeldKind::kRequests) > 0) {
    std::this_thread::yield();
  }
}

// Has the requests for "held" wait until compiles are released. No call is left then.
void UploadHeld(TestServer& test) {
  test.control->HoldCompiles();
  v1::UploadModelResponse held;
  ASSERT_TRUE(test.Send(UploadMessages("held", ScaleModel({5})), &held).ok());
  AwaitNoCalls(test);
}

// Returns how many requests for "m" have succeeded.
int64_t Succeeded(TestServer& test) {
  const auto version = test.server->core().registry().versions().Find("m", "").value();
  return version->metrics().cells.value(Metric::kRequests, static_cast<int>(absl::StatusCode::kOk));
}

TEST(StreamTest, AnswersInTheOrderOfRequests) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  UploadHeld(test);
  Stream stream(test);
  ASSERT_TRUE(stream.Send("held", 1, "first"));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(stream.Send("m", static_cast<float>(i)));
  // The later ones run, and wait for the first one's answer.
  while (Succeeded(test) < 5) std::this_thread::yield();
  test.control->ReleaseCompiles();
  const Response first = stream.Next();
  EXPECT_EQ(first.infer_response().id(), "first");
  EXPECT_EQ(first.infer_response().model_name(), "held");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(stream.Value(), 3.0F * static_cast<float>(i));
  stream.SentAll();
  Response none;
  EXPECT_FALSE(stream.Read(&none));
  EXPECT_TRUE(stream.Finish().ok());
  AwaitNoCalls(test);
}

TEST(StreamTest, AnErrorIsItsRequestsAlone) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  Stream stream(test);
  ASSERT_TRUE(stream.Send("absent", 1, "a"));
  inference::ModelInferRequest sequence = FloatRequest("m", {1});
  (*sequence.mutable_parameters())["sequence_id"].set_int64_param(7);
  ASSERT_TRUE(stream.Send(sequence));
  inference::ModelInferRequest wrong = FloatRequest("m", {1});
  (*wrong.mutable_parameters())["triton_enable_empty_final_response"].set_int64_param(1);
  ASSERT_TRUE(stream.Send(wrong));
  inference::ModelInferRequest broken = FloatRequest("m", {1});
  broken.set_id("b");
  broken.mutable_inputs(0)->set_name("\xff");
  ASSERT_TRUE(stream.Send(broken));
  broken.set_id("\xff");  // which no response may have
  ASSERT_TRUE(stream.Send(broken));
  ASSERT_TRUE(stream.Send("m", 2));
  const Response error = stream.Next();
  EXPECT_THAT(error.error_message(), HasSubstr("model \"absent\" does not exist"));
  EXPECT_EQ(error.infer_response().id(), "a");
  EXPECT_THAT(stream.Next().error_message(), HasSubstr("sequence_id"));
  EXPECT_THAT(stream.Next().error_message(), HasSubstr("must be a bool"));
  const Response unread = stream.Next();
  EXPECT_THAT(unread.error_message(), HasSubstr("not valid UTF-8"));
  EXPECT_EQ(unread.infer_response().id(), "b");
  EXPECT_EQ(unread.infer_response().model_name(), "m");
  const Response nameless = stream.Next();
  EXPECT_THAT(nameless.error_message(), HasSubstr("not valid UTF-8"));
  EXPECT_EQ(nameless.infer_response().id(), "");
  EXPECT_EQ(stream.Value(), 6);
  stream.SentAll();
  EXPECT_TRUE(stream.Finish().ok());
  AwaitNoCalls(test);
}

TEST(StreamTest, ErrorsEndItIfItsClientWants) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  Stream stream(test, /*errors_end=*/true);
  ASSERT_TRUE(stream.Send("m", 2));
  EXPECT_EQ(stream.Value(), 6);
  ASSERT_TRUE(stream.Send("absent", 1));
  Response none;
  EXPECT_FALSE(stream.Read(&none));
  const grpc::Status status = stream.Finish();
  EXPECT_EQ(status.error_code(), Code::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("absent"));
  AwaitNoCalls(test);
}

TEST(StreamTest, MarksTheFinalResponseIfAsked) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  Stream stream(test);
  ASSERT_TRUE(stream.Send("m", 1, "", /*wants_final=*/true));
  ASSERT_TRUE(stream.Send("m", 1));
  EXPECT_TRUE(stream.Next().infer_response().parameters().at("triton_final_response").bool_param());
  EXPECT_FALSE(stream.Next().infer_response().parameters().contains("triton_final_response"));
  stream.SentAll();
  EXPECT_TRUE(stream.Finish().ok());
}

// A stream is read no further than its bound: the rest waits at the client.
TEST(StreamTest, RequestsInFlightAreBounded) {
  TestServer test({.max_connection_calls = 3});
  UploadHeld(test);
  Stream stream(test);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(stream.Send("held", static_cast<float>(i)));
  auto& core = test.server->core();
  while (core.active_calls() < 4) std::this_thread::yield();  // the stream, and three
  // The connection's later calls, which take no place, are answered behind what the server reads.
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse health;
    ASSERT_TRUE(grpc::health::v1::Health::NewStub(test.channel)->Check(&context, {}, &health).ok());
    ASSERT_EQ(core.active_calls(), 4);
  }
  test.control->ReleaseCompiles();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(stream.Value(), 5.0F * static_cast<float>(i));
  stream.SentAll();
  EXPECT_TRUE(stream.Finish().ok());
  AwaitNoCalls(test);
}

TEST(StreamTest, EachRequestIsOneOfMaxPending) {
  TestServer test({.max_pending = 2});
  UploadHeld(test);
  Stream stream(test);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream.Send("held", 1, absl::StrCat("id-", i)));
  auto& core = test.server->core();
  const auto refused = [&] {
    return core.metrics().server().value(Metric::kRefusals, static_cast<int>(Refusal::kPending));
  };
  while (refused() == 0) std::this_thread::yield();
  test.control->ReleaseCompiles();
  EXPECT_EQ(stream.Value(), 5);
  EXPECT_EQ(stream.Value(), 5);
  const Response refused_unread = stream.Next();
  EXPECT_THAT(refused_unread.error_message(), HasSubstr("--max_pending"));
  EXPECT_EQ(refused_unread.infer_response().id(), "id-2");
  EXPECT_EQ(refused_unread.infer_response().model_name(), "held");
  stream.Leave();
  AwaitNoCalls(test);
}

// Answers that wait for the first one hold their bytes, and no place that others could have.
TEST(StreamTest, AnAnswerThatWaitsTakesNoPlace) {
  TestServer test({.max_pending = 2});
  test.Upload("m", ScaleModel({3}));
  UploadHeld(test);
  Stream stream(test);
  ASSERT_TRUE(stream.Send("held", 1));
  auto& core = test.server->core();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(stream.Send("m", static_cast<float>(i)));
    while (Succeeded(test) <= i) std::this_thread::yield();
    while (core.active_calls() > 2) std::this_thread::yield();  // the stream, and the first one
  }
  EXPECT_GT(core.ledger().used(HeldKind::kRequests), 0);
  test.control->ReleaseCompiles();
  EXPECT_EQ(stream.Value(), 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(stream.Value(), 3.0F * static_cast<float>(i));
  stream.SentAll();
  EXPECT_TRUE(stream.Finish().ok());
  AwaitNoCalls(test);
}

TEST(StreamTest, CancelledAtAnyMoment) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  UploadHeld(test);
  for (int i = 0; i < 100; ++i) {
    Stream stream(test);
    std::thread cancel([&] { stream.Cancel(); });
    for (int k = 0; k < 3; ++k) {
      stream.Send("m", 1);
      stream.Send("held", 1);
    }
    Response response;
    while (stream.Read(&response)) continue;
    stream.Finish();
    cancel.join();
  }
  test.control->ReleaseCompiles();
  AwaitNoCalls(test);
  EXPECT_THAT(test.Infer("m", {2}), testing::ElementsAre(6));
}

TEST(StreamTest, DrainingEndsAnIdleStreamAndAnswersWhatRuns) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  test.control->HoldRuns();
  Stream idle(test), busy(test);
  ASSERT_TRUE(busy.Send("m", 2));
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  test.server->core().StartDraining();
  Response none;
  EXPECT_FALSE(idle.Read(&none));
  EXPECT_EQ(idle.Finish().error_code(), Code::UNAVAILABLE);
  test.control->ReleaseRuns();
  EXPECT_EQ(busy.Value(), 6);
  EXPECT_FALSE(busy.Read(&none));
  EXPECT_EQ(busy.Finish().error_code(), Code::UNAVAILABLE);
  AwaitNoCalls(test);
}

TEST(StreamTest, StreamsAreLimited) {
  TestServer test({.max_streams = 1});
  test.Upload("m", ScaleModel({3}));
  std::optional<Stream> first;
  Response answer, none;
  for (;;) {  // until the watcher of the upload has ended, on the server's side too
    first.emplace(test);
    first->Send("m", 1);
    if (first->Read(&answer)) break;
    ASSERT_EQ(first->Finish().error_code(), Code::RESOURCE_EXHAUSTED);
  }
  EXPECT_EQ(answer.error_message(), "");
  Stream second(test);
  EXPECT_FALSE(second.Read(&none));
  const grpc::Status refused = second.Finish();
  EXPECT_EQ(refused.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("--max_streams"));
  first->Leave();
}

}  // namespace
}  // namespace athanor
