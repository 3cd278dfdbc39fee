#include "clients/cpp/client/client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/cpp/client/bundle.h"
#include "clients/cpp/client/client_call.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "grpcpp/support/client_interceptor.h"

namespace athanor::client {
namespace {

// Chunk size of uploads. The server counts an upload's progress by whole messages; at the lowest
// rate it accepts (--upload_least_rate, 8 KiB/s by default) a chunk of this size arrives within
// --upload_idle.
constexpr size_t kChunkBytes = size_t{256} << 10;
// Limit on a reply's metadata, which carries an ONNX model's refusals; kRefusalBytes is how many
// bytes of these the client asks for.
constexpr int kMetadataBytes = 1 << 20;
constexpr char kRefusalsKey[] = "athanor-refusals-bin";
constexpr char kRefusalBytesKey[] = "athanor-max-refusal-bytes";
constexpr char kRefusalBytes[] = "524288";

// The tensors to send, and proofs that the client has the others.
struct Division {
  std::vector<UploadTensor> sent;
  std::string nonce;
  std::vector<v1::TensorProof> proofs;
};

v1::UploadHeader MakeHeader(const UploadRequest& request, const Division& division) {
  v1::UploadHeader header;
  header.set_name(request.name);
  header.set_format(request.format);
  header.set_graph(request.graph.data(), request.graph.size());
  if (!request.graph.empty()) header.set_graph_sha256(Sha256Of(request.graph));
  header.set_search_budget(request.search_budget);
  header.mutable_disable_rules()->Assign(request.disable_rules.begin(),
                                         request.disable_rules.end());
  header.set_approximate(request.approximate);
  header.set_deterministic(request.deterministic);
  header.set_batch_dim(request.batch_dim);
  header.set_device(request.device);
  header.mutable_buckets()->Assign(request.buckets.begin(), request.buckets.end());
  header.set_nonce(division.nonce);
  header.mutable_proofs()->Assign(division.proofs.begin(), division.proofs.end());
  for (const UploadTensor& tensor : division.sent) {
    v1::TensorInfo* info = header.add_tensors();
    info->set_hash(tensor.hash);
    info->set_bytes(static_cast<int64_t>(tensor.bytes.size()));
  }
  for (const UploadBytes& bytes : request.files) {
    v1::UploadFile* file = header.add_files();
    file->set_path(bytes.path);
    file->set_bytes(static_cast<int64_t>(bytes.bytes.size()));
  }
  header.mutable_dims()->Assign(request.dims.begin(), request.dims.end());
  header.mutable_values()->Assign(request.values.begin(), request.values.end());
  if (request.random_seed.has_value()) header.set_random_seed(*request.random_seed);
  header.mutable_ignore_keys()->Assign(request.ignore_keys.begin(), request.ignore_keys.end());
  if (request.decoder.has_value()) *header.mutable_decoder() = *request.decoder;
  header.set_dry_run(request.dry_run);
  return header;
}

// Adds the token to the metadata of each call. gRPC's own credentials of calls refuse channels
// without TLS.
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& value) : value_(value) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", value_);
    }
    methods->Proceed();
  }

 private:
  const std::string& value_;
};

class TokenInterceptors final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptors(const std::string& token) : value_(absl::StrCat("Bearer ", token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(value_);
  }

 private:
  const std::string value_;
};

// Sends the files in chunks, like WriteTensors.
bool WriteFiles(const std::vector<UploadBytes>& files, const Client::Progress& sent,
                grpc::ClientWriter<v1::UploadModelRequest>* writer) {
  int64_t total = 0, done = 0;
  for (const UploadBytes& file : files) total += static_cast<int64_t>(file.bytes.size());
  for (size_t f = 0; f < files.size(); ++f) {
    for (size_t at = 0; at < files[f].bytes.size(); at += kChunkBytes) {
      const absl::string_view piece = files[f].bytes.substr(at, kChunkBytes);
      v1::UploadModelRequest message;
      v1::FileChunk* chunk = message.mutable_file();
      chunk->set_file(static_cast<int32_t>(f));
      chunk->set_offset(static_cast<int64_t>(at));
      chunk->set_data(piece.data(), piece.size());
      if (!writer->Write(message)) return false;
      done += static_cast<int64_t>(piece.size());
      if (sent) sent(done, total);
    }
  }
  return true;
}

