#include "server/keeper/plan_keeper.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

// Makes a version with output = relu(input), f32 [dim, 4].
std::shared_ptr<ModelVersion> Version(const std::string& input = "x", const std::string& dim = "b",
                                      int64_t max = 64, int64_t version = 1,
                                      const std::string& device = "") {
  ImportedGraph imported;
  imported.graph.dims = {{dim, 1, max}};
  GraphBuilder b(&imported.graph);
  NodeId x = b.Input(input, {DType::kF32, {Expr::Symbol(dim), 4}}).value();
  b.Output("y", b.Add(Op::kRelu, {x}).value());
  VersionRow row;
  row.name = "m";
  row.version = version;
  row.device = device;
  return ModelVersion::Create(std::move(row), std::move(imported)).value();
}

internal::TargetReply Machine(const std::string& cpu = "zen4", int threads = 2) {
  internal::TargetReply machine;
  machine.mutable_target()->set_cpu(cpu);
  machine.mutable_target()->set_threads(threads);
  machine.set_compiler_version("clang 19");
  machine.set_rule_set("rules");
  return machine;
}

CompiledPlan Plan(const std::string& id, const std::string& budget = "") {
  CompiledPlan made;
  made.plan.set_plan_id(id);
  made.plan.set_kind(budget.empty() ? "baseline" : "search");
  for (const char* kernel : {" a", " b"}) {
    made.plan.add_kernels()->set_source(id + kernel);
    made.objects.push_back({"object of " + id + kernel});
  }
  made.how.set_budget(budget);
  return made;
}

KeptPlan Kept(const CompiledPlan& plan, std::vector<v1::PlanCost> costs = {}) {
  return {.plan = std::make_shared<CompiledPlan>(plan),
          .costs = std::make_shared<std::vector<v1::PlanCost>>(std::move(costs))};
}

std::vector<std::string> Objects(const KeptPlan& kept) {
  std::vector<std::string> objects;
  for (const KernelObject& object : kept.plan->objects) objects.push_back(object.object);
  return objects;
}

class PlanKeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/keeper-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    cache_ = Cache::Open({.path = folder_ + "/cache.db"}, [](absl::string_view) {});
    keeper_ = std::make_unique<PlanKeeper>(cache_.get(), folder_, &disk_);
    keeper_->SetMachine(Machine());
  }

  PlanKey Key(const v1::SearchOptions& how = {}) {
    return keeper_->KeyOf(*version_, version_->graph(), how);
  }

  void PutKernels(const CompiledPlan& made) {
    for (int i = 0; i < made.plan.kernels_size(); ++i) {
      cache_->kernels().Put(KernelKeyOf(made.plan.kernels(i), Machine()), made.objects[i].object);
    }
  }

  // Returns the path of the version's pin file.
  std::string PinPath(const std::string& plan_id) const {
    for (const auto& entry : fs::directory_iterator(folder_ + "/plans")) {
      const std::string name = entry.path().filename();
      if (absl::EndsWith(name, "-1-" + plan_id)) return entry.path();
    }
    return "no pin of " + plan_id;
  }

  static SearchPolicy Policy(bool search = true) {
    SearchPolicy policy;
    policy.budget.search = search;
    return policy;
  }

  Disk disk_;
  std::string folder_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<PlanKeeper> keeper_;
  std::shared_ptr<ModelVersion> version_ = Version();
};

TEST_F(PlanKeeperTest, EachDeviceHasItsPlans) {
  const auto on_gpu = Version("x", "b", 64, 2, "cuda:0");
  EXPECT_TRUE(keeper_->ready(*version_));
  EXPECT_FALSE(keeper_->ready(*on_gpu));
  internal::TargetReply machine = Machine("sm_80", 1024);
  machine.mutable_target()->set_device("cuda");
  machine.set_device("cuda:0");
  keeper_->SetMachine(machine);
  ASSERT_TRUE(keeper_->ready(*on_gpu));
  const PlanKey host = keeper_->KeyOf(*version_, version_->graph(), {});
  const PlanKey gpu = keeper_->KeyOf(*on_gpu, on_gpu->graph(), {});
  EXPECT_NE(GateHash(host.Fields()), GateHash(gpu.Fields()));
  const CompiledPlan made = Plan("p-gpu");
  for (int i = 0; i < 2; ++i) {
    cache_->kernels().Put(KernelKeyOf(made.plan.kernels(i), machine), made.objects[i].object);
  }
  keeper_->PutBaseline(gpu, made);
  const auto kept = keeper_->Find(*on_gpu, gpu, "p-gpu");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(Objects(*kept), Objects(Kept(made))) << "its kernels are looked up under its target";
  EXPECT_FALSE(keeper_->Find(*version_, host, "p-gpu").ok());
}

