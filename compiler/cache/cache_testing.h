// Rows for the tests of this folder, derived from a number.
#ifndef ATHANOR_COMPILER_CACHE_CACHE_TESTING_H_
#define ATHANOR_COMPILER_CACHE_CACHE_TESTING_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {

inline v1::Target TestTarget() {
  v1::Target target;
  target.set_device("cpu");
  target.set_triple("x86_64-pc-linux-gnu");
  target.set_cpu("znver4");
  target.add_features("+avx512f");
  target.add_features("+fma");
  target.set_threads(2);
  return target;
}

inline MachineConditions TestMachine() {
  return {.target = TestTarget(),
          .compiler_version = "19.1.7",
          .rule_set = "rules",
          .libraries = "OpenBLAS 0.3.21",
          .driver = "",
          .clocks = "4.2 GHz performance"};
}

inline KernelKey TestKernelKey(int i) {
  return MakeKernelKey(absl::StrCat("void k", i, "(void) {}"), TestTarget(), "-O3", "clang 19.1.7");
}

// Returns bytes derived from i, of a size that spreads over several pages.
inline std::string TestObject(int i) {
  std::string object(5000 + 777 * (i % 40), '\0');
  uint32_t state = static_cast<uint32_t>(i) * 2654435761u + 1;
  for (char& c : object) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return object;
}

inline PlanKey TestPlanKey(int graph) {
  PlanKey key;
  key.semantics_version = 1;
  key.plan_format = 1;
  key.graph_hash = Sha256Hex(absl::StrCat("graph ", graph));
  key.interface_hash = Sha256Hex("names");
  key.dim_box = "d0=1..64";
  key.made_under = TestMachine();
  return key;
}

// Returns a plan that names the kernels `first` and `first` + 1.
inline PlanRow TestPlan(const std::string& id, int first = 0) {
  PlanRow row;
  row.stored.mutable_plan()->set_plan_id(id);
  row.stored.mutable_plan()->set_kind("search");
  for (int i : {first, first + 1}) {
    row.stored.mutable_plan()->add_kernels()->set_name(absl::StrCat("kernel ", i));
    row.stored.add_kernel_keys(TestKernelKey(i).Hash());
  }
  row.share_of_baseline = 0.5;
  row.low = 0.25;
  row.high = 0.75;
  row.compared_with = "f64 plan";
  return row;
}

inline RecipeKey TestRecipeKey(int region) {
  return {.region_hash = Sha256Hex(absl::StrCat("region ", region)),
          .dim_box = "d0=1..64",
          .facts = "",
          .semantics_version = 1,
          .recipe_format = 1};
}

inline v1::RegionRecipe TestRecipe(const std::string& genome, double share = 0.5) {
  v1::RegionRecipe recipe;
  recipe.set_genome(genome);
  recipe.set_device("cpu");
  recipe.set_cpu("znver4");
  recipe.set_threads(2);
  recipe.set_rule_set("rules");
  recipe.set_share_of_baseline(share);
  return recipe;
}

inline TimingKey TestTimingKey(int i) {
  return {.kernel = TestKernelKey(i).source_hash,
          .sizes = "s0=64 grid=8",
          .flags = "-O3",
          .context = "0 0",
          .measure_version = 1,
          .made_under = TestMachine()};
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_TESTING_H_
