// Tests the calls of ModelService, through gRPC.
#include <grpcpp/impl/codegen/client_unary_call.h>

#include <filesystem>
#include <thread>

#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

grpc::Status Delete(TestServer& test, const std::string& name, const std::string& version = "",
                    v1::DeleteModelResponse* reply = nullptr) {
  grpc::ClientContext context;
  v1::DeleteModelRequest request;
  request.set_name(name);
  request.set_version(version);
  v1::DeleteModelResponse ignored;
  return test.models->DeleteModel(&context, request, reply == nullptr ? &ignored : reply);
}

grpc::Status Rollback(TestServer& test, const std::string& name, const std::string& version,
                      v1::Model* model) {
  grpc::ClientContext context;
  v1::RollbackRequest request;
  request.set_name(name);
  request.set_version(version);
  return test.models->Rollback(&context, request, model);
}

grpc::Status Pin(TestServer& test, const std::string& plan, v1::Model* model) {
  grpc::ClientContext context;
  v1::PinPlanRequest request;
  request.set_name("m");
  request.set_plan_id(plan);
  return test.models->PinPlan(&context, request, model);
}

std::vector<v1::Model> List(TestServer& test, const std::string& name = "") {
  grpc::ClientContext context;
  v1::ListModelsRequest request;
  request.set_name(name);
  v1::ListModelsResponse reply;
  EXPECT_TRUE(test.models->ListModels(&context, request, &reply).ok());
  return {reply.models().begin(), reply.models().end()};
}

TEST(ModelServiceTest, DevicesAreListedAsTheyAre) {
  TestServer test;
  v1::Device device;
  device.set_name("cpu");
  device.set_compiler("clang 19.1.7");
  test.control->SetDevice(device);
  const auto list = [&] {
    grpc::ClientContext context;
    v1::ListDevicesResponse reply;
    EXPECT_TRUE(test.models->ListDevices(&context, {}, &reply).ok());
    EXPECT_EQ(reply.devices_size(), 1);
    return reply.devices(0);
  };
  EXPECT_EQ(list().name(), "cpu");
  EXPECT_EQ(list().compiler(), "clang 19.1.7");
  EXPECT_EQ(list().memory_limit(), test.server->core().ledger().limit());
  EXPECT_EQ(list().lost(), "");
  test.control->Lose("an ECC error");
  EXPECT_EQ(list().lost(), "an ECC error");
}

TEST(ModelServiceTest, AVersionKeepsTheDeviceItNames) {
  TestServer test;
  test.control->devices = {"cuda:0", "cpu"};
  test.Restart();
  const auto upload = [&](const std::string& name, const std::string& device) {
    auto messages = UploadMessages(name, ScaleModel({1, 2}));
    messages[0].mutable_header()->set_device(device);
    v1::UploadModelResponse reply;
    EXPECT_TRUE(test.Send(messages, &reply).ok());
    return reply.model().device();
  };
  EXPECT_EQ(upload("any", ""), "cuda:0");
  EXPECT_EQ(upload("host", "cpu"), "cpu");
  EXPECT_EQ(upload("gpu", "cuda:0"), "cuda:0");
  test.Restart();
  EXPECT_EQ(test.Get("any").device(), "cuda:0");
  EXPECT_EQ(test.Get("host").device(), "cpu");
  test.control->devices = {"cpu"};
  test.Restart();
  EXPECT_EQ(test.Get("any").device(), "cpu") << "the server's first";
  EXPECT_EQ(test.Get("host").device(), "cpu");
  EXPECT_EQ(test.Get("gpu").device(), "cuda:0");
}

