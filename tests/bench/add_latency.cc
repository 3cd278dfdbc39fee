// Compares the smallest call through the server with a bare gRPC echo of the same bytes: adds 16
// floats, one call outstanding, C++ client. Both servers use gRPC's callback API (echo_server.cc).
//
//   add_latency --address=127.0.0.1:50051 --echo=127.0.0.1:50070 --calls=20000
//
// Calls alternate, so that other load on the machine affects both. Values are checked before
// timing. Prints one line of JSON; times are in microseconds, ratio is p50 over p50.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "clients/cpp/client/client.h"
#include "compiler/frontend/frontend.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "tests/bench/echo.grpc.pb.h"

namespace athanor::bench {
namespace {

constexpr int kElements = 16;
constexpr char kModel[] = "bench-add16";
constexpr int kWarmUp = 1'000;

struct Flags {
  std::string address = "127.0.0.1:50051";
  std::string echo = "127.0.0.1:50070";
  int calls = 20'000;
};

std::string AddGraph() {
  Graph graph;
  graph.name = kModel;
  GraphBuilder b(&graph);
  const NodeId x = b.Input("x", {DType::kF32, {kElements}}).value();
  const NodeId y = b.Input("y", {DType::kF32, {kElements}}).value();
  b.Output("sum", b.Add(Op::kAdd, {x, y}).value());
  return GraphToProto(graph).SerializeAsString();
}

client::Tensor Floats(const std::vector<float>& values) {
  return {"f32",
          {kElements},
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

client::InferRequest AddRequest() {
  std::vector<float> x(kElements), y(kElements);
  std::iota(x.begin(), x.end(), 0.5f);
  std::iota(y.begin(), y.end(), -3.0f);
  client::InferRequest request{kModel};
  request.inputs["x"] = Floats(x);
  request.inputs["y"] = Floats(y);
  return request;
}

bool RightSum(const client::InferReply& reply) {
  if (reply.outputs.size() != 1) return false;
  const std::string& bytes = reply.outputs[0].second.bytes;
  if (bytes.size() != kElements * sizeof(float)) return false;
  for (int i = 0; i < kElements; ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
    if (value != (i + 0.5f) + (i - 3.0f)) return false;
  }
  return true;
}

// Returns the bytes that the client would send, to echo the same number of bytes.
std::string SameBytes(const client::InferRequest& request) {
  inference::ModelInferRequest message;
  message.set_model_name(request.model);
  for (const auto& [name, tensor] : request.inputs) {
    auto* input = message.add_inputs();
    input->set_name(name);
    input->set_datatype("FP32");
    input->add_shape(kElements);
    message.add_raw_input_contents(tensor.bytes);
  }
  return message.SerializeAsString();
}

double Microseconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

double Percentile(std::vector<double>& times, double p) {
  const size_t at = std::min(times.size() - 1, static_cast<size_t>(p * times.size()));
  std::nth_element(times.begin(), times.begin() + at, times.end());
  return times[at];
}

void Print(const char* name, std::vector<double>& times) {
  std::printf("\"%s\": {\"p10\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f}, ", name,
              Percentile(times, 0.1), Percentile(times, 0.5), Percentile(times, 0.9),
              Percentile(times, 0.99));
}

int Measure(const Flags& flags) {
  client::Client client(flags.address);
  const std::string graph = AddGraph();
  client::UploadRequest upload;
  upload.name = kModel;
  upload.format = "athanor";
  upload.graph = graph;
  if (auto stored = client.Upload(upload); !stored.ok()) {
    std::fprintf(stderr, "upload: %s\n", stored.status().ToString().c_str());
    return 1;
  }
  const client::InferRequest request = AddRequest();
  const auto echo =
      EchoService::NewStub(grpc::CreateChannel(flags.echo, grpc::InsecureChannelCredentials()));
  EchoMessage sent;
  sent.set_body(SameBytes(request));
  std::vector<double> add_times, echo_times;
  for (int i = 0; i < flags.calls + kWarmUp; ++i) {
    auto begin = std::chrono::steady_clock::now();
    const auto reply = client.Infer(request);
    const double add_time = Microseconds(begin);
    if (!reply.ok() || (i < kWarmUp && !RightSum(*reply))) {
      std::fprintf(stderr, "add: %s\n",
                   reply.ok() ? "wrong sum" : reply.status().ToString().c_str());
      return 1;
    }
    begin = std::chrono::steady_clock::now();
    grpc::ClientContext context;
    EchoMessage back;
    const grpc::Status echoed = echo->Echo(&context, sent, &back);
    const double echo_time = Microseconds(begin);
    if (!echoed.ok() || back.body() != sent.body()) {
      std::fprintf(stderr, "echo: %s\n", echoed.error_message().c_str());
      return 1;
    }
    if (i < kWarmUp) continue;
    add_times.push_back(add_time);
    echo_times.push_back(echo_time);
  }
  std::printf("{\"name\": \"add16\", \"unit\": \"us\", \"calls\": %d, \"bytes\": %zu, ",
              flags.calls, sent.body().size());
  Print("athanor", add_times);
  Print("echo", echo_times);
  std::printf("\"ratio_p50\": %.3f}\n", Percentile(add_times, 0.5) / Percentile(echo_times, 0.5));
  return 0;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  athanor::bench::Flags flags;
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (absl::ConsumePrefix(&arg, "--address=")) {
      flags.address = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--echo=")) {
      flags.echo = std::string(arg);
    } else if (!absl::ConsumePrefix(&arg, "--calls=") || !absl::SimpleAtoi(arg, &flags.calls) ||
               flags.calls < 1) {
      std::fprintf(stderr, "unknown or wrong flag %s\n", argv[i]);
      return 2;
    }
  }
  return athanor::bench::Measure(flags);
}
