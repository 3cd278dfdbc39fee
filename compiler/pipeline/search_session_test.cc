// Tests of a search as messages, with made-up times of kernels: its questions, and its repetition
// after a loss.
#include "compiler/pipeline/search_session.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/recipes.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kModel[] = R"(graph "g" { dim rows in [1, 64]
  %0 = Input "x" : f32[rows, 128] %1 = Parameter "w0" : f32[128, 128]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2)
  %4 = Parameter "w1" : f32[128, 128] %5 = Contract(%3, %4) {spec="bk,kn->bn"}
  %6 = Softmax(%5) {axis=1} output "y" = %6 })";

internal::SearchStart Start() {
  internal::SearchStart start;
  start.set_graph_text(kModel);
  start.mutable_target()->set_device("cpu");
  start.mutable_target()->set_vector_bytes(64);
  start.mutable_target()->set_vector_registers(32);
  start.mutable_target()->set_l1_bytes(32 << 10);
  start.mutable_target()->set_l2_bytes(1 << 20);
  start.mutable_target()->set_threads(2);
  start.set_seed(1);
  start.set_max_kernels(40);
  return start;
}

// Derives the outcome from the kernel's key, so that the same kernel always has the same.
internal::KernelOutcome Outcome(const internal::SearchKernel& kernel) {
  internal::KernelOutcome outcome;
  outcome.set_key(kernel.key());
  const int digit = std::stoi(kernel.key().substr(2, 4), nullptr, 16);
  for (int s = 0; s < kernel.sizes_size(); ++s) outcome.add_seconds(1e-4 * (1 + digit % 97));
  return outcome;
}

std::string About(const internal::SearchReply& reply) {
  std::vector<std::string> keys;
  for (const internal::SearchKernel& k : reply.kernels()) keys.push_back(k.key());
  return absl::StrCat(absl::StrJoin(keys, " "), "; ", reply.plan().plan().plan_id(), "; ",
                      reply.stop());
}

struct Driven {
  std::vector<std::string> asked;
  std::vector<internal::SearchRequest> told;  // before each of these
  internal::SearchReply last;
};

// Returns rates as if they were measured, multiplied by `times`.
internal::MachineReply Limits(double times) {
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(times * 2e10);
  limits.set_cache_bytes_per_second(times * 1e11);
  limits.set_near_bytes_per_second(times * 2e11);
  limits.set_f32_flops_per_second(times * 1e11);
  return limits;
}

// Drives a session to its end. Limits are raised twice, after so many replies; 0: never. Every
// second plan is taken, or all.
Driven Drive(const internal::SearchStart& start, size_t raised_after = 0, bool take_all = false) {
  Driven driven;
  auto session = SearchSession::Create(start);
  EXPECT_TRUE(session.ok()) << session.status();
  internal::SearchRequest request;
  for (int steps = 0; session.ok() && steps < 200; ++steps) {
    auto reply = (*session)->Next(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) break;
    driven.asked.push_back(About(*reply));
    driven.told.push_back(request);
    request.Clear();
    driven.last = *reply;
    if (reply->done()) break;
    const size_t replies = driven.asked.size();
    if (raised_after > 0 && (replies == raised_after || replies == 2 * raised_after)) {
      internal::RaisedLimits* raised = request.add_limits();
      raised->set_steps(reply->steps());
      *raised->mutable_machine() = Limits(replies == raised_after ? 2 : 20);
    }
    for (const internal::SearchKernel& k : reply->kernels()) *request.add_kernels() = Outcome(k);
    if (reply->has_plan()) {
      internal::PlanOutcome* plan = request.add_plans();
      plan->set_plan_id(reply->plan().plan().plan_id());
      plan->set_taken(take_all || driven.asked.size() % 2 == 0);
      plan->set_ratio(0.97);
    }
  }
  EXPECT_TRUE(driven.last.done());
  return driven;
}