TEST(ModelServiceTest, MissingTensorsAnswersInOrderEachOnce) {
  TestServer test;
  const TestModel model = ScaleModel({1, 2});
  const auto& [held, bytes] = *model.tensors.begin();
  test.Upload("m", model);
  const std::string a(32, 'a'), b(32, 'b');
  grpc::ClientContext context;
  v1::MissingTensorsRequest request;
  for (const std::string& hash : {b, held, a, b}) request.add_hashes(hash);
  v1::MissingTensorsResponse reply;
  ASSERT_TRUE(test.models->MissingTensors(&context, request, &reply).ok());
  // Without proofs, all tensors are missing.
  EXPECT_THAT(reply.hashes(), ElementsAre(b, held, a));
  request.set_nonce(reply.nonce());
  for (const std::string& hash : {held, a}) {
    v1::TensorProof* proof = request.add_proofs();
    proof->set_hash(hash);
    proof->set_proof(PossessionProof(request.nonce(), hash, SealOf(bytes)));
  }
  grpc::ClientContext second;
  ASSERT_TRUE(test.models->MissingTensors(&second, request, &reply).ok());
  EXPECT_THAT(reply.hashes(), ElementsAre(b, a));
  grpc::ClientContext third;
  request.add_hashes("short");
  const grpc::Status status = test.models->MissingTensors(&third, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("hashes[4]: 5 bytes"));
}

TEST(ModelServiceTest, WeightsTravelOnce) {
  TestServer test;
  const TestModel model = ScaleModel({1, 2});
  test.Upload("m", model);
  const std::string nonce =
      test.server->core().registry().challenges().New(Challenges::Clock::now());
  v1::UploadModelResponse reply;
  ASSERT_TRUE(test.Send(ProvedMessages("n", model, nonce), &reply).ok());
  test.WaitForJob(reply.compile_job_id());
  EXPECT_THAT(test.Infer("n", {3, 3}), ElementsAre(3, 6));
  EXPECT_EQ(test.server->core().ledger().used(HeldKind::kParameters), 8);
  // Deleting one model leaves the other its weights.
  EXPECT_TRUE(Delete(test, "m").ok());
  EXPECT_THAT(test.Infer("n", {3, 3}), ElementsAre(3, 6));
  test.Restart();
  EXPECT_THAT(test.Infer("n", {3, 3}), ElementsAre(3, 6));
  EXPECT_TRUE(Delete(test, "n").ok());
  EXPECT_EQ(test.server->core().ledger().used(HeldKind::kParameters), 0);
}

TEST(ModelServiceTest, DeletingGivesTheWeightsBack) {
  TestServer test;
  const TestModel model = ScaleModel({1, 2, 3});
  test.Upload("m", model);
  EXPECT_EQ(test.Get("m").memory().parameters(), 12);
  EXPECT_EQ(test.server->core().ledger().used(HeldKind::kParameters), 12);
  const std::string file =
      test.server->core().registry().tensors().store().PathOf(model.tensors.begin()->first);
  EXPECT_TRUE(std::filesystem::exists(file));
  ASSERT_TRUE(Delete(test, "m").ok());
  EXPECT_EQ(test.server->core().ledger().used(), 0);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(ModelServiceTest, GetModelTellsEverything) {
  TestServer test;
  const v1::UploadModelResponse uploaded = test.Upload("m", ReluModel());
  const v1::Model model = test.Get("m");
  EXPECT_EQ(model.state(), v1::Model::READY);
  EXPECT_TRUE(model.serving());
  EXPECT_EQ(model.version(), "1");
  EXPECT_THAT(model.inputs(0).shape(), ElementsAre("b", "4"));
  EXPECT_EQ(model.outputs(0).dtype(), "f32");
  EXPECT_EQ(model.dims(0).max(), 64);
  EXPECT_EQ(model.graph_hash().size(), 64u);
  EXPECT_EQ(model.compile_job_id(), uploaded.compile_job_id());
  EXPECT_EQ(model.plans(0).plan_id(), model.plan_id());
  EXPECT_GT(model.created().seconds(), 1'700'000'000);
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name("nobody");
  v1::Model reply;
  const grpc::Status status = test.models->GetModel(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("\"nobody\""));
}

TEST(ModelServiceTest, AVersionHasOneSpelling) {
  TestServer test;
  test.Upload("m", ScaleModel({2}));
  for (const char* version : {"0", "-1", "01", "+1", " 1", "1 ", "1.0", "x"}) {
    const grpc::Status status = Delete(test, "m", version);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << version;
    EXPECT_THAT(status.error_message(), HasSubstr("versions are \"1\", \"2\"")) << version;
  }
  EXPECT_TRUE(Delete(test, "m", "1").ok());
}

TEST(ModelServiceTest, ANewVersionServesOnceItsBaselineIsReady) {
  TestServer test;
  test.Upload("m", ScaleModel({1}));
  test.control->HoldCompiles();
  v1::UploadModelResponse second;
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({2})), &second).ok());
  EXPECT_EQ(second.version(), "2");
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(10));
  test.control->ReleaseCompiles();
  test.WaitForJob(second.compile_job_id());
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(20));
  EXPECT_FALSE(test.Get("m", "1").serving());
  const std::vector<v1::Model> listed = List(test, "m");
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].version(), "2");
}