// Returns false when the stream is broken; Finish then returns the reason.
bool WriteTensors(const std::vector<UploadTensor>& tensors, const Client::Progress& sent,
                  grpc::ClientWriter<v1::UploadModelRequest>* writer) {
  int64_t total = 0, done = 0;
  for (const UploadTensor& tensor : tensors) total += static_cast<int64_t>(tensor.bytes.size());
  for (const UploadTensor& tensor : tensors) {
    for (size_t at = 0; at < tensor.bytes.size(); at += kChunkBytes) {
      const absl::string_view piece = tensor.bytes.substr(at, kChunkBytes);
      v1::UploadModelRequest message;
      v1::TensorChunk* chunk = message.mutable_chunk();
      chunk->set_hash(tensor.hash);
      chunk->set_offset(static_cast<int64_t>(at));
      chunk->set_data(piece.data(), piece.size());
      if (!writer->Write(message)) return false;
      done += static_cast<int64_t>(piece.size());
      if (sent) sent(done, total);
    }
  }
  return true;
}

std::vector<UploadTensor> EachOnce(const std::vector<UploadTensor>& tensors) {
  std::vector<UploadTensor> once;
  absl::flat_hash_set<absl::string_view> seen;
  for (const UploadTensor& tensor : tensors) {
    if (seen.insert(tensor.hash).second) once.push_back(tensor);
  }
  return once;
}

// Decides which tensors to send: those the server lacks or does not accept a proof for.
absl::StatusOr<Division> Divide(v1::ModelService::Stub* models,
                                const std::vector<UploadTensor>& tensors,
                                const CallOptions& options) {
  Division division;
  if (tensors.empty()) return division;
  const absl::Time end = absl::Now() + options.timeout;
  v1::MissingTensorsRequest ask;
  for (const UploadTensor& tensor : tensors) ask.add_hashes(tensor.hash);
  auto reply = Call(models, &v1::ModelService::Stub::MissingTensors, ask, options, /*retry=*/true);
  if (!reply.ok()) return reply.status();
  division.nonce = reply->nonce();
  if (!division.nonce.empty()) {  // an empty nonce means that the server wants no proofs
    ask.set_nonce(division.nonce);
    for (const UploadTensor& tensor : EachOnce(tensors)) {
      v1::TensorProof* proof = ask.add_proofs();
      proof->set_hash(tensor.hash);
      proof->set_proof(PossessionProof(division.nonce, tensor.hash, SealOf(tensor.bytes)));
    }
    CallOptions left = options;
    left.timeout = end - absl::Now();
    reply = Call(models, &v1::ModelService::Stub::MissingTensors, ask, left, /*retry=*/true);
    if (!reply.ok()) return reply.status();
  }
  const absl::flat_hash_set<absl::string_view> missing(reply->hashes().begin(),
                                                       reply->hashes().end());
  for (const UploadTensor& tensor : EachOnce(tensors)) {
    if (missing.contains(tensor.hash)) division.sent.push_back(tensor);
  }
  for (const v1::TensorProof& proof : ask.proofs()) {
    if (!missing.contains(proof.hash())) division.proofs.push_back(proof);
  }
  return division;
}

absl::StatusOr<v1::UploadModelResponse> Send(v1::ModelService::Stub* models,
                                             const UploadRequest& request, const Division& division,
                                             const CallOptions& options,
                                             const Client::Progress& sent, v1::Refusals* refusals) {
  CallScope scope(options);
  if (refusals != nullptr) scope.context()->AddMetadata(kRefusalBytesKey, kRefusalBytes);
  v1::UploadModelResponse response;
  auto writer = models->UploadModel(scope.context(), &response);
  v1::UploadModelRequest message;
  *message.mutable_header() = MakeHeader(request, division);
  if (writer->Write(message) && WriteTensors(division.sent, sent, writer.get()) &&
      WriteFiles(request.files, sent, writer.get())) {
    message.mutable_commit();
    writer->Write(message);
  }
  writer->WritesDone();
  grpc::Status status = writer->Finish();
  const auto& trailing = scope.context()->GetServerTrailingMetadata();
  if (const auto it = trailing.find(kRefusalsKey); refusals != nullptr && it != trailing.end()) {
    refusals->ParseFromArray(it->second.data(), static_cast<int>(it->second.size()));
  }
  if (!status.ok()) return ToStatus(status, *scope.context());
  return response;
}

