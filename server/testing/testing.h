// What the server's tests share: a backend that answers with the reference evaluator, small graphs,
// and a server on a free port with clients.
//
//   TestServer test;                                     // listens on a free port
//   test.Upload("m", ScaleGraph("w", {1, 2, 3}));
//   test.Infer("m", {1, 1, 1});                          // {1, 2, 3}
#ifndef ATHANOR_SERVER_TESTING_TESTING_H_
#define ATHANOR_SERVER_TESTING_TESTING_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
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
#include "server/plans/compile_backend.h"
#include "server/server.h"

namespace athanor {

// What a search that needs no measuring finds: `plans` plans, one a step, ids "found-1", "found-2",
// ... over all searches, kind "search". What comes after them:
struct TestSearch {
  int first = 0;  // steps before the first plan
  int plans = 0;
  v1::CompileJob::StopReason stop = v1::CompileJob::STOP_EXHAUSTED;
  absl::Status error;     // instead of `stop`, unless OK
  bool endless = false;   // instead: steps that find nothing, until its time is up
  bool deaf = false;      // to Finish and Until
  int crowded = 0;        // first comparisons or costs that find no gaps to be measured in
  double compared = 0.5;  // time of its best plan by that of any other
  std::vector<absl::StatusOr<std::string>> pictures = {};  // of regions, after the first step
};

// What a test does to the compiling, searching and running that goes on behind its back.
// Thread-safe.
class TestControl {
 public:
  static constexpr size_t kMostSearches = 2;  // that the backend holds

  // For the searches that begin from now on; without one the backend has none.
  void Search(TestSearch search);
  // Of the search that began last.
  PlanSearchOptions search_options();
  void SetSearchOptions(PlanSearchOptions options);
  // Steps wait before they begin, until interrupted or let go.
  void HoldSearches();
  void LetSearch(int steps);
  void ReleaseSearches();
  // Until a step waits and none that was let go is under way.
  void AwaitSearch();
  // "lower p-1", "search from p-1", "step p-1", "taken found-1", "refused found-1": what the
  // backend was asked, by plan; a step by the plan its search began with.
  std::vector<std::string> events();

  // Plans and kernels are kept in the file from here on, for servers that are started then. The
  // same machine again may be another.
  void RememberIn(const std::string& path, const std::string& cpu = "test cpu");
  Cache* cache() { return cache_.get(); }
  const internal::TargetReply& machine() { return machine_; }
  // The compiled kernel of `plan`: "compile p-1" where it is kept.
  void Keep(const v1::Plan& plan, const KernelObject& object);
  // The machine is known only once a compiler was asked.
  void ForgetMachine() { machine_known_ = false; }
  bool machine_known() const { return machine_known_; }
  void AskMachine() { machine_known_ = true; }

  // Compiling stops before its kernel until opened again.
  void HoldCompiles() { Set(&hold_compiles_, true); }
  void ReleaseCompiles() { Set(&hold_compiles_, false); }
  void HoldRuns() { Set(&hold_runs_, true); }
  void ReleaseRuns() { Set(&hold_runs_, false); }
  // DATA_LOSS: kernels are wrong, but for those of plans that are made plain.
  void FailCompiles(absl::Status error);
  // What plans are found to be that are verified again.
  void SetVerdict(absl::Status verdict);
  absl::Status verdict();
  // `interrupted` is a backend's, and used by nobody else.
  void SetInterrupted(bool* interrupted, bool value) { Set(interrupted, value); }

  // CANCELLED if the backend is interrupted.
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
  std::unique_ptr<Cache> cache_;  // while no server runs it may change
  internal::TargetReply machine_;
};

// Keeps plans where `control` remembers them, else nowhere.
std::shared_ptr<CompileBackends> EvaluatorFactory(std::shared_ptr<TestControl> control);

// A graph with the bytes of its parameters.
struct TestModel {
  v1::Graph graph;
  std::map<std::string, std::string> tensors;  // by hash
};
// `parameters`: bytes, in the order of graph.ParameterIds().
TestModel ModelOf(const Graph& graph, const std::vector<std::string>& parameters);
// hidden = x * w, doubled = hidden + hidden, clamped = relu(doubled); output y = clamped, f32 [n]
TestModel ChainModel(const std::vector<float>& w);
// y = x * w, f32 [n]
TestModel ScaleModel(const std::vector<float>& w);
// y = relu(x) of f32 [b, 4], b in [1, 64]
TestModel ReluModel();
// y = table[ids] of i32 ids [b], b in [1, 8]; table f32 [rows]
TestModel GatherModel(const std::vector<float>& table);

// The messages of an upload, chunks of at most `chunk` bytes; tests change them.
std::vector<v1::UploadModelRequest> UploadMessages(const std::string& name, const TestModel& model,
                                                   size_t chunk = 1 << 20);
// Those of one that sends no tensor, but proofs made of a nonce of the server's.
std::vector<v1::UploadModelRequest> ProvedMessages(const std::string& name, const TestModel& model,
                                                   const std::string& nonce);
inference::ModelInferRequest FloatRequest(const std::string& model, const std::vector<float>& x);

std::string FreshDirectory();

class TestServer {
 public:
  // With a cache only where `options` name its file.
  explicit TestServer(ServerOptions options = {}, Disk* disk = nullptr);
  ~TestServer();

  // As if the process had died and come back.
  void Restart();

  grpc::Status Send(const std::vector<v1::UploadModelRequest>& messages,
                    v1::UploadModelResponse* reply = nullptr);
  // Uploads, and waits until the version serves.
  v1::UploadModelResponse Upload(const std::string& name, const TestModel& model);
  v1::Model Get(const std::string& name, const std::string& version = "");
  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* reply = nullptr);
  // The only output of a model of one f32 input.
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
