// The C++ client: models, compile jobs, the cache, inference and text generation over gRPC.
//
//   client::Client client("127.0.0.1:50051");
//   auto stored = client.Upload({"linear", "athanor", graph_bytes});
//   client::InferRequest request{"linear"};
//   request.inputs["x"] = client::Tensor{"f32", {1, 16}, bytes};
//   absl::StatusOr<client::InferReply> reply = client.Infer(request);
//   absl::StatusOr<v1::CacheStat> stat = client.cache().Stat();
//   client.Generate(prompt, [](const v1::GenerateResponse& piece) { return Print(piece.text()); });
//
// Errors have the server's code and message, and when it wants to be asked again (retry_after.h).
// Calls that only read are tried again, up to three times within their deadline, when the server
// cannot be reached, or refuses and says when to come again; calls that change something or execute
// a model are not. Thread-safe.
#ifndef ATHANOR_CLIENTS_CPP_CLIENT_CLIENT_H_
#define ATHANOR_CLIENTS_CPP_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "clients/cpp/client/tensor.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/cache.pb.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/generate.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace athanor::client {

// gRPC's part, whose headers are for the files of the client (client_call.h).
struct Services;

// Cancels calls from another thread: every call that runs with it now, and every later one. Must
// outlive those calls.
class Cancellation {
 public:
  void Cancel();
  // Returns after `time`, or as soon as Cancel is called.
  void AwaitFor(absl::Duration time);

 private:
  friend class CallScope;
  void Add(grpc::ClientContext* context);
  void Remove(grpc::ClientContext* context);

  Mutex mu_;
  CondVar told_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mu_);
};

// The payload of a failed call's status that holds its id, which the server's log has too.
inline constexpr char kRequestIdKey[] = "x-request-id";

struct CallOptions {
  absl::Duration timeout = absl::InfiniteDuration();
  Cancellation* cancellation = nullptr;
  // W3C trace context of the caller's span, of which the server's spans become parts
  // (docs/tracing.md). Headers that are empty, or have other than visible ASCII characters and
  // spaces, are not sent.
  std::string traceparent, tracestate;
};

struct ClientOptions {
  bool tls = false;
  std::string root_certificates;  // PEM; used with `tls`; empty: the system's certificates
  std::string certificate, key;   // PEM; used with `tls`; say who calls; empty: none is shown
  std::string token;  // says who calls, on each call; empty: none. It is sent without TLS, too
  // Clients of one address share a connection unless this asks for a separate one.
  bool own_connection = false;
};

struct UploadTensor {
  std::string hash;  // SHA-256, 32 bytes
  absl::string_view bytes;
};

struct UploadBytes {
  std::string path;  // the name by which the model refers to the file; empty: the model itself
  absl::string_view bytes;
};

// The caller keeps alive what the views point to until the call returns.
struct UploadRequest {
  std::string name;
  std::string format;  // "athanor" or "onnx"
  absl::string_view graph;
  std::vector<UploadTensor>
      tensors;                // every tensor of the graph; the client sends those the server lacks
  std::string search_budget;  // same format as in UploadHeader
  std::vector<std::string> disable_rules;
  bool approximate = false;
  bool deterministic = false;
  std::vector<v1::DimBuckets> buckets;
  // Name of the dim along which requests may be batched; empty: no batching.
  std::string batch_dim;
  std::string device;  // that executes the model: "cuda:0"; empty: the server's first
  // Used with other formats than "athanor", with the meaning UploadHeader gives them. An ONNX model
  // is `graph`, or the first file if `graph` is empty.
  std::vector<UploadBytes> files;
  std::vector<v1::DimGiven> dims;
  std::vector<v1::NamedLiteral> values;
  std::optional<uint64_t> random_seed;
  std::vector<std::string> ignore_keys;
  std::optional<v1::DecoderLimits> decoder;
  bool dry_run = false;  // check everything, keep nothing
};

struct InferRequest {
  std::string model;
  std::string version;  // empty: the version that serves
  std::map<std::string, Tensor> inputs;
  std::vector<std::string> outputs;  // empty: all outputs
  // The request's string parameters: "wait", and "taps": names of nodes, separated by commas, whose
  // values follow the outputs.
  std::map<std::string, std::string> parameters;
  int64_t priority = 0;
};

struct InferReply {
  std::vector<std::pair<std::string, Tensor>> outputs;  // in the server's order
  std::string plan_id, bucket, compile_state;
  int64_t queue_us = 0, exec_us = 0;
  // Set for models whose requests are batched: time this request waited for others to join, and
  // rows of the batch it ran in.
  int64_t batch_us = 0, batch_rows = 0;
};

// Builds the protocol's message. INVALID_ARGUMENT names an input whose bytes do not fit its shape.
absl::StatusOr<inference::ModelInferRequest> MakeInferRequest(const InferRequest& request);

// Calls that an operator makes about the server's cache.
class CacheCalls {
 public:
  absl::StatusOr<v1::CacheStat> Stat(const CallOptions& options = {});
  absl::StatusOr<v1::CacheExplanation> Explain(const v1::ExplainCacheRequest& request,
                                               const CallOptions& options = {});
  absl::StatusOr<v1::CacheVerification> Verify(const v1::VerifyCacheRequest& request,
                                               const CallOptions& options = {});
  absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(const v1::CollectGarbageRequest& request,
                                                         const CallOptions& options = {});
  // Passes each chunk of the bundle to `take`. Stops at the first error of `take` and returns it.
  absl::Status Export(const v1::ExportCacheRequest& request,
                      absl::FunctionRef<absl::Status(const v1::CacheBundleChunk&)> take,
                      const CallOptions& options = {});
  // Sends the chunks that `next` returns until it returns nullopt, which ends the bundle. If `next`
  // returns an error, nothing is imported and the error is returned.
  absl::StatusOr<v1::ImportCacheReply> Import(
      absl::FunctionRef<absl::StatusOr<std::optional<v1::CacheBundleChunk>>()> next,
      const CallOptions& options = {});