TEST(SearchSessionTest, AResumedOneGoesOnWhereTheOtherStopped) {
  for (auto [mode, kernels] : {std::pair(v1::SEARCH_BUDGET, 160), std::pair(v1::SEARCH_FAST, 40)}) {
    internal::SearchStart start = Start();
    start.set_mode(mode);
    start.set_max_kernels(kernels);
    *start.mutable_machine() = Limits(1);
    const Driven driven = Drive(start, mode == v1::SEARCH_FAST ? 1 : 8);
    ASSERT_GE(driven.asked.size(), 2);
    internal::SearchRequest all;
    for (size_t lost = 0; lost < driven.asked.size(); ++lost) {
      all.MergeFrom(driven.told[lost]);
      // Beginning again lowers all kernels asked for before the cut, which takes time: tries few
      // cuts.
      if (lost % 12 != 11 && lost != 1) continue;
      auto again = SearchSession::Create(start);
      ASSERT_TRUE(again.ok()) << again.status();
      // Compares up to the end: a wrong outcome may show many steps later.
      absl::StatusOr<internal::SearchReply> reply = (*again)->Next(all);
      for (size_t step = lost; step < driven.asked.size(); ++step) {
        ASSERT_TRUE(reply.ok()) << reply.status();
        ASSERT_EQ(About(*reply), driven.asked[step])
            << "at step " << step << ", lost after " << lost;
        if (step + 1 < driven.asked.size()) reply = (*again)->Next(driven.told[step + 1]);
      }
    }
  }
}

// Returns the largest roofline of a kernel, at the largest size.
double MostRoofline(const internal::SearchReply& reply) {
  double most = 0;
  for (const v1::SearchTask& task : reply.progress().tasks()) {
    most = std::max(most, *task.roofline_seconds().rbegin());
  }
  return most;
}

TEST(SearchSessionTest, OneThatWasDoneLearnsOfRaisedLimits) {
  internal::SearchStart start = Start();
  *start.mutable_machine() = Limits(1);
  const Driven driven = Drive(start);
  internal::SearchRequest all;
  for (const internal::SearchRequest& told : driven.told) all.MergeFrom(told);
  internal::RaisedLimits* raised = all.add_limits();
  raised->set_steps(driven.last.steps());
  *raised->mutable_machine() = Limits(2);
  // Begins again: limits that were raised after the search was done still arrive.
  auto again = SearchSession::Create(start);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto reply = (*again)->Next(all);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->done());
  EXPECT_GT(MostRoofline(*reply), 0);
  EXPECT_LT(MostRoofline(*reply), 0.7 * MostRoofline(driven.last));
}