absl::StatusOr<InferReply> ReadReply(inference::ModelInferResponse* response) {
  if (response->outputs_size() != response->raw_output_contents_size()) {
    return absl::InternalError(absl::StrCat("the reply has ", response->outputs_size(),
                                            " outputs but ", response->raw_output_contents_size(),
                                            " raw contents"));
  }
  InferReply reply;
  for (int i = 0; i < response->outputs_size(); ++i) {
    auto* output = response->mutable_outputs(i);
    const ClientDType* row = FindDatatype(output->datatype());
    Tensor tensor{row == nullptr ? output->datatype() : std::string(row->name),
                  {output->shape().begin(), output->shape().end()},
                  std::move(*response->mutable_raw_output_contents(i))};
    if (absl::Status s = CheckTensor(tensor); !s.ok()) {
      return absl::InternalError(absl::StrCat("output \"", output->name(), "\": ", s.message()));
    }
    reply.outputs.emplace_back(output->name(), std::move(tensor));
  }
  for (const auto& [key, value] : response->parameters()) {
    if (key == "plan_id") reply.plan_id = value.string_param();
    if (key == "bucket") reply.bucket = value.string_param();
    if (key == "compile_state") reply.compile_state = value.string_param();
    if (key == "queue_us") reply.queue_us = value.int64_param();
    if (key == "exec_us") reply.exec_us = value.int64_param();
    if (key == "batch_us") reply.batch_us = value.int64_param();
    if (key == "batch_rows") reply.batch_rows = value.int64_param();
  }
  return reply;
}

}  // namespace

absl::StatusOr<inference::ModelInferRequest> MakeInferRequest(const InferRequest& request) {
  inference::ModelInferRequest message;
  message.set_model_name(request.model);
  message.set_model_version(request.version);
  for (const auto& [name, tensor] : request.inputs) {
    if (absl::Status s = CheckTensor(tensor); !s.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("input \"", name, "\": ", s.message()));
    }
    auto* input = message.add_inputs();
    input->set_name(name);
    input->set_datatype(std::string(FindDType(tensor.dtype)->datatype));
    input->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    message.add_raw_input_contents(tensor.bytes);
  }
  for (const std::string& name : request.outputs) message.add_outputs()->set_name(name);
  for (const auto& [key, value] : request.parameters) {
    (*message.mutable_parameters())[key].set_string_param(value);
  }
  if (request.priority != 0) {
    (*message.mutable_parameters())["priority"].set_int64_param(request.priority);
  }
  return message;
}

void Cancellation::Cancel() {
  MutexLock lock(mu_);
  cancelled_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
  told_.NotifyAll();
}

void Cancellation::AwaitFor(absl::Duration time) {
  const absl::Duration most = std::min(time, absl::Hours(24 * 365));  // the clock ends at some time
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(most);
  MutexLock lock(mu_);
  while (!cancelled_ && told_.WaitUntil(lock, until)) {
  }
}

void Cancellation::Add(grpc::ClientContext* context) {
  MutexLock lock(mu_);
  running_.insert(context);
  if (cancelled_) context->TryCancel();
}

void Cancellation::Remove(grpc::ClientContext* context) {
  MutexLock lock(mu_);
  running_.erase(context);
}

Client::Client(const std::string& address, const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  if (options.own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.root_certificates;
  ssl.pem_cert_chain = options.certificate;
  ssl.pem_private_key = options.key;
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!options.token.empty()) {
    interceptors.push_back(std::make_unique<TokenInterceptors>(options.token));
  }
  const std::shared_ptr<grpc::Channel> channel =
      grpc::experimental::CreateCustomChannelWithInterceptors(
          address, options.tls ? grpc::SslCredentials(ssl) : grpc::InsecureChannelCredentials(),
          arguments, std::move(interceptors));
  services_ = std::make_unique<Services>();
  services_->models = v1::ModelService::NewStub(channel);
  services_->compile = v1::CompileService::NewStub(channel);
  services_->cache = v1::CacheService::NewStub(channel);
  services_->generate = v1::GenerateService::NewStub(channel);
  services_->inference = inference::GRPCInferenceService::NewStub(channel);
}