TEST(ModelServiceTest, DeletedWhileRequestsRun) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  test.control->HoldRuns();
  std::vector<float> answer;
  std::thread running([&] { answer = test.Infer("m", {2}); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  v1::DeleteModelResponse reply;
  ASSERT_TRUE(Delete(test, "m", "", &reply).ok());
  EXPECT_THAT(reply.versions(), ElementsAre("1"));
  const grpc::Status later = test.Infer(FloatRequest("m", {2}));
  EXPECT_EQ(later.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(later.error_message(), HasSubstr("\"m\""));
  test.control->ReleaseRuns();
  running.join();
  EXPECT_THAT(answer, ElementsAre(6));
}

TEST(ModelServiceTest, DeletedWhileARequestWaitsForThePlan) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  grpc::Status waited;
  std::thread waiting([&] { waited = test.Infer(FloatRequest("m", {2})); });
  while (test.server->core().active_calls() == 0) std::this_thread::yield();
  ASSERT_TRUE(Delete(test, "m").ok());
  waiting.join();
  EXPECT_EQ(waited.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(List(test).empty());
}

TEST(ModelServiceTest, DeletingTheServingVersionLetsTheOneBeforeServe) {
  TestServer test;
  test.Upload("m", ScaleModel({1}));
  test.Upload("m", ScaleModel({2}));
  ASSERT_TRUE(Delete(test, "m", "2").ok());
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(10));
  EXPECT_TRUE(test.Get("m").serving());
  // Version numbers are not reused.
  EXPECT_EQ(test.Upload("m", ScaleModel({3})).version(), "3");
  EXPECT_EQ(Delete(test, "m", "2").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(ModelServiceTest, NumbersOfADeletedNameAreNotUsedAgain) {
  TestServer test;
  test.Upload("m", ScaleModel({1}));
  test.Upload("m", ScaleModel({2}));
  ASSERT_TRUE(Delete(test, "m").ok());
  EXPECT_EQ(test.Upload("m", ScaleModel({3})).version(), "3");
  ASSERT_TRUE(Delete(test, "m").ok());
  test.Restart();
  EXPECT_TRUE(List(test).empty());
  EXPECT_EQ(test.Upload("m", ScaleModel({4})).version(), "4");
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(40));
}

TEST(ModelServiceTest, RollbackServesAnEarlierVersionAcrossARestart) {
  TestServer test;
  test.Upload("m", ScaleModel({1}));
  v1::Model model;
  grpc::Status status = Rollback(test, "m", "", &model);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("no earlier version"));
  test.Upload("m", ScaleModel({2}));
  ASSERT_TRUE(Rollback(test, "m", "", &model).ok());
  EXPECT_EQ(model.version(), "1");
  EXPECT_TRUE(model.serving());
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(10));
  test.Restart();
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(10));
  for (const v1::Model& listed : List(test)) test.WaitForJob(listed.compile_job_id());
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(10));
  ASSERT_TRUE(Rollback(test, "m", "2", &model).ok());
  EXPECT_THAT(test.Infer("m", {10}), ElementsAre(20));
  EXPECT_EQ(Rollback(test, "m", "9", &model).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Rollback(test, "x", "", &model).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(ModelServiceTest, PinPlanTakesThePlanThatExists) {
  TestServer test;
  test.Upload("m", ScaleModel({1}));
  const std::string plan = test.Get("m").plan_id();
  v1::Model model;
  ASSERT_TRUE(Pin(test, plan, &model).ok());
  EXPECT_TRUE(model.pinned());
  test.Restart();
  test.WaitForJob(test.Get("m").compile_job_id());
  EXPECT_TRUE(test.Get("m").pinned());
  ASSERT_TRUE(Pin(test, "", &model).ok());
  EXPECT_FALSE(model.pinned());
  const grpc::Status status = Pin(test, "p-0000", &model);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("has no plan \"p-0000\"; it has \"" + plan));
}

