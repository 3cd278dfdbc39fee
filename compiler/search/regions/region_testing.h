// Graphs of equal layers, for tests and benchmarks of regions.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_TESTING_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_TESTING_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {

inline Graph ParseBody(const std::string& body) {
  absl::StatusOr<Graph> g = ParseGraph(
      absl::StrCat("graph \"g\" {\n dim b in [1, 64]\n dim s in [1, 64]\n", body, "\n}"));
  EXPECT_TRUE(g.ok()) << g.status() << "\n" << body;
  return g.ok() ? *std::move(g) : Graph();
}

// Writes graphs node by node; nodes are numbered in order.
class BodyWriter {
 public:
  // `@0`, `@1`, ... in `text` name the given nodes. Returns the new node.
  int Node(const std::string& text, std::vector<int> nodes = {}) {
    std::vector<std::pair<std::string, std::string>> names;
    for (size_t i = 0; i < nodes.size(); ++i) {
      names.emplace_back(absl::StrCat("@", i), absl::StrCat("%", nodes[i]));
    }
    absl::StrAppend(&body_, "%", next_, " = ", absl::StrReplaceAll(text, names), "\n");
    return next_++;
  }
  int Parameter(const std::string& type) {
    return Node(absl::StrCat("Parameter \"p", next_, "\" : ", type));
  }
  void Output(int node) { absl::StrAppend(&body_, "output \"o", outputs_++, "\" = %", node, "\n"); }
  void Update(int node) { absl::StrAppend(&updates_, "update %", node, "\n"); }
  Graph Build() const { return ParseBody(absl::StrCat(body_, updates_)); }

 private:
  std::string body_, updates_;
  int next_ = 0, outputs_ = 0;
};

// Appends a layer of width 16 as users write it: norm, contraction, bias, silu, contraction,
// residual.
inline int AppendLayer(BodyWriter* w, int x) {
  const int squares = w->Node("Mul(@0, @0)", {x});
  const int sum = w->Node("SumReduce(@0) {axes=[1]}", {squares});
  const int epsilon = w->Node("Constant {value=f32[] {1e-5}}");
  const int added =
      w->Node("Add(@0, @1)", {sum, w->Node("IndexMap(@0) {map=map[b]()}", {epsilon})});
  const int root = w->Node("Recip(@0)", {w->Node("Sqrt(@0)", {added})});
  const int norm =
      w->Node("Mul(@0, @1)", {x, w->Node("IndexMap(@0) {map=map[b, 16]($0)}", {root})});
  const int up =
      w->Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}", {norm, w->Parameter("f32[16, 24]")});
  const int bias = w->Node("IndexMap(@0) {map=map[b, 24]($1)}", {w->Parameter("f32[24]")});
  const int gate = w->Node("Silu(@0)", {w->Node("Add(@0, @1)", {up, bias})});
  const int down =
      w->Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}", {gate, w->Parameter("f32[24, 16]")});
  return w->Node("Add(@0, @1)", {x, down});
}

inline Graph Layers(int count) {
  BodyWriter w;
  int x = w.Node("Input \"x\" : f32[b, 16]");
  for (int i = 0; i < count; ++i) x = AppendLayer(&w, x);
  w.Output(x);
  return w.Build();
}

// Layers that each write rows of a state, and read them: "keys" by turns with "values".
inline Graph StateLayers(int count) {
  BodyWriter w;
  int x = w.Node("Input \"x\" : f32[b, 16]");
  const int slot = w.Node("Input \"slot\" : i32[b]");
  for (int i = 0; i < count; ++i) {
    const int row =
        w.Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}", {x, w.Parameter("f32[16, 16]")});
    const int update =
        w.Node("IndexMap(@0) {map=map[b, 1, 16]($0, $2)}", {w.Node("Tanh(@0)", {row})});
    const int state =
        w.Node(absl::StrCat("StateRead \"s", i, "\" {role=\"", i % 2 == 0 ? "keys" : "values",
                            "\"} : f32[16*s, 1, 16]"));
    const int write = w.Node("StateWrite(@0, @1, @2)", {state, slot, update});
    w.Update(write);
    const int read = w.Node("Gather(@0, @1) {axis=0}", {write, slot});
    const int turned =
        w.Node("Tanh(@0)", {w.Node("IndexMap(@0) {map=map[b, 16]($0, 0, $1)}", {read})});
    x = w.Node("Add(@0, @1)", {x, turned});
  }
  w.Output(x);
  return w.Build();
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_TESTING_H_