Client::~Client() = default;

absl::StatusOr<bool> Client::Ready(const CallOptions& options) {
  ASSIGN_OR_RETURN(auto reply, Call(services_->inference.get(),
                                    &inference::GRPCInferenceService::Stub::ServerReady,
                                    inference::ServerReadyRequest(), options, /*retry=*/true));
  return reply.ready();
}

absl::StatusOr<inference::ServerMetadataResponse> Client::Metadata(const CallOptions& options) {
  return Call(services_->inference.get(), &inference::GRPCInferenceService::Stub::ServerMetadata,
              inference::ServerMetadataRequest(), options, /*retry=*/true);
}

absl::StatusOr<inference::ModelMetadataResponse> Client::ModelMetadata(const std::string& name,
                                                                       const std::string& version,
                                                                       const CallOptions& options) {
  inference::ModelMetadataRequest request;
  request.set_name(name);
  request.set_version(version);
  return Call(services_->inference.get(), &inference::GRPCInferenceService::Stub::ModelMetadata,
              request, options, /*retry=*/true);
}

absl::StatusOr<v1::UploadModelResponse> Client::Upload(const UploadRequest& request,
                                                       const CallOptions& options,
                                                       const Progress& sent,
                                                       v1::Refusals* refusals) {
  const absl::Time end = absl::Now() + options.timeout;
  CallOptions left = options;
  ASSIGN_OR_RETURN(auto division, Divide(services_->models.get(), request.tensors, left));
  left.timeout = end - absl::Now();
  auto stored = Send(services_->models.get(), request, division, left, sent, refusals);
  if (division.proofs.empty() || !absl::IsFailedPrecondition(stored.status())) return stored;
  // A tensor that the server accepted as proved may have gone since; after a restart the nonce has.
  left.timeout = end - absl::Now();
  return Send(services_->models.get(), request, {.sent = EachOnce(request.tensors)}, left, sent,
              refusals);
}

absl::StatusOr<v1::Model> Client::GetModel(const std::string& name, const std::string& version,
                                           const CallOptions& options) {
  v1::GetModelRequest request;
  request.set_name(name);
  request.set_version(version);
  return Call(services_->models.get(), &v1::ModelService::Stub::GetModel, request, options,
              /*retry=*/true);
}

absl::StatusOr<v1::PlanDetails> Client::GetPlan(const v1::GetPlanRequest& request,
                                                const CallOptions& options) {
  return Call(services_->models.get(), &v1::ModelService::Stub::GetPlan, request, options,
              /*retry=*/true);
}

absl::StatusOr<v1::EGraph> Client::GetEGraph(const v1::GetEGraphRequest& request,
                                             const CallOptions& options) {
  return Call(services_->models.get(), &v1::ModelService::Stub::GetEGraph, request, options,
              /*retry=*/true);
}

absl::StatusOr<v1::ListModelsResponse> Client::ListModels(const std::string& name,
                                                          const CallOptions& options) {
  v1::ListModelsRequest request;
  request.set_name(name);
  return Call(services_->models.get(), &v1::ModelService::Stub::ListModels, request, options,
              /*retry=*/true);
}

absl::StatusOr<v1::ListDevicesResponse> Client::ListDevices(const CallOptions& options) {
  return Call(services_->models.get(), &v1::ModelService::Stub::ListDevices,
              v1::ListDevicesRequest(), options, /*retry=*/true);
}

absl::StatusOr<v1::DeleteModelResponse> Client::DeleteModel(const std::string& name,
                                                            const std::string& version,
                                                            const CallOptions& options) {
  v1::DeleteModelRequest request;
  request.set_name(name);
  request.set_version(version);
  return Call(services_->models.get(), &v1::ModelService::Stub::DeleteModel, request, options,
              /*retry=*/false);
}