TEST(ModelServiceTest, PinPlanTakesAPlanThatServedBefore) {
  TestServer test;
  test.control->Search({.plans = 2});
  test.Upload("m", ScaleModel({3}));
  v1::Model model = test.Get("m");
  ASSERT_EQ(model.plans_size(), 3);
  EXPECT_EQ(model.plan_id(), "found-2");
  ASSERT_TRUE(Pin(test, model.plans(1).plan_id(), &model).ok());
  EXPECT_EQ(model.plan_id(), "found-1");
  EXPECT_TRUE(model.pinned());
  EXPECT_THAT(test.Infer("m", {2}), ElementsAre(6));
  ASSERT_TRUE(Pin(test, "", &model).ok());
  EXPECT_EQ(model.plan_id(), "found-2");
  EXPECT_FALSE(model.pinned());
}

TEST(ModelServiceTest, GetPlanShowsEachPlanThereIs) {
  TestServer test;
  auto get = [&](const std::string& name, const std::string& plan, v1::PlanDetails* details) {
    grpc::ClientContext context;
    v1::GetPlanRequest request;
    request.set_name(name);
    request.set_plan_id(plan);
    return test.models->GetPlan(&context, request, details);
  };
  v1::PlanDetails details;
  EXPECT_EQ(get("absent", "", &details).error_code(), grpc::StatusCode::NOT_FOUND);
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({2}))).ok());
  EXPECT_EQ(get("m", "", &details).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  test.control->ReleaseCompiles();
  EXPECT_EQ(test.WaitForJob(test.Get("m").compile_job_id()).phase(), v1::CompileJob::DONE);
  const std::string baseline = test.Get("m").plan_id();
  ASSERT_TRUE(get("m", "", &details).ok());
  EXPECT_EQ(details.info().plan_id(), baseline);
  EXPECT_EQ(details.plan().kernels(0).name(), "reference");
  ASSERT_EQ(details.costs_size(), 1);
  EXPECT_EQ(details.costs(0).steps(0).seconds(), 0) << "nothing was measured";
  EXPECT_FALSE(details.has_limits());
  test.control->limits.emplace().set_read_bytes_per_second(1e9);
  test.control->limits->set_f32_flops_per_second(1e12);
  ASSERT_TRUE(get("m", "", &details).ok());
  EXPECT_EQ(details.device(), "cpu");
  EXPECT_EQ(details.limits().read_bytes_per_second(), 1e9);
  EXPECT_EQ(details.resources_size(), 0) << "no object says what its kernel takes";
  test.control->Search({.plans = 1});
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("m");
  v1::CompileJob job;
  ASSERT_TRUE(test.compile->StartCompile(&context, request, &job).ok());
  test.WaitForJob(job.id());
  ASSERT_TRUE(get("m", "", &details).ok());
  EXPECT_EQ(details.info().plan_id(), "found-1");
  EXPECT_EQ(details.costs(0).size(), "n=1");
  EXPECT_EQ(details.costs(0).steps(0).seconds(), 0.25);
  ASSERT_TRUE(get("m", baseline, &details).ok());
  EXPECT_EQ(details.info().kind(), "baseline");
  EXPECT_THAT(get("m", "p-none", &details).error_message(), HasSubstr("has no plan \"p-none\""));
}

