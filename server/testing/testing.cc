#include "server/testing/testing.h"

#include <stdlib.h>

#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "compiler/frontend/frontend.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "gtest/gtest.h"
#include "server/keeper/plan_keeper.h"

namespace athanor {
namespace {

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace

void TestControl::Set(bool* flag, bool value) {
  MutexLock lock(mu_);
  *flag = value;
  cv_.NotifyAll();
}

void TestControl::FailCompiles(absl::Status error) {
  MutexLock lock(mu_);
  error_ = std::move(error);
}

void TestControl::SetVerdict(absl::Status verdict) {
  MutexLock lock(mu_);
  verdict_ = std::move(verdict);
}

absl::Status TestControl::verdict() {
  MutexLock lock(mu_);
  return verdict_;
}

void TestControl::Search(TestSearch search) {
  MutexLock lock(mu_);
  search_ = std::move(search);
}

std::optional<TestSearch> TestControl::search() {
  MutexLock lock(mu_);
  return search_;
}

void TestControl::SetSearchOptions(PlanSearchOptions options) {
  MutexLock lock(mu_);
  search_options_ = std::move(options);
}

PlanSearchOptions TestControl::search_options() {
  MutexLock lock(mu_);
  return search_options_;
}

void TestControl::HoldSearches() {
  MutexLock lock(mu_);
  hold_searches_ = true;
  steps_allowed_ = 0;
}

void TestControl::LetSearch(int steps) {
  MutexLock lock(mu_);
  steps_allowed_ += steps;
  cv_.NotifyAll();
}

void TestControl::ReleaseSearches() {
  MutexLock lock(mu_);
  hold_searches_ = false;
  cv_.NotifyAll();
}

void TestControl::AwaitSearch() {
  MutexLock lock(mu_);
  while (steps_waiting_ == 0 || steps_allowed_ > 0) cv_.Wait(lock);
}

absl::Status TestControl::PassSearch(const bool* interrupted) {
  MutexLock lock(mu_);
  ++steps_waiting_;
  cv_.NotifyAll();
  while (hold_searches_ && steps_allowed_ == 0 && !*interrupted) cv_.Wait(lock);
  --steps_waiting_;
  if (*interrupted) return absl::CancelledError("interrupted");
  if (hold_searches_) --steps_allowed_;
  return absl::OkStatus();
}

std::string TestControl::NextPlanId() {
  MutexLock lock(mu_);
  return "found-" + std::to_string(++last_plan_);
}

void TestControl::Tell(std::string event) {
  MutexLock lock(mu_);
  events_.push_back(std::move(event));
}

std::vector<std::string> TestControl::events() {
  MutexLock lock(mu_);
  return events_;
}

absl::Status TestControl::PassCompile(const bool* interrupted) {
  MutexLock lock(mu_);
  while (hold_compiles_ && !*interrupted) cv_.Wait(lock);
  if (*interrupted) return absl::CancelledError("interrupted");
  return error_;
}

void TestControl::PassRun() {
  MutexLock lock(mu_);
  ++runs_waiting_;
  while (hold_runs_) cv_.Wait(lock);
  --runs_waiting_;
}

void TestControl::RememberIn(const std::string& path, const std::string& cpu) {
  cache_ = Cache::Open({.path = path}, [](absl::string_view) {});
  machine_.mutable_target()->set_device("cpu");
  machine_.mutable_target()->set_triple("test-triple");
  machine_.mutable_target()->set_cpu(cpu);
  machine_.mutable_target()->set_threads(1);
  machine_.set_compiler_version("test compiler");
}

void TestControl::Keep(const v1::Plan& plan, const KernelObject& object) {
  if (cache_ == nullptr) return;
  Tell("compile " + plan.plan_id());
  cache_->kernels().Put(KernelKeyOf(plan.kernels(0), machine_), object.object);
}

void TestControl::SetDevice(v1::Device device) {
  MutexLock lock(mu_);
  device_ = std::move(device);
}

v1::Device TestControl::device() {
  MutexLock lock(mu_);
  return device_;
}

void TestControl::Lose(const std::string& error) {
  MutexLock lock(mu_);
  device_.set_lost(error);
  if (on_loss_) on_loss_();
}

bool TestControl::HasDevice(const std::string& name) const {
  return name.empty() || absl::c_linear_search(devices, name);
}

absl::Status TestControl::loss(const std::string& name) {
  if (!HasDevice(name)) {
    return absl::FailedPreconditionError(absl::StrCat("this server has no device \"", name, "\""));
  }
  const v1::Device one = device();
  const bool other = !one.name().empty() && one.name() != name;
  return one.lost().empty() || other ? absl::OkStatus() : absl::UnavailableError(one.lost());
}

internal::TargetReply TestControl::machine(const std::string& device) {
  internal::TargetReply machine = machine_;
  machine.set_device(device);
  return machine;
}

void TestControl::OnLoss(std::function<void()> call) {
  if (call && before_hooked) before_hooked();
  MutexLock lock(mu_);
  on_loss_ = std::move(call);
}

TestModel ModelOf(const Graph& graph, const std::vector<std::string>& parameters) {
  TestModel model;
  std::vector<std::string> hashes;
  for (const std::string& bytes : parameters) {
    hashes.push_back(Sha256Of(bytes));
    model.tensors[hashes.back()] = bytes;
  }
  model.graph = GraphToProto(graph, hashes);
  return model;
}

TestModel ChainModel(const std::vector<float>& w) {
  const auto n = static_cast<int64_t>(w.size());
  Graph graph;
  graph.name = "chain";
  GraphBuilder b(&graph);
  NodeId x = b.Input("x", {DType::kF32, {n}}).value();
  NodeId p = b.Parameter("w", {DType::kF32, {n}}).value();
  NodeId hidden = b.Add(Op::kMul, {x, p}, {}, "hidden").value();
  NodeId doubled = b.Add(Op::kAdd, {hidden, hidden}, {}, "doubled").value();
  b.Output("y", b.Add(Op::kRelu, {doubled}, {}, "clamped").value());
  return ModelOf(graph, {Floats(w)});
}

TestModel ScaleModel(const std::vector<float>& w) {
  const auto n = static_cast<int64_t>(w.size());
  Graph graph;
  graph.name = "scale";
  GraphBuilder b(&graph);
  NodeId x = b.Input("x", {DType::kF32, {n}}).value();
  NodeId p = b.Parameter("w", {DType::kF32, {n}}).value();
  b.Output("y", b.Add(Op::kMul, {x, p}).value());
  return ModelOf(graph, {Floats(w)});
}

TestModel ReluModel() {
  Graph graph;
  graph.name = "relu";
  graph.dims = {{"b", 1, 64}};
  GraphBuilder b(&graph);
  NodeId x = b.Input("x", {DType::kF32, {Expr::Symbol("b"), 4}}).value();
  b.Output("y", b.Add(Op::kRelu, {x}).value());
  return ModelOf(graph, {});
}

TestModel GatherModel(const std::vector<float>& table) {
  Graph graph;
  graph.name = "gather";
  graph.dims = {{"b", 1, 8}};
  GraphBuilder b(&graph);
  NodeId ids = b.Input("ids", {DType::kI32, {Expr::Symbol("b")}}).value();
  NodeId t = b.Parameter("table", {DType::kF32, {static_cast<int64_t>(table.size())}}).value();
  b.Output("y", b.Add(Op::kGather, {t, ids}, {{"axis", int64_t{0}}}).value());
  return ModelOf(graph, {Floats(table)});
}

std::vector<v1::UploadModelRequest> UploadMessages(const std::string& name, const TestModel& model,
                                                   size_t chunk) {
  std::vector<v1::UploadModelRequest> messages(1);
  v1::UploadHeader* header = messages[0].mutable_header();
  header->set_name(name);
  header->set_format("athanor");
  header->set_graph(model.graph.SerializeAsString());
  header->set_graph_sha256(Sha256Of(header->graph()));
  for (const auto& [hash, bytes] : model.tensors) {
    auto* tensor = header->add_tensors();
    tensor->set_hash(hash);
    tensor->set_bytes(static_cast<int64_t>(bytes.size()));
  }
  for (const auto& [hash, bytes] : model.tensors) {
    for (size_t offset = 0; offset < bytes.size(); offset += chunk) {
      auto* piece = messages.emplace_back().mutable_chunk();
      piece->set_hash(hash);
      piece->set_offset(static_cast<int64_t>(offset));
      piece->set_data(bytes.substr(offset, chunk));
    }
  }
  messages.emplace_back().mutable_commit();
  return messages;
}

std::vector<v1::UploadModelRequest> ProvedMessages(const std::string& name, const TestModel& model,
                                                   const std::string& nonce) {
  std::vector<v1::UploadModelRequest> messages = UploadMessages(name, model);
  v1::UploadHeader* header = messages[0].mutable_header();
  header->clear_tensors();
  header->set_nonce(nonce);
  for (const auto& [hash, bytes] : model.tensors) {
    v1::TensorProof* proof = header->add_proofs();
    proof->set_hash(hash);
    proof->set_proof(PossessionProof(nonce, hash, SealOf(bytes)));
  }
  return {messages.front(), messages.back()};
}

inference::ModelInferRequest FloatRequest(const std::string& model, const std::vector<float>& x) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(static_cast<int64_t>(x.size()));
  request.add_raw_input_contents(Floats(x));
  return request;
}

std::string FreshDirectory() {
  std::string path = testing::TempDir() + "/athanor-XXXXXX";
  return mkdtemp(path.data()) == nullptr ? "" : path;
}

TestServer::TestServer(ServerOptions given, Disk* disk) : options(std::move(given)), disk_(disk) {
  if (options.state_dir.empty()) options.state_dir = FreshDirectory();
  options.listen = "127.0.0.1:0";
  if (options.http_listen == kAutoHttp) options.http_listen = "";  // others may use that port
  if (!options.cache.empty()) control->RememberIn(options.cache);
  Start();
}

TestServer::~TestServer() {
  control->ReleaseCompiles();
  control->ReleaseSearches();
  control->ReleaseRuns();
}

void TestServer::Start() {
  absl::StatusOr<std::unique_ptr<Server>> started =
      Server::Start(options, EvaluatorFactory(control), disk_);
  ASSERT_TRUE(started.ok()) << started.status();
  server = *std::move(started);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server->port()),
                                      grpc::InsecureChannelCredentials(), arguments);
  models = v1::ModelService::NewStub(channel);
  compile = v1::CompileService::NewStub(channel);
  cache_stub = v1::CacheService::NewStub(channel);
  inference_stub = inference::GRPCInferenceService::NewStub(channel);
}

