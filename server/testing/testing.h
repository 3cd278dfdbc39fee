// Shared parts of the server's tests: a backend that answers with the reference evaluator, small
// graphs, and a server on a free port with clients.
//
//   TestServer test;                                     // listens on a free port
//   test.Upload("m", ScaleGraph("w", {1, 2, 3}));
//   test.Infer("m", {1, 1, 1});                          // {1, 2, 3}
#ifndef ATHANOR_SERVER_TESTING_TESTING_H_
#define ATHANOR_SERVER_TESTING_TESTING_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cache/cache.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/cache.grpc.pb.h"
#include "proto/athanor/v1/compile.grpc.pb.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"
#include "server/core/core.h"
#include "server/plans/compile_backend.h"
#include "server/server.h"

namespace athanor {

// A scripted search that measures nothing: it finds `plans` plans, one per step, with ids
// "found-1", "found-2", ... counted over all searches, and kind "search". The fields say how it
// goes on.
struct TestSearch {
  int first = 0;  // steps without a plan before the first one
  int plans = 0;
  v1::CompileJob::StopReason stop = v1::CompileJob::STOP_EXHAUSTED;
  absl::Status error;  // the search fails with it unless OK
  // After the plans, takes steps without finding anything until its time is up.
  bool endless = false;
  bool deaf = false;  // ignores Finish and Until
  // Number of first comparisons or costs that find no gap between requests to measure in.
  int crowded = 0;
  double compared = 0.5;  // its best plan's time relative to any other plan's
  // Pictures of regions, available after the first step.
  std::vector<absl::StatusOr<std::string>> pictures = {};
};

// Controls the compiling, searching and running in the background of a test. Thread-safe.
class TestControl {
 public:
  static constexpr size_t kMostSearches = 2;  // most searches that the backend holds

  // Sets the script of searches that begin from now on; without a script the backend has no search.
  void Search(TestSearch search);
  // Returns the options of the search that began last.
  PlanSearchOptions search_options();
  void SetSearchOptions(PlanSearchOptions options);
  // Makes steps wait before they begin, until interrupted or let go.
  void HoldSearches();
  void LetSearch(int steps);
  void ReleaseSearches();
  // Waits until a step waits and all steps that were let go are done.
  void AwaitSearch();
  // Returns what the backend was asked to do, by plan: "lower p-1", "search from p-1", "step p-1",
  // "taken found-1", "refused found-1". A step has the id of the plan its search began with.
  std::vector<std::string> events();

  // Keeps plans and kernels in the file, for servers started from now on. Another `cpu` makes it a
  // different machine.
  void RememberIn(const std::string& path, const std::string& cpu = "test cpu");
  Cache* cache() { return cache_.get(); }
  internal::TargetReply machine(const std::string& device = "cpu");
  // Keeps the compiled kernel of `plan`: "compile p-1".
  void Keep(const v1::Plan& plan, const KernelObject& object);
  // Makes the machine unknown until a compiler is asked.
  void ForgetMachine() { machine_known_ = false; }
  bool machine_known() const { return machine_known_; }
  void AskMachine() { machine_known_ = true; }

  // Bytes of a constant of plans that are lowered, and the pool that they are loaded into, without
  // being taken from it; may only change while no server runs.
  int64_t constant_bytes = 0;
  PreparedPool* pool = nullptr;
  // Names of the devices; may only change while no server runs.
  std::vector<std::string> devices = {"cpu"};
  bool HasDevice(const std::string& name) const;  // "": the first of them
  // Describes one of them; empty unless a test says what it is.
  void SetDevice(v1::Device device);
  v1::Device device();
  std::atomic<int> descriptions = 0;  // times that devices were described
  // Returned as what it reaches; may only change while no call runs.
  std::optional<internal::MachineReply> limits;
  // Makes it a lost one.
  void Lose(const std::string& error);
  absl::Status loss(const std::string& device);
  void OnLoss(std::function<void()> call);
  // Called when a server is about to set what a loss calls; may only change while no server runs.
  std::function<void()> before_hooked;

