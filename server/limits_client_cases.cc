// Cases of limits_test about how clients connect and send.
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/limits_testing.h"
#include "server/shared_memory/shared_object_testing.h"

namespace athanor {
namespace {

void Uploads() {
  TestServer test({.max_uploads = 1});
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = test.models->UploadModel(&context, &reply);
  writer->Write(UploadMessages("m", Weights(3))[0]);
  while (test.server->core().uploads() == 0) std::this_thread::yield();
  ExpectRefused(test.Send(UploadMessages("n", ReluModel())), kExhausted,
                {"1 uploads", "--max_uploads"});
  context.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

void UploadIdle() {
  TestServer test({.upload_idle_ms = 50, .upload_least_rate = 0});
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = test.models->UploadModel(&context, &reply);
  writer->Write(UploadMessages("m", Weights(3))[0]);
  ExpectRefused(writer->Finish(), grpc::StatusCode::DEADLINE_EXCEEDED, {"50 ms", "--upload_idle"});
}

// At a byte per second the server does not read what follows the header in time.
void UploadRate() {
  TestServer fast({.upload_rate = 1 << 30});
  fast.Upload("m", Weights(3));
  TestServer slow({.upload_rate = 1});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  v1::UploadModelResponse reply;
  auto writer = slow.models->UploadModel(&context, &reply);
  for (const auto& message : UploadMessages("m", Weights(3))) writer->Write(message);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  while (slow.server->core().uploads() > 0) std::this_thread::yield();
  EXPECT_FALSE(slow.server->core().registry().versions().Find("m", "").ok());
}

// A single byte from time to time does not keep an upload alive.
void UploadLeastRate() {
  TestServer test({.upload_idle_ms = 1'000, .upload_least_rate = 1 << 30});
  test.Upload("m", Weights(3));
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = test.models->UploadModel(&context, &reply);
  for (const auto& message : UploadMessages("n", Weights(4'000), 4)) {
    if (!writer->Write(message)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ExpectRefused(writer->Finish(), grpc::StatusCode::DEADLINE_EXCEEDED,
                {"upload: ", "1073741824 bytes a second", "--upload_least_rate", "offset"});
}

void UploadTime() {
  TestServer test({.upload_time_ms = 300});
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = test.models->UploadModel(&context, &reply);
  writer->Write(UploadMessages("m", Weights(3))[0]);
  ExpectRefused(writer->Finish(), grpc::StatusCode::DEADLINE_EXCEEDED,
                {"300 ms", "--upload_time", "offset 0 of 12"});
}

// Tests uploads of one peer; connections_test and upload_places_test test several peers.
void PeerPercent() {
  TestServer test({.max_uploads = 3, .max_peer_percent = 40});
  struct Open {
    grpc::ClientContext context;
    v1::UploadModelResponse reply;
    std::unique_ptr<grpc::ClientWriter<v1::UploadModelRequest>> writer;
  };
  Open open[2];
  for (Open& each : open) {
    each.writer = test.models->UploadModel(&each.context, &each.reply);
    each.writer->Write(UploadMessages("m", Weights(3))[0]);
  }
  while (test.server->core().uploads() < 2) std::this_thread::yield();
  ExpectRefused(test.Send(UploadMessages("n", ReluModel())), kExhausted,
                {"2 uploads of 127.0.0.1", "of 3", "--max_peer_percent"});
  for (Open& each : open) {
    each.context.TryCancel();
    EXPECT_EQ(each.writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

void MaxSharedRegions() {
  TestServer test({.shared_memory = "*", .max_shared_regions = 1});
  SharedObject object("limit", 16);
  const auto add = [&](const std::string& name) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(object.key());
    request.set_byte_size(16);
    inference::SystemSharedMemoryRegisterResponse reply;
    return test.inference_stub->SystemSharedMemoryRegister(&context, request, &reply);
  };
  EXPECT_TRUE(add("a").ok());
  ExpectRefused(add("b"), kExhausted, {"1 shared memory regions", "--max_shared_regions"});
}

// Sends a compressed message that repeats one letter.
void MaxInflation() {
  const auto send = [](const ServerOptions& options) {
    TestServer test(options);
    test.Upload("m", Weights(1));
    inference::ModelInferRequest request = FloatRequest("m", {1});
    request.set_id(std::string(2 << 20, 'x'));
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    inference::ModelInferResponse reply;
    return test.inference_stub->ModelInfer(&context, request, &reply);
  };
  EXPECT_TRUE(send({.max_inflation = 1'032}).ok());
  ExpectRefused(send({.max_inflation = 9}), kExhausted, {"9 times its size", "--max_inflation"});
}

int Connect(int port) {
  const int end = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(end, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return end;
}

// Returns what is read until the connection is closed.
std::string ReadAll(int end) {
  std::string all;
  char bytes[256];
  for (ssize_t got = 0; (got = read(end, bytes, sizeof(bytes))) > 0;) all.append(bytes, got);
  return all;
}

// Sends the preface of an HTTP/2 client, then nothing, and waits until the server closes.
void AwaitClose(int port) {
  const int end = Connect(port);
  const std::string hello =
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\4\0\0\0\0\0", 9);
  EXPECT_EQ(write(end, hello.data(), hello.size()), static_cast<ssize_t>(hello.size()));
  (void)ReadAll(end);
  close(end);
}

grpc::StatusCode Ask(inference::GRPCInferenceService::Stub& stub) {
  grpc::ClientContext context;
  inference::ModelInferResponse reply;
  return stub.ModelInfer(&context, FloatRequest("m", {1}), &reply).error_code();
}

// The test itself uses one of the connections for its calls.
void MaxConnections() {
  TestServer test({.max_connections = 2, .connection_quiet_ms = 3'600'000});
  test.Upload("m", Weights(1));
  const int held = Connect(test.server->port());
  char first = 0;
  EXPECT_EQ(read(held, &first, 1), 1);  // gRPC's settings: the connection was accepted
  const int refused = Connect(test.server->port());
  EXPECT_EQ(ReadAll(refused), "");
  close(refused);
  EXPECT_THAT(test.Infer("m", {2}), testing::ElementsAre(2));
  const MetricCells& metrics = test.server->core().metrics().server();
  EXPECT_GE(metrics.value(Metric::kRefusals, static_cast<int>(Refusal::kConnections)), 1);
  EXPECT_EQ(Ask(*OtherConnection(test)), grpc::StatusCode::UNAVAILABLE);
  close(held);
  // Its place is free once gRPC has noticed that it is closed.
  while (Ask(*OtherConnection(test)) != grpc::StatusCode::OK) {
  }
}

void Keepalive() {
  TestServer test({.keepalive_ms = 1000});  // our own client complies with it
  test.Upload("m", Weights(1));
  AwaitClose(test.server->port());
  EXPECT_THAT(test.Infer("m", {2}), testing::ElementsAre(2));
}

// A connection without calls is replaced by a new one.
void ConnectionQuiet() {
  TestServer test({.max_connections = 1, .connection_quiet_ms = 1});
  const int silent = Connect(test.server->port());
  char first = 0;
  EXPECT_EQ(read(silent, &first, 1), 1);  // gRPC's settings: the connection was accepted
  const auto lives = [&] {
    grpc::ClientContext context;
    inference::ServerLiveResponse reply;
    return OtherConnection(test)->ServerLive(&context, {}, &reply).ok();
  };
  while (!lives()) {
  }
  (void)ReadAll(silent);
  close(silent);
}

}  // namespace

const LimitCases& ClientLimitCases() {
  static const auto& cases = *new LimitCases{
      {"max_uploads", Uploads},
      {"upload_idle", UploadIdle},
      {"upload_least_rate", UploadLeastRate},
      {"upload_time", UploadTime},
      {"upload_rate", UploadRate},
      {"max_peer_percent", PeerPercent},
      {"max_inflation", MaxInflation},
      {"max_shared_regions", MaxSharedRegions},
      {"max_connections", MaxConnections},
      {"connection_quiet", ConnectionQuiet},
      {"keepalive", Keepalive},
  };
  return cases;
}

}  // namespace athanor