TEST_F(PlanKeeperTest, AKeySaysWhatDecidesAboutAPlan) {
  const auto gates = [&](const ModelVersion& version) {
    return GateHash(keeper_->KeyOf(version, version.graph(), {}).Fields());
  };
  const std::string same = gates(*version_);
  EXPECT_EQ(gates(*Version()), same);
  EXPECT_NE(gates(*Version("z")), same) << "plans name inputs";
  EXPECT_NE(gates(*Version("x", "n")), same) << "plans name dims";
  EXPECT_NE(gates(*Version("x", "b", 32)), same);
  EXPECT_EQ(Key().dim_box, "d0=1..64");
  keeper_->SetMachine(Machine("zen5"));
  EXPECT_NE(gates(*version_), same);
  keeper_->SetMachine(Machine("zen4", 8));
  EXPECT_EQ(gates(*version_), same) << "another number of threads asks for a search only";
}

TEST_F(PlanKeeperTest, APlanComesBackWithTheKernelsThereAre) {
  CompiledPlan made = Plan("p-1");
  keeper_->PutBaseline(Key(), made);
  cache_->kernels().Put(KernelKeyOf(made.plan.kernels(1), Machine()), made.objects[1].object);
  auto kept = keeper_->Find(*version_, Key(), "p-1");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->plan->plan.SerializeAsString(), made.plan.SerializeAsString());
  EXPECT_THAT(kept->plan->missing, ElementsAre(0));
  PutKernels(made);
  v1::PlanCost cost;
  cost.set_size("b=4");
  keeper_->PutCosts(Key(), "p-1", {cost});
  keeper_->PutBaseline(Key(), made);  // written again: the stored costs stay
  kept = keeper_->Find(*version_, Key(), "p-1");
  EXPECT_THAT(kept->plan->missing, IsEmpty());
  EXPECT_THAT(Objects(*kept), ElementsAre("object of p-1 a", "object of p-1 b"));
  ASSERT_NE(kept->costs, nullptr);
  ASSERT_EQ(kept->costs->size(), 1u);
  EXPECT_EQ(kept->costs->front().size(), "b=4");
}