TEST(SearchSessionTest, LimitsHoldFromTheStepOnAtWhichTheyWereRaised) {
  internal::SearchStart start = Start();
  *start.mutable_machine() = Limits(1);
  auto session = SearchSession::Create(start);
  ASSERT_TRUE(session.ok()) << session.status();
  internal::SearchRequest request;
  std::vector<double> rooflines;
  for (int replies = 0; replies < 4; ++replies) {
    auto reply = (*session)->Next(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_FALSE(reply->done());
    request.Clear();
    for (const internal::SearchKernel& k : reply->kernels()) {
      internal::KernelOutcome* outcome = request.add_kernels();
      *outcome = Outcome(k);
      for (double& seconds : *outcome->mutable_seconds()) seconds = 1e-3;
    }
    if (reply->has_plan()) request.add_plans()->set_plan_id(reply->plan().plan().plan_id());
    if (reply->progress().tasks_size() == 0) continue;
    rooflines.push_back(MostRoofline(*reply));
    internal::RaisedLimits* raised = request.add_limits();
    raised->set_steps(reply->steps());
    *raised->mutable_machine() = Limits(static_cast<double>(2 << replies));
  }
  ASSERT_GE(rooflines.size(), 2);
  for (size_t i = 1; i < rooflines.size(); ++i) EXPECT_LT(rooflines[i], 0.7 * rooflines[i - 1]);
}

TEST(SearchSessionTest, SaysWhatItDid) {
  const Driven driven = Drive(Start());
  const v1::SearchProgress& progress = driven.last.progress();
  EXPECT_EQ(progress.mode(), v1::SEARCH_BUDGET);
  EXPECT_EQ(progress.candidates(), 40);
  EXPECT_EQ(driven.last.stop(), "budget");
  ASSERT_EQ(progress.sizes_size(), 3);
  EXPECT_EQ(progress.sizes(0), "rows=1");
  ASSERT_GT(progress.tasks_size(), 0);
  EXPECT_LE(progress.predicted(), 1);
  EXPECT_EQ(progress.forms_error(), "");
  ASSERT_GT(progress.regions_size(), 0);
  EXPECT_GE(progress.regions(0).instances(), 1);
  EXPECT_GT(progress.regions(0).e_nodes(), 0);
  const auto& rules = progress.regions(0).rules();
  const auto row = std::find_if(rules.begin(), rules.end(), [](const v1::SearchRule& r) {
    return r.rule() == "decompose_contract";
  });
  ASSERT_NE(row, rules.end());
  EXPECT_EQ(row->family(), "decompose");
  EXPECT_EQ(row->rule_class(), "exact");
  EXPECT_GT(row->fired(), 0);
  EXPECT_GE(row->matches(), 2);  // both contractions
  EXPECT_GT(row->milliseconds(), 0);
  EXPECT_EQ(row->errors() + row->refused() + row->bans() + row->banned_iterations(), 0);
  EXPECT_EQ(row->last_error(), "");
  for (int i = 1; i < rules.size(); ++i) EXPECT_GE(rules[i - 1].fired(), rules[i].fired());
}

TEST(SearchSessionTest, DrawsEachRegionOnce) {
  auto session = SearchSession::Create(Start());
  ASSERT_TRUE(session.ok()) << session.status();
  internal::SearchRequest request;
  int drawn = 0;
  for (bool done = false; !done;) {
    auto reply = (*session)->Next(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    if (reply->pictures_size() > 0) {
      ++drawn;
      ASSERT_EQ(reply->pictures_size(), reply->progress().regions_size());
      for (const internal::RegionPicture& picture : reply->pictures()) {
        EXPECT_EQ(picture.error(), "");
        EXPECT_TRUE(absl::StartsWith(picture.dot(), "digraph egraph {\n")) << picture.dot();
        EXPECT_TRUE(absl::StrContains(picture.dot(), "Contract[")) << picture.dot();
      }
    } else {
      EXPECT_TRUE(drawn > 0 || reply->progress().regions().empty());
    }
    request.Clear();
    for (const internal::SearchKernel& k : reply->kernels()) *request.add_kernels() = Outcome(k);
    if (reply->has_plan()) {
      request.add_plans()->set_plan_id(reply->plan().plan().plan_id());
      request.mutable_plans(0)->set_ratio(1);
    }
    done = reply->done();
  }
  EXPECT_EQ(drawn, 1);
}

TEST(SearchSessionTest, TheFirstStepWaitsForNoRule) {
  auto session = SearchSession::Create(Start());
  ASSERT_TRUE(session.ok()) << session.status();
  auto reply = (*session)->Next({});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_GT(reply->kernels_size(), 0);
  EXPECT_EQ(reply->progress().regions_size(), 0);
}

TEST(SearchSessionTest, WithoutRulesThereIsOneForm) {
  internal::SearchStart start = Start();
  for (const char* family : {"algebra", "layout", "recognise", "decompose"}) {
    start.add_disabled_rules(family);
  }
  const Driven driven = Drive(start);
  EXPECT_EQ(driven.last.progress().forms_tried(), 0);
  EXPECT_EQ(driven.last.progress().rules_size(), 0);
}

// Counts the kernels of a search that call the library.
int CallsOfTheLibrary(const internal::SearchStart& start) {
  auto session = SearchSession::Create(start);
  EXPECT_TRUE(session.ok()) << session.status();
  internal::SearchRequest request;
  int calls = 0;
  while (session.ok()) {
    auto reply = (*session)->Next(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok() || reply->done()) break;
    request.Clear();
    for (const internal::SearchKernel& k : reply->kernels()) {
      for (const v1::Kernel& kernel : k.check().plan().kernels()) {
        calls += absl::StrContains(kernel.source(), "athanor_sgemm(");
      }
      internal::KernelOutcome* outcome = request.add_kernels();
      *outcome = Outcome(k);
      for (double& seconds : *outcome->mutable_seconds()) seconds *= 100;  // far from the roofline
    }
    if (reply->has_plan()) {
      request.add_plans()->set_plan_id(reply->plan().plan().plan_id());
    }
  }
  return calls;
}

TEST(SearchSessionTest, TheLibraryCompetesWhereThereIsOne) {
  internal::SearchStart start = Start();
  start.set_graph_text(R"(graph "g" { %0 = Input "x" : f32[512, 512] %1 = Input "w" : f32[512, 512]
    %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2) output "y" = %3 })");
  // With made-up times, a product computed as a map and a sum would be taken before the contraction
  // is tuned.
  start.add_disabled_rules("decompose");
  EXPECT_EQ(CallsOfTheLibrary(start), 0);
  start.mutable_target()->set_blas("OpenBLAS 0.3.21");
  EXPECT_GE(CallsOfTheLibrary(start), 1);
  for (const char* name : {"openblas", "library"}) {
    internal::SearchStart without = start;
    without.add_disabled_rules(name);
    EXPECT_EQ(CallsOfTheLibrary(without), 0) << name;
  }
}

