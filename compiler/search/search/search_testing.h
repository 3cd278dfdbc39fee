// Helpers for the tests of Search: small graphs, machines that answer, and a driver to a search's
// end.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_TESTING_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_TESTING_H_

#include <cmath>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/search/search.h"
#include "gtest/gtest.h"

namespace athanor {

inline v1::Target Target() {
  v1::Target t;
  t.set_vector_bytes(64);
  t.set_vector_registers(32);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

inline Graph Parse(const std::string& text) {
  absl::StatusOr<Graph> g = ParseGraph("graph \"\" {\n dim b in [1, 64]\n" + text + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  return *std::move(g);
}

// Returns equal layers, each a contraction with a bias and a tanh.
inline Graph Layers(int count) {
  std::string text = "%0 = Input \"x\" : f32[b, 256]\n";
  int next = 1, x = 0;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, "%", next, " = Parameter \"w", i, "\" : f32[256, 256]\n");
    absl::StrAppend(&text, "%", next + 1, " = Contract(%", x, ", %", next,
                    ") {spec=\"mk,kn->mn\"}\n");
    absl::StrAppend(&text, "%", next + 2, " = Tanh(%", next + 1, ")\n");
    x = next + 2;
    next += 3;
  }
  return Parse(text + "output \"y\" = %" + absl::StrCat(x) + "\n");
}

using Cost = std::function<absl::StatusOr<double>(const Search&, const KernelCandidate&)>;

// Tells the search the outcome of a plan.
using Verdict = std::function<void(Search&, int plan)>;
inline void Take(Search& search, int plan) { search.TellPlan(plan, true); }

// Answers until the search ends. Returns the questions, one line each.
inline std::vector<std::string> Drive(Search& search, const Cost& cost, int sizes = 1,
                                      const Verdict& verdict = Take) {
  std::vector<std::string> asked;
  for (int steps = 0; steps < 10000; ++steps) {
    const Search::Step step = search.Next();
    if (step.done) return asked;
    for (int id : step.kernels) {
      const KernelCandidate& k = search.kernel(id);
      asked.push_back(
          absl::StrCat(search.task(k.task).key.substr(0, 8), " ", ScheduleText(k.choice)));
      absl::StatusOr<double> seconds = cost(search, k);
      if (seconds.ok()) {
        search.TellKernel(id, Seconds(sizes, *seconds));
      } else {
        search.TellKernel(id, seconds.status());
      }
    }
    if (step.plan >= 0) {
      asked.push_back(absl::StrCat("plan ", search.plan(step.plan).predicted));
      verdict(search, step.plan);
    }
  }
  ADD_FAILURE() << "the search does not end";
  return asked;
}

// A machine that takes 10 microseconds with the schedule that the prediction prefers, and more with
// others.
inline Cost PrefersTile(int mr, int nv) {
  return [=](const Search&, const KernelCandidate& k) -> absl::StatusOr<double> {
    if (k.choice.kind != KernelKind::kContract) return 1e-6;
    const auto& s = std::get<PanelSchedule>(k.choice.contract);
    return 1e-3 *
           (1 + std::abs(s.mr - mr) + std::abs(s.nv - nv) + std::abs(s.rows_per_item - 64) / 64.0);
  };
}

// Returns the least time according to the model.
inline double Limit(const Search& search, const KernelCandidate& k) {
  const Machine machine = Machine::Typical(Target());
  return RooflineSeconds(search.task(k.task), {16}, Target(), machine) + machine.launch_seconds;
}

// Returns the same function with one, two or three multiplications.
inline Graph Scaled(int steps) {
  std::string text =
      "%0 = Input \"x\" : f32[b, 256]\n %1 = Parameter \"w\" : f32[256, 240]\n"
      "%2 = Contract(%0, %1) {spec=\"mk,kn->mn\"}\n";
  for (int i = 0; i < steps; ++i) absl::StrAppend(&text, "%", i + 3, " = Mul(%2, %", i + 2, ")\n");
  return Parse(absl::StrCat(text, "output \"y\" = %", steps + 2, "\n"));
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_TESTING_H_