TEST(ModelServiceTest, GetEGraphShowsTheRegionsOfTheLatestSearch) {
  TestServer test;
  auto get = [&](const std::string& name, int region, v1::EGraph* egraph) {
    grpc::ClientContext context;
    v1::GetEGraphRequest request;
    request.set_name(name);
    request.set_region(region);
    return test.models->GetEGraph(&context, request, egraph);
  };
  v1::EGraph egraph;
  EXPECT_EQ(get("absent", 0, &egraph).error_code(), grpc::StatusCode::NOT_FOUND);
  test.Upload("m", ScaleModel({2}));
  grpc::Status status = get("m", 0, &egraph);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("no search has used the rules"));
  const auto search = [&] {
    grpc::ClientContext context;
    v1::StartCompileRequest request;
    request.set_model("m");
    v1::CompileJob job;
    ASSERT_TRUE(test.compile->StartCompile(&context, request, &job).ok());
    test.WaitForJob(job.id());
  };
  test.control->Search(
      {.pictures = {std::string("digraph a {}"),
                    absl::FailedPreconditionError("the e-graph of region 1 has 301 e-nodes")}});
  search();
  ASSERT_TRUE(get("m", 0, &egraph).ok());
  EXPECT_EQ(egraph.dot(), "digraph a {}");
  status = get("m", 1, &egraph);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("version 1: the e-graph of region 1 has 301"));
  for (int region : {2, -1}) {
    status = get("m", region, &egraph);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_THAT(status.error_message(), HasSubstr("the regions of its search are 0 to 1"));
  }
  // A search without regions keeps them; the next one with regions replaces them.
  test.control->Search({});
  search();
  EXPECT_TRUE(get("m", 0, &egraph).ok());
  test.control->Search({.pictures = {std::string("digraph b {}")}});
  search();
  ASSERT_TRUE(get("m", 0, &egraph).ok());
  EXPECT_EQ(egraph.dot(), "digraph b {}");
  EXPECT_EQ(get("m", 1, &egraph).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(ModelServiceTest, ModelsOutliveTheServer) {
  TestServer test;
  test.Upload("a", ScaleModel({2}));
  test.Upload("b", ReluModel());
  const std::vector<v1::Model> before = List(test);
  test.Restart();
  EXPECT_THAT(test.Infer("a", {4}), ElementsAre(8));
  const std::vector<v1::Model> after = List(test);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].name(), before[i].name());
    EXPECT_EQ(after[i].graph_hash(), before[i].graph_hash());
    EXPECT_EQ(after[i].created().nanos(), before[i].created().nanos());
  }
}

// The next start removes or puts aside what a process left that died during an upload.
TEST(ModelServiceTest, LeftoversAreRemovedOrPutAsideAtStart) {
  TestServer test;
  test.Upload("a", ScaleModel({2}));
  const std::string root = test.options.state_dir;
  test.server.reset();
  namespace fs = std::filesystem;
  fs::create_directories(root + "/tensors/ff");
  for (const char* path : {"/tmp/17", "/tensors/ff/0123"}) {
    fs::copy_file(root + "/registry.db", root + path);
  }
  test.Restart();
  EXPECT_FALSE(fs::exists(root + "/tmp/17"));
  EXPECT_FALSE(fs::exists(root + "/tensors/ff/0123"));
  EXPECT_THAT(test.Infer("a", {4}), ElementsAre(8));
}

TEST(ModelServiceTest, ALostTensorFailsItsModelOnly) {
  TestServer test;
  const TestModel broken = ScaleModel({5, 6});
  test.Upload("broken", broken);
  test.Upload("fine", ScaleModel({2}));
  const std::string file =
      test.server->core().registry().tensors().store().PathOf(broken.tensors.begin()->first);
  test.server.reset();
  std::filesystem::resize_file(file, 3);
  test.Restart();
  test.WaitForJob(test.Get("broken").compile_job_id());
  EXPECT_EQ(test.Get("broken").state(), v1::Model::FAILED);
  const grpc::Status status = test.Infer(FloatRequest("broken", {1, 1}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr(file));
  EXPECT_THAT(test.Infer("fine", {4}), ElementsAre(8));
}

TEST(ModelServiceTest, InvalidUtf8InANameIsRefusedByField) {
  TestServer test;
  grpc::internal::RpcMethod method("/athanor.v1.ModelService/GetModel",
                                   grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::Slice slice(std::string("\x0a\x02\xff\xfe", 4));
  grpc::ByteBuffer request(&slice, 1), reply;
  grpc::ClientContext context;
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      test.channel.get(), method, &context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("name"));
}

}  // namespace
}  // namespace athanor