// A library's proposals are of one version of it, on one chip.
TEST_F(PlanKeeperTest, ACallOutlivesItsLibraryAndItsObjectDoesNot) {
  const auto on_gpu = Version("x", "b", 64, 2, "cuda:0");
  internal::TargetReply machine = Machine("sm_90a");
  machine.mutable_target()->set_device("cuda");
  machine.mutable_target()->set_blas("cuBLASLt 13.1.0");
  machine.set_device("cuda:0");
  machine.set_driver("NVIDIA H200, CUDA 13.0");
  keeper_->SetMachine(machine);
  const auto key = [&](const v1::SearchOptions& how = {}) {
    return keeper_->KeyOf(*on_gpu, on_gpu->graph(), how);
  };
  const auto put = [&](const CompiledPlan& made) {
    for (int i = 0; i < 2; ++i) {
      cache_->kernels().Put(KernelKeyOf(made.plan.kernels(i), machine), made.objects[i].object);
    }
  };
  const CompiledPlan baseline = Plan("p-0"), code = Plan("p-1", "3s");
  CompiledPlan call = Plan("p-2", "3s");
  call.plan.mutable_kernels(1)->set_library_call(true);
  for (const CompiledPlan& made : {baseline, code, call}) put(made);
  keeper_->PutBaseline(key(), baseline);
  keeper_->PutFound(key(code.how), code, "p-0", 0.8);
  keeper_->PutFound(key(call.how), call, "p-0", 0.5);
  const auto best = [&] { return keeper_->FindBest(key(), Policy()).value().front(); };
  EXPECT_EQ(best().plan->id(), "p-2");
  EXPECT_THAT(best().plan->missing, IsEmpty());
  EXPECT_EQ(keeper_->BestId(key(), Policy()), "p-2");
  // An update of the library, another chip of the architecture, another driver.
  const internal::TargetReply before = machine;
  for (int change = 0; change < 3; ++change) {
    machine = before;
    if (change == 0) machine.mutable_target()->set_blas("cuBLASLt 13.2.0");
    if (change == 1) machine.set_driver("NVIDIA H100 PCIe, CUDA 13.0");
    if (change == 2) machine.set_driver("NVIDIA H200, CUDA 13.1");
    keeper_->SetMachine(machine);
    EXPECT_EQ(best().plan->id(), "p-2") << change;
    EXPECT_THAT(best().plan->missing, ElementsAre(1)) << change;
  }
  // The object is made anew, and verified.
  machine = before;
  machine.mutable_target()->set_blas("cuBLASLt 13.2.0");
  keeper_->SetMachine(machine);
  put(call);
  EXPECT_THAT(best().plan->missing, ElementsAre(1));
  ASSERT_TRUE(keeper_->PutVerified(*on_gpu, key(call.how), best(), /*pinned=*/false).ok());
  EXPECT_THAT(best().plan->missing, IsEmpty());
  // Without a library the best that calls none serves, as it is.
  machine.mutable_target()->clear_blas();
  keeper_->SetMachine(machine);
  EXPECT_EQ(best().plan->id(), "p-1");
  EXPECT_THAT(best().plan->missing, IsEmpty());
  EXPECT_EQ(keeper_->BestId(key(), Policy()), "p-1");
  EXPECT_EQ(keeper_->FindAll(key(), Policy(), 3).size(), 2u);
}

TEST_F(PlanKeeperTest, AnObjectThatWasCompiledAnewIsNotVerified) {
  const CompiledPlan made = Plan("p-1", "3s");
  keeper_->PutFound(Key(made.how), made, "p-0", 0.5);
  PutKernels(made);
  ASSERT_THAT(keeper_->Find(*version_, Key(), "p-1")->plan->missing, IsEmpty());
  internal::TargetReply newer = Machine();
  newer.set_compiler_version("clang 20");
  keeper_->SetMachine(newer);
  // Compilers store objects before these are checked.
  for (const v1::Kernel& kernel : made.plan.kernels()) {
    cache_->kernels().Put(KernelKeyOf(kernel, newer), "another object");
  }
  auto kept = keeper_->Find(*version_, Key(), "p-1");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->plan->missing, ElementsAre(0, 1));
  CompiledPlan whole = *kept->plan;
  for (KernelObject& object : whole.objects) object.object = "another object";
  ASSERT_EQ(keeper_->PutVerified(*version_, Key(), Kept(whole), /*pinned=*/true), absl::OkStatus());
  kept = keeper_->Find(*version_, Key(), "p-1");
  EXPECT_THAT(kept->plan->missing, IsEmpty());
  EXPECT_THAT(Objects(*kept), ElementsAre("another object", "another object"));
  // The pin's file records the new objects too.
  PlanKeeper without(nullptr, folder_, &disk_);
  without.SetMachine(newer);
  EXPECT_TRUE(
      without.Find(*version_, without.KeyOf(*version_, version_->graph(), made.how), "p-1").ok());
}

TEST_F(PlanKeeperTest, AMissSaysWhatDiffers) {
  keeper_->PutBaseline(Key(), Plan("p-1"));
  keeper_->SetMachine(Machine("zen5"));
  ASSERT_TRUE(cache_->Flush(std::chrono::seconds(60)).ok());
  const absl::Status missed = keeper_->Find(*version_, Key(), "p-1").status();
  EXPECT_EQ(missed.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missed.message()), HasSubstr("cpu \"zen4\" is not \"zen5\""));
}