  // Makes compiles wait before their kernel until released.
  void HoldCompiles() { Set(&hold_compiles_, true); }
  void ReleaseCompiles() { Set(&hold_compiles_, false); }
  void HoldRuns() { Set(&hold_runs_, true); }
  void ReleaseRuns() { Set(&hold_runs_, false); }
  // Makes compiles fail. DATA_LOSS: kernels are wrong, except those of plans made without
  // optimization.
  void FailCompiles(absl::Status error);
  // Sets the result of verifying stored plans.
  void SetVerdict(absl::Status verdict);
  absl::Status verdict();
  // `interrupted` must belong to one backend and be used by no other thread.
  void SetInterrupted(bool* interrupted, bool value) { Set(interrupted, value); }

  // Return CANCELLED if the backend is interrupted.
  absl::Status PassCompile(const bool* interrupted);
  absl::Status PassSearch(const bool* interrupted);
  std::optional<TestSearch> search();
  std::string NextPlanId();
  void Tell(std::string event);
  void PassRun();
  int runs_waiting() const { return runs_waiting_; }

 private:
  void Set(bool* flag, bool value);

  Mutex mu_;
  CondVar cv_;
  bool hold_compiles_ = false;
  bool hold_runs_ = false;
  bool hold_searches_ = false;
  int steps_allowed_ = 0;
  int steps_waiting_ = 0;
  int last_plan_ = 0;
  std::optional<TestSearch> search_;
  PlanSearchOptions search_options_;
  std::vector<std::string> events_;
  absl::Status error_, verdict_;
  std::atomic<int> runs_waiting_{0};
  std::atomic<bool> machine_known_{true};
  v1::Device device_;
  std::function<void()> on_loss_;
  std::unique_ptr<Cache> cache_;  // may only change while no server runs
  internal::TargetReply machine_;
};

// Returns backends that keep plans in the file of `control`, if it has one.
std::shared_ptr<CompileBackends> EvaluatorFactory(std::shared_ptr<TestControl> control);

// A graph, and the bytes of its parameters.
struct TestModel {
  v1::Graph graph;
  std::map<std::string, std::string> tensors;  // by hash
};
// `parameters` holds bytes in the order of graph.ParameterIds().
TestModel ModelOf(const Graph& graph, const std::vector<std::string>& parameters);
// hidden = x * w, doubled = hidden + hidden, clamped = relu(doubled); output y = clamped, f32 [n]
TestModel ChainModel(const std::vector<float>& w);
// y = x * w, f32 [n]
TestModel ScaleModel(const std::vector<float>& w);
// y = relu(x) of f32 [b, 4], b in [1, 64]
TestModel ReluModel();
// y = table[ids] of i32 ids [b], b in [1, 8]; table f32 [rows]
TestModel GatherModel(const std::vector<float>& table);

// Returns the messages of an upload, in chunks of at most `chunk` bytes, for tests to modify.
std::vector<v1::UploadModelRequest> UploadMessages(const std::string& name, const TestModel& model,
                                                   size_t chunk = 1 << 20);
// Returns the messages of an upload that sends no tensor, but proofs made with a nonce of the
// server.
std::vector<v1::UploadModelRequest> ProvedMessages(const std::string& name, const TestModel& model,
                                                   const std::string& nonce);
inference::ModelInferRequest FloatRequest(const std::string& model, const std::vector<float>& x);

std::string FreshDirectory();

class TestServer {
 public:
  // Starts a server. It has a cache only if `options` name the file.
  explicit TestServer(ServerOptions options = {}, Disk* disk = nullptr);
  ~TestServer();

  // Ends and starts the server, as if the process had died and come back.
  void Restart();

  grpc::Status Send(const std::vector<v1::UploadModelRequest>& messages,
                    v1::UploadModelResponse* reply = nullptr);
  // Uploads the model and waits until the version serves.
  v1::UploadModelResponse Upload(const std::string& name, const TestModel& model);
  v1::Model Get(const std::string& name, const std::string& version = "");
  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* reply = nullptr);
  // Returns the only output of a model with one f32 input.
  std::vector<float> Infer(const std::string& model, const std::vector<float>& x);
  v1::CompileJob WaitForJob(const std::string& id);

  std::unique_ptr<v1::ModelService::Stub> models;
  std::unique_ptr<v1::CompileService::Stub> compile;
  std::unique_ptr<v1::CacheService::Stub> cache_stub;
  std::unique_ptr<inference::GRPCInferenceService::Stub> inference_stub;
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<TestControl> control = std::make_shared<TestControl>();
  ServerOptions options;
  std::unique_ptr<Server> server;

 private:
  void Start();
  Disk* const disk_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_TESTING_H_