// A GPU's library has a row of its own.
TEST(SearchStartTest, TheRowOfTheTargetsLibrarySwitchesIt) {
  for (const char* device : {"cpu", "cuda"}) {
    for (const char* name : {"openblas", "cublaslt", "library"}) {
      internal::SearchStart start = Start();
      start.mutable_target()->set_device(device);
      start.add_disabled_rules(name);
      const absl::StatusOr<SearchSetup> setup = ReadSearchStart(start);
      ASSERT_TRUE(setup.ok()) << setup.status();
      const std::string other = std::string(device) == "cpu" ? "cublaslt" : "openblas";
      EXPECT_EQ(setup->options.library, name == other) << device << " " << name;
    }
  }
}

TEST(SearchSessionTest, FastAsksForPlansOnly) {
  internal::SearchStart start = Start();
  start.set_mode(v1::SEARCH_FAST);
  const Driven driven = Drive(start);
  EXPECT_EQ(driven.last.progress().candidates(), 0);
  EXPECT_EQ(driven.last.stop(), "exhausted");
  for (size_t i = 0; i + 1 < driven.asked.size(); ++i) {
    EXPECT_EQ(driven.asked[i].substr(0, 2), "; ") << driven.asked[i];
  }
}

TEST(SearchSessionTest, RefusesWhatItDoesNotKnow) {
  internal::SearchStart start = Start();
  start.add_disabled_rules("fuse");
  EXPECT_TRUE(SearchSession::Create(start).ok());
  start.add_disabled_rules("no_such_rule");
  const absl::Status rule = SearchSession::Create(start).status();
  EXPECT_TRUE(absl::IsInvalidArgument(rule));
  EXPECT_NE(rule.message().find("no_such_rule"), std::string::npos) << rule;
  start = Start();
  start.set_max_kernels(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(SearchSession::Create(start).status()));
  start = Start();
  start.add_sizes();
  EXPECT_TRUE(absl::IsInvalidArgument(SearchSession::Create(start).status()));
}