TEST_F(PlanKeeperTest, TheBestIsWhatThePolicyAllows) {
  EXPECT_EQ(keeper_->FindBest(Key(), Policy()).status().code(), absl::StatusCode::kNotFound);
  keeper_->PutBaseline(Key(), Plan("p-1"));
  EXPECT_EQ(keeper_->FindBest(Key(), Policy())->front().plan->id(), "p-1");
  keeper_->PutFound(Key(), Plan("p-2", "3s"), "p-1", 0.5);
  keeper_->PutFound(Key(), Plan("p-3", "3s"), "p-1", 0.8);
  keeper_->PutFound(Key(), Plan("p-4", "3s"), "p-2", 0.9);  // 0.45 of the baseline's time
  const auto best = [&](const SearchPolicy& policy) {
    const auto found = keeper_->FindBest(Key(policy.ToProto()), policy);
    return found.ok() ? found->front().plan->id() +
                            (found->size() > 1 ? " over " + found->back().plan->id() : "")
                      : found.status().ToString();
  };
  EXPECT_EQ(best(Policy()), "p-4 over p-1");
  EXPECT_EQ(best(Policy(/*search=*/false)), "p-1");
  SearchPolicy careful = Policy();
  careful.disabled_rules = {"layout"};
  EXPECT_EQ(best(careful), "p-1") << "they were found with rules that are left out";
  CompiledPlan without = Plan("p-5", "3s");
  without.how.add_disabled_rules("layout");
  keeper_->PutFound(Key(without.how), without, "p-1", 0.95);
  EXPECT_EQ(best(careful), "p-5 over p-1");
  CompiledPlan rough = Plan("p-6", "3s");
  rough.how.set_approximate(true);
  keeper_->PutFound(Key(rough.how), rough, "p-1", 0.1);
  EXPECT_EQ(best(Policy()), "p-4 over p-1");
  SearchPolicy daring = Policy();
  daring.approximate = true;
  EXPECT_EQ(best(daring), "p-6 over p-1");
  CompiledPlan faster = Plan("p-7", "3s");
  keeper_->PutFound(Key(), faster, "p-1", 0.05);
  EXPECT_EQ(best(daring), "p-7 over p-1") << "being approximate is no merit";
}

TEST_F(PlanKeeperTest, ASearchThatEndedIsKnownUnderItsConditions) {
  SearchPolicy policy = Policy();
  policy.budget.candidates = 20;
  const auto ended = [&](const SearchPolicy& p) {
    return keeper_->SearchEnded(Key(p.ToProto()), p);
  };
  EXPECT_FALSE(ended(policy));
  keeper_->PutSearch(Key(policy.ToProto()), policy, {.stop = v1::CompileJob::STOP_BUDGET});
  EXPECT_TRUE(ended(policy));
  SearchPolicy more = policy;
  more.budget.candidates = 30;
  EXPECT_FALSE(ended(more));
  keeper_->SetMachine(Machine("zen4", 8));
  EXPECT_FALSE(ended(policy));
}

// Both are sm_90a: their kernels are the same, and not equally fast.
TEST_F(PlanKeeperTest, APlanOfAnotherChipServesAndIsSearchedAnew) {
  internal::TargetReply chip = Machine("sm_90a", 1024);
  chip.set_driver("NVIDIA H100 PCIe, CUDA 13.0");
  keeper_->SetMachine(chip);
  const SearchPolicy policy = Policy();
  const auto key = [&] { return Key(policy.ToProto()); };
  keeper_->PutBaseline(key(), Plan("p-1"));
  keeper_->PutFound(key(), Plan("p-2", "3s"), "p-1", 0.5);
  keeper_->PutSearch(key(), policy, {.stop = v1::CompileJob::STOP_BUDGET});
  EXPECT_TRUE(keeper_->SearchEnded(key(), policy));
  chip.set_driver("NVIDIA H200, CUDA 13.0");
  keeper_->SetMachine(chip);
  EXPECT_FALSE(keeper_->SearchEnded(key(), policy));
  EXPECT_EQ(keeper_->FindBest(key(), policy)->front().plan->id(), "p-2");
  keeper_->PutFound(key(), Plan("p-3", "3s"), "p-1", 0.9);
  EXPECT_EQ(keeper_->FindBest(key(), policy)->front().plan->id(), "p-3") << "measured on this chip";
  chip.set_driver("NVIDIA H100 PCIe, CUDA 13.0");
  keeper_->SetMachine(chip);
  EXPECT_EQ(keeper_->FindBest(key(), policy)->front().plan->id(), "p-2");
}