 private:
  friend class Client;
  explicit CacheCalls(Services* services) : services_(*services) {}

  Services& services_;
};

class Client {
 public:
  explicit Client(const std::string& address, const ClientOptions& options = {});
  ~Client();

  // Reports whether the server takes requests.
  absl::StatusOr<bool> Ready(const CallOptions& options = {});
  absl::StatusOr<inference::ServerMetadataResponse> Metadata(const CallOptions& options = {});
  absl::StatusOr<inference::ModelMetadataResponse> ModelMetadata(const std::string& name,
                                                                 const std::string& version = "",
                                                                 const CallOptions& options = {});

  // Stores a model. Sends only the tensors that the server lacks, and proves possession of the
  // others; if the server has meanwhile lost one of those, sends all of them. Calls `sent(bytes,
  // total)` as bytes are sent; after such a restart it counts from 0 again. OK means that the model
  // is on the server's disk. If an ONNX model is refused, `refusals`, if not null, receives every
  // reason.
  using Progress = std::function<void(int64_t bytes, int64_t total)>;
  absl::StatusOr<v1::UploadModelResponse> Upload(const UploadRequest& request,
                                                 const CallOptions& options = {},
                                                 const Progress& sent = nullptr,
                                                 v1::Refusals* refusals = nullptr);
  absl::StatusOr<v1::Model> GetModel(const std::string& name, const std::string& version = "",
                                     const CallOptions& options = {});
  absl::StatusOr<v1::ListModelsResponse> ListModels(const std::string& name = "",
                                                    const CallOptions& options = {});
  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const CallOptions& options = {});
  absl::StatusOr<v1::DeleteModelResponse> DeleteModel(const std::string& name,
                                                      const std::string& version = "",
                                                      const CallOptions& options = {});
  absl::StatusOr<v1::PlanDetails> GetPlan(const v1::GetPlanRequest& request,
                                          const CallOptions& options = {});
  // Returns the e-graph of a region, with a drawing in Graphviz's DOT language.
  absl::StatusOr<v1::EGraph> GetEGraph(const v1::GetEGraphRequest& request,
                                       const CallOptions& options = {});
  absl::StatusOr<v1::Model> PinPlan(const v1::PinPlanRequest& request,
                                    const CallOptions& options = {});
  absl::StatusOr<v1::Model> Rollback(const std::string& name, const std::string& version = "",
                                     const CallOptions& options = {});

  absl::StatusOr<v1::CompileJob> StartCompile(const v1::StartCompileRequest& request,
                                              const CallOptions& options = {});
  absl::StatusOr<v1::CompileJob> GetCompileJob(const std::string& id,
                                               const CallOptions& options = {});
  absl::StatusOr<v1::ListCompileJobsResponse> ListCompileJobs(
      const v1::ListCompileJobsRequest& request = {}, const CallOptions& options = {});
  absl::StatusOr<v1::CompileJob> CancelCompileJob(const std::string& id,
                                                  const CallOptions& options = {});
  // Calls `seen` with the job's current state and after each change, until the job is finished or
  // `seen` returns false. Returns the last state seen.
  absl::StatusOr<v1::CompileJob> WatchCompileJob(
      const std::string& id, absl::FunctionRef<bool(const v1::CompileJob&)> seen,
      const CallOptions& options = {});

  // Calls `seen` with each message of a model's answer, as they come, until it ends or `seen`
  // returns false, which ends the call. Returns the last message seen; it has `finish`, unless
  // `seen` ended the call. `seen` must not wait long: the server ends an answer that nobody reads.
  absl::StatusOr<v1::GenerateResponse> Generate(
      const v1::GenerateRequest& request, absl::FunctionRef<bool(const v1::GenerateResponse&)> seen,
      const CallOptions& options = {});
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                const CallOptions& options = {});
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    const CallOptions& options = {});
  absl::StatusOr<v1::RenderChatResponse> RenderChat(const v1::RenderChatRequest& request,
                                                    const CallOptions& options = {});
  absl::StatusOr<v1::EngineStatus> GetEngine(const std::string& model,
                                             const std::string& version = "",
                                             const CallOptions& options = {});

  // Returns the calls about the server's cache; they use this client, which must outlive them.
  CacheCalls cache();

  absl::StatusOr<InferReply> Infer(const InferRequest& request, const CallOptions& options = {});
  // Takes the protocol's own messages, for callers that reuse them between calls.
  absl::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response, const CallOptions& options = {});
  // Begins a call and returns at once. `done` runs once, on one of gRPC's threads: it must not
  // block, may begin another call, and must not destroy the client. `request`, `response` and this
  // client must live until `done` has run.
  void InferAsync(const inference::ModelInferRequest& request,
                  inference::ModelInferResponse* response, const CallOptions& options,
                  std::function<void(absl::Status)> done);

 private:
  std::unique_ptr<Services> services_;
};

// Reports whether the job has stopped: done, failed or cancelled.
bool IsFinished(const v1::CompileJob& job);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_CLIENT_CLIENT_H_