void TestServer::Restart() {
  server.reset();
  Start();
}

grpc::Status TestServer::Send(const std::vector<v1::UploadModelRequest>& messages,
                              v1::UploadModelResponse* reply) {
  grpc::ClientContext context;
  v1::UploadModelResponse ignored;
  auto writer = models->UploadModel(&context, reply == nullptr ? &ignored : reply);
  for (const auto& message : messages) {
    if (!writer->Write(message)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

v1::UploadModelResponse TestServer::Upload(const std::string& name, const TestModel& model) {
  v1::UploadModelResponse reply;
  const grpc::Status status = Send(UploadMessages(name, model), &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(WaitForJob(reply.compile_job_id()).phase(), v1::CompileJob::DONE);
  return reply;
}

v1::Model TestServer::Get(const std::string& name, const std::string& version) {
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name(name);
  request.set_version(version);
  v1::Model model;
  const grpc::Status status = models->GetModel(&context, request, &model);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return model;
}

grpc::Status TestServer::Infer(const inference::ModelInferRequest& request,
                               inference::ModelInferResponse* reply) {
  grpc::ClientContext context;
  inference::ModelInferResponse ignored;
  return inference_stub->ModelInfer(&context, request, reply == nullptr ? &ignored : reply);
}

std::vector<float> TestServer::Infer(const std::string& model, const std::vector<float>& x) {
  inference::ModelInferResponse reply;
  const grpc::Status status = Infer(FloatRequest(model, x), &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  if (reply.raw_output_contents_size() != 1) return {};
  std::vector<float> y(reply.raw_output_contents(0).size() / sizeof(float));
  std::memcpy(y.data(), reply.raw_output_contents(0).data(), y.size() * sizeof(float));
  return y;
}

v1::CompileJob TestServer::WaitForJob(const std::string& id) {
  grpc::ClientContext context;
  v1::WatchCompileJobRequest request;
  request.set_id(id);
  auto reader = compile->WatchCompileJob(&context, request);
  v1::CompileJob job;
  while (reader->Read(&job)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

}  // namespace athanor