TEST(SearchStartTest, FuseRowsAreSwitches) {
  EXPECT_EQ(FusionRulesOf({}), FusionRules());
  EXPECT_EQ(FusionRulesOf({.disabled = {"fuse_again"}}), FusionRules{.again = false});
  const FusionRules none{false, false, false, false};
  EXPECT_EQ(FusionRulesOf({.disabled = {"fuse"}}), none);
}

// kModel over a dim of another name and range.
std::string OtherModel() {
  return absl::StrReplaceAll(
      kModel, {{"dim rows in [1, 64]", "dim n in [1, 48]"}, {"f32[rows,", "f32[n,"}});
}

// Gives the recipes of a search of kModel to the regions of `start`.
void GiveRecipes(const internal::SearchReply& last, internal::SearchStart* start) {
  const auto named = NameRegions(*start);
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_GT(named->regions_size(), 0);
  EXPECT_EQ(named->kernels_size(), 0);
  for (const internal::RegionRecipes& region : named->regions()) {
    EXPECT_EQ(region.region_hash().size(), 64u);
    EXPECT_EQ(region.genomes_size(), 0);
    for (const internal::RegionRecipes& left : last.recipes()) {
      if (left.region_hash() != region.region_hash()) continue;
      internal::RegionRecipes* given = start->add_recipes();
      *given = region;
      *given->mutable_genomes() = left.genomes();
    }
  }
}

TEST(SearchSessionTest, RecipesOfOneAreTriedByAnother) {
  internal::SearchStart start = Start();
  *start.mutable_machine() = Limits(1);
  start.set_max_kernels(160);
  const Driven first = Drive(start, /*raised_after=*/0, /*take_all=*/true);
  EXPECT_EQ(first.last.progress().recipes_tried(), 0);
  ASSERT_GT(first.last.recipes_size(), 0);
  start.set_graph_text(OtherModel());
  for (const v1::SearchMode mode : {v1::SEARCH_BUDGET, v1::SEARCH_FAST}) {
    internal::SearchStart other = start;
    other.set_mode(mode);
    GiveRecipes(first.last, &other);
    ASSERT_GT(other.recipes_size(), 0);
    EXPECT_EQ(other.recipes(0).dim_box(), "d0=1..48");
    const Driven driven = Drive(other);
    EXPECT_EQ(driven.last.progress().recipes_tried(), other.recipes_size());
    // A session that is begun again asks the same questions.
    internal::SearchRequest all;
    for (size_t lost = 0; lost + 1 < driven.asked.size(); ++lost) {
      all.MergeFrom(driven.told[lost]);
      if (lost > 4) continue;
      auto again = SearchSession::Create(other);
      ASSERT_TRUE(again.ok()) << again.status();
      const auto reply = (*again)->Next(all);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(About(*reply), driven.asked[lost]) << lost;
    }
  }
}

TEST(SearchSessionTest, ARecipeThatCannotBeReadIsNamedOnce) {
  internal::SearchStart start = Start();
  const auto named = NameRegions(start);
  ASSERT_TRUE(named.ok()) << named.status();
  *start.add_recipes() = named->regions(0);
  start.mutable_recipes(0)->add_genomes("tile 4");
  start.mutable_recipes(0)->add_genomes("memory\nform\nno graph");
  auto session = SearchSession::Create(start);
  ASSERT_TRUE(session.ok()) << session.status();
  auto reply = (*session)->Next({});
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->refused_recipes_size(), 1);
  EXPECT_TRUE(absl::StrContains(reply->refused_recipes(0), named->regions(0).region_hash()));
  EXPECT_TRUE(absl::StrContains(reply->refused_recipes(0), "the line \"form\" is missing"));
  const Driven driven = Drive(start);
  EXPECT_EQ(driven.last.refused_recipes_size(), 0);
  EXPECT_EQ(driven.last.progress().recipes_tried(), 0);
  start.set_graph_text("no graph");
  EXPECT_EQ(NameRegions(start).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace athanor