TEST_F(PlanKeeperTest, APinnedPlanOutlivesTheCache) {
  v1::PlanCost cost;
  cost.set_size("b=4");
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(Plan("p-1", "3s"), {cost})).ok());
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(Plan("p-2", "3s"))).ok());
  PlanKeeper alone(nullptr, folder_, &disk_);
  alone.SetMachine(Machine());
  auto kept = alone.Find(*version_, Key(), "p-1");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->plan->missing, ElementsAre(0, 1));
  EXPECT_EQ(kept->plan->plan.kernels(0).source(), "p-1 a");
  EXPECT_EQ(kept->plan->how.budget(), "3s");
  ASSERT_NE(kept->costs, nullptr);
  ASSERT_EQ(kept->costs->size(), 1u);
  // Another machine or another graph does not find it.
  alone.SetMachine(Machine("zen5"));
  EXPECT_FALSE(alone.Find(*version_, alone.KeyOf(*version_, version_->graph(), {}), "p-1").ok());
  alone.SetMachine(Machine());
  const auto other = Version("z");
  EXPECT_FALSE(alone.Find(*version_, alone.KeyOf(*other, other->graph(), {}), "p-1").ok());
  version_->plans().SetPinned(BucketGrid::kFullRange, "p-2");
  alone.TakePins({version_});
  EXPECT_FALSE(alone.Find(*version_, Key(), "p-1").ok());
  EXPECT_TRUE(alone.Find(*version_, Key(), "p-2").ok());
  alone.Unpin(*version_, "p-2");
  EXPECT_FALSE(alone.Find(*version_, Key(), "p-2").ok());
}

TEST_F(PlanKeeperTest, APinsFileUnderAnothersNameIsNoPlan) {
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(Plan("p-1", "3s"))).ok());
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(Plan("p-2", "3s"))).ok());
  std::string first, second;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    const std::string path = entry.path();
    if (path.find("p-1") != std::string::npos) first = path;
    if (path.find("p-2") != std::string::npos) second = path;
  }
  std::filesystem::copy_file(first, second, std::filesystem::copy_options::overwrite_existing);
  PlanKeeper alone(nullptr, folder_, &disk_);
  alone.SetMachine(Machine());
  EXPECT_TRUE(alone.Find(*version_, Key(), "p-1").ok());
  EXPECT_FALSE(alone.Find(*version_, Key(), "p-2").ok());
}

TEST_F(PlanKeeperTest, APinIsOneVersions) {
  // Two versions of the same graph: the second pins a plan that only it allows.
  const auto second = Version("x", "b", 64, 2);
  CompiledPlan exact = Plan("p-1", "3s"), rough = Plan("p-1", "3s");
  rough.how.set_approximate(true);
  ASSERT_TRUE(keeper_->Pin(*version_, Key(exact.how), Kept(exact)).ok());
  ASSERT_TRUE(keeper_->Pin(*second, Key(rough.how), Kept(rough)).ok());
  PlanKeeper alone(nullptr, folder_, &disk_);
  alone.SetMachine(Machine());
  EXPECT_TRUE(alone.Find(*version_, Key(exact.how), "p-1").ok());
  EXPECT_TRUE(alone.Find(*second, Key(rough.how), "p-1").ok());
  alone.Unpin(*version_, "p-1");
  EXPECT_FALSE(alone.Find(*version_, Key(exact.how), "p-1").ok());
  EXPECT_TRUE(alone.Find(*second, Key(rough.how), "p-1").ok());
}