absl::StatusOr<v1::Model> Client::PinPlan(const v1::PinPlanRequest& request,
                                          const CallOptions& options) {
  return Call(services_->models.get(), &v1::ModelService::Stub::PinPlan, request, options,
              /*retry=*/false);
}

absl::StatusOr<v1::Model> Client::Rollback(const std::string& name, const std::string& version,
                                           const CallOptions& options) {
  v1::RollbackRequest request;
  request.set_name(name);
  request.set_version(version);
  return Call(services_->models.get(), &v1::ModelService::Stub::Rollback, request, options,
              /*retry=*/false);
}

absl::StatusOr<v1::CompileJob> Client::StartCompile(const v1::StartCompileRequest& request,
                                                    const CallOptions& options) {
  return Call(services_->compile.get(), &v1::CompileService::Stub::StartCompile, request, options,
              /*retry=*/false);
}

absl::StatusOr<v1::CompileJob> Client::GetCompileJob(const std::string& id,
                                                     const CallOptions& options) {
  v1::GetCompileJobRequest request;
  request.set_id(id);
  return Call(services_->compile.get(), &v1::CompileService::Stub::GetCompileJob, request, options,
              /*retry=*/true);
}

absl::StatusOr<v1::ListCompileJobsResponse> Client::ListCompileJobs(
    const v1::ListCompileJobsRequest& request, const CallOptions& options) {
  return Call(services_->compile.get(), &v1::CompileService::Stub::ListCompileJobs, request,
              options,
              /*retry=*/true);
}

absl::StatusOr<v1::CompileJob> Client::CancelCompileJob(const std::string& id,
                                                        const CallOptions& options) {
  v1::CancelCompileJobRequest request;
  request.set_id(id);
  return Call(services_->compile.get(), &v1::CompileService::Stub::CancelCompileJob, request,
              options,
              /*retry=*/false);
}

absl::StatusOr<v1::CompileJob> Client::WatchCompileJob(
    const std::string& id, absl::FunctionRef<bool(const v1::CompileJob&)> seen,
    const CallOptions& options) {
  v1::WatchCompileJobRequest request;
  request.set_id(id);
  CallScope scope(options);
  auto reader = services_->compile->WatchCompileJob(scope.context(), request);
  v1::CompileJob job, last;
  bool stopped = false;
  while (!stopped && reader->Read(&job)) {
    last = job;
    stopped = !seen(job);
  }
  if (stopped) scope.context()->TryCancel();
  const grpc::Status status = reader->Finish();
  if (!status.ok() && !stopped) return ToStatus(status, *scope.context());
  return last;
}

absl::StatusOr<InferReply> Client::Infer(const InferRequest& request, const CallOptions& options) {
  ASSIGN_OR_RETURN(inference::ModelInferRequest message, MakeInferRequest(request));
  inference::ModelInferResponse response;
  RETURN_IF_ERROR(Infer(message, &response, options));
  return ReadReply(&response);
}

absl::Status Client::Infer(const inference::ModelInferRequest& request,
                           inference::ModelInferResponse* response, const CallOptions& options) {
  CallScope scope(options);
  return ToStatus(services_->inference->ModelInfer(scope.context(), request, response),
                  *scope.context());
}

void Client::InferAsync(const inference::ModelInferRequest& request,
                        inference::ModelInferResponse* response, const CallOptions& options,
                        std::function<void(absl::Status)> done) {
  auto scope = std::make_shared<CallScope>(options);
  grpc::ClientContext* context = scope->context();
  services_->inference->async()->ModelInfer(
      context, &request, response,
      [scope = std::move(scope), done = std::move(done)](grpc::Status status) mutable {
        // Releases the context before `done`, after which the client may be destroyed. The context
        // holds the channel; if this thread released it last, the channel would join the very
        // thread it runs on.
        absl::Status ended = ToStatus(status, *scope->context());
        scope.reset();
        done(std::move(ended));
      });
}

bool IsFinished(const v1::CompileJob& job) {
  return job.phase() == v1::CompileJob::DONE || job.phase() == v1::CompileJob::FAILED ||
         job.phase() == v1::CompileJob::CANCELLED;
}

}  // namespace athanor::client