TEST_F(PlanKeeperTest, FilesNamedByPlanIdsAloneAreTakenOver) {
  const auto second = Version("x", "b", 64, 2), third = Version("x", "b", 64, 3);
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(Plan("p-1", "3s"))).ok());
  fs::rename(PinPath("p-1"), folder_ + "/plans/p-1");
  version_->plans().SetPinned(BucketGrid::kFullRange, "p-1");
  second->plans().SetPinned(BucketGrid::kFullRange, "p-1");
  third->plans().SetPinned(BucketGrid::kFullRange, "p-2");  // its file was lost
  keeper_->TakePins({version_, second, third});
  EXPECT_FALSE(fs::exists(folder_ + "/plans/p-1"));
  EXPECT_TRUE(keeper_->Find(*version_, Key(), "p-1").ok());
  EXPECT_TRUE(keeper_->Find(*second, Key(), "p-1").ok());
  EXPECT_FALSE(keeper_->Find(*third, Key(), "p-2").ok());
  keeper_->TakePins({version_, second, third});
  EXPECT_TRUE(keeper_->Find(*version_, Key(), "p-1").ok()) << "the second start has nothing to do";
  second->plans().SetPinned(BucketGrid::kFullRange, "");
  keeper_->TakePins({version_, second, third});
  EXPECT_TRUE(keeper_->Find(*version_, Key(), "p-1").ok());
  EXPECT_FALSE(keeper_->Find(*second, Key(), "p-1").ok());
}

TEST_F(PlanKeeperTest, AWrongPlanIsNotGivenAgain) {
  const CompiledPlan base = Plan("p-1"), wrong = Plan("p-2", "3s");
  keeper_->PutBaseline(Key(), base);
  keeper_->PutFound(Key(), wrong, "p-1", 0.5);
  PutKernels(base);
  PutKernels(wrong);
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(wrong)).ok());
  ASSERT_EQ(keeper_->BestId(Key(), Policy()), "p-2");
  keeper_->Quarantine(*version_, Key(), "p-2", absl::DataLossError("y is off by 3"));
  const auto expect_gone = [&](PlanKeeper& keeper) {
    EXPECT_EQ(keeper.Find(*version_, Key(), "p-2").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(keeper.FindBest(Key(), Policy())->front().plan->id(), "p-1");
    EXPECT_EQ(keeper.BestId(Key(), Policy()), "p-1");
  };
  expect_gone(*keeper_);
  EXPECT_THAT(std::string(keeper_->Find(*version_, Key(), "p-2").status().message()),
              HasSubstr("y is off by 3"));
  // It is not found after a restart either, though all its kernels are present.
  PlanKeeper next(cache_.get(), folder_, &disk_);
  next.SetMachine(Machine());
  expect_gone(next);
  const v1::CacheVerification found = cache_->maintenance().Verify(false).value();
  EXPECT_EQ(found.bad_size(), 0);
  ASSERT_EQ(found.quarantined_size(), 1);
  EXPECT_EQ(found.quarantined(0).tier(), "plans");
  EXPECT_THAT(found.quarantined(0).about(), HasSubstr("p-2 of graph"));
  EXPECT_THAT(found.quarantined(0).why(), HasSubstr("y is off by 3"));
  // Once found and verified again it is used like any other plan.
  keeper_->PutFound(Key(), wrong, "p-1", 0.5);
  EXPECT_TRUE(keeper_->Find(*version_, Key(), "p-2").ok());
}

TEST_F(PlanKeeperTest, WithoutACacheAWrongPinIsNotGivenAgain) {
  PlanKeeper alone(nullptr, folder_, &disk_);
  alone.SetMachine(Machine());
  ASSERT_TRUE(alone.Pin(*version_, Key(), Kept(Plan("p-1", "3s"))).ok());
  alone.Quarantine(*version_, Key(), "p-1", absl::DataLossError("y is off by 3"));
  EXPECT_FALSE(alone.Find(*version_, Key(), "p-1").ok());
  PlanKeeper next(nullptr, folder_, &disk_);
  next.SetMachine(Machine());
  EXPECT_FALSE(next.Find(*version_, Key(), "p-1").ok());
}

TEST_F(PlanKeeperTest, WhichIsBestIsSeenWithoutReadingPlansOrKernels) {
  const CompiledPlan base = Plan("p-1"), found = Plan("p-2", "3s");
  keeper_->PutBaseline(Key(), base);
  EXPECT_EQ(keeper_->BestId(Key(), Policy()), "") << "its kernels are not there";
  PutKernels(base);
  EXPECT_EQ(keeper_->BestId(Key(), Policy()), "p-1");
  keeper_->PutFound(Key(), found, "p-1", 0.5);
  EXPECT_EQ(keeper_->BestId(Key(), Policy()), "") << "the best one lacks kernels";
  PutKernels(found);
  for (const char* when : {"queued", "written"}) {
    SCOPED_TRACE(when);
    const v1::CacheStat before = cache_->Stat();
    EXPECT_EQ(keeper_->BestId(Key(), Policy()), "p-2");
    EXPECT_EQ(keeper_->BestId(Key(), Policy(/*search=*/false)), "p-1");
    SearchPolicy careful = Policy();
    careful.disabled_rules = {"layout"};
    EXPECT_EQ(keeper_->BestId(Key(careful.ToProto()), careful), "p-1");
    const v1::CacheStat after = cache_->Stat();
    EXPECT_EQ(after.kernels_from_cache(), before.kernels_from_cache());
    for (int i = 0; i < after.tiers_size(); ++i) {
      EXPECT_EQ(after.tiers(i).hits(), before.tiers(i).hits()) << after.tiers(i).tier();
    }
    ASSERT_TRUE(cache_->Flush(std::chrono::seconds(60)).ok());
  }
}

TEST_F(PlanKeeperTest, ADamagedPinIsNone) {
  ASSERT_TRUE(keeper_->Pin(*version_, Key(), Kept(Plan("p-1", "3s"))).ok());
  const std::string path = PinPath("p-1");
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  for (int64_t at = 0; at < bytes; ++at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char before = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(before ^ 1));
    file.flush();
    EXPECT_FALSE(keeper_->Find(*version_, Key(), "p-1").ok()) << at;
    file.seekp(at);
    file.put(before);
  }
  EXPECT_TRUE(keeper_->Find(*version_, Key(), "p-1").ok());
  for (int64_t left : {bytes - 1, int64_t{40}, int64_t{3}, int64_t{0}}) {
    fs::resize_file(path, left);
    EXPECT_FALSE(keeper_->Find(*version_, Key(), "p-1").ok()) << left;
  }
}

TEST_F(PlanKeeperTest, NoPlanIdLeavesItsFolder) {
  for (const char* id : {"", "../registry", "a/b", ".", "p.new"}) {
    EXPECT_EQ(keeper_->Pin(*version_, Key(), Kept(Plan(id))).code(),
              absl::StatusCode::kInvalidArgument)
        << id;
  }
}

// A disk that is full.
class FullDisk : public Disk {
 public:
  absl::Status Write(int, absl::string_view, const std::string& path) override {
    return absl::ResourceExhaustedError("write " + path + ": no space is left");
  }
};

// Records renames and directory syncs in order.
class NotingDisk : public Disk {
 public:
  absl::Status Rename(const std::string& from, const std::string& to) override {
    done.push_back("rename to " + fs::path(to).parent_path().filename().string());
    return Disk::Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    done.push_back("sync " + fs::path(path).filename().string());
    if (path == refuses) return absl::ResourceExhaustedError("sync " + path);
    return Disk::SyncDirectory(path);
  }

  std::vector<std::string> done;
  std::string refuses;
};

TEST_F(PlanKeeperTest, APinIsPromisedOnceItsNameIsOnTheDisk) {
  NotingDisk noting;
  PlanKeeper keeper(cache_.get(), folder_, &noting);
  keeper.SetMachine(Machine());
  ASSERT_TRUE(keeper.Pin(*version_, Key(), Kept(Plan("p-1", "3s"))).ok());
  EXPECT_THAT(noting.done, ElementsAre("rename to plans", "sync plans",
                                       "sync " + fs::path(folder_).filename().string()));
  for (const std::string& folder : {folder_ + "/plans", folder_}) {
    noting.refuses = folder;
    EXPECT_EQ(keeper.Pin(*version_, Key(), Kept(Plan("p-2", "3s"))).code(),
              absl::StatusCode::kResourceExhausted)
        << folder;
  }
}

TEST_F(PlanKeeperTest, WhatCannotBeWrittenIsNotPromised) {
  FullDisk full;
  PlanKeeper keeper(cache_.get(), folder_, &full);
  keeper.SetMachine(Machine());
  const absl::Status status = keeper.Pin(*version_, Key(), Kept(Plan("p-1", "3s")));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no space is left"));
  EXPECT_TRUE(fs::is_empty(folder_ + "/plans"));
}

}  // namespace
}  // namespace athanor
