// A deliberately simple e-graph: nodes in a list, matching by trying every node everywhere,
// congruence by comparing all pairs until nothing changes. Tests compare the engine with it.
//
//   NaiveEGraph naive(&language);
//   int c = naive.Add(term);
//   naive.Step(rules);        // matches all, applies all, closes under congruence
//   Difference(naive, graph) == "";
#ifndef ATHANOR_COMPILER_EGRAPH_NAIVE_TESTING_H_
#define ATHANOR_COMPILER_EGRAPH_NAIVE_TESTING_H_

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/term.h"
#include "compiler/egraph/match/pattern.h"

namespace athanor::egraph {

class NaiveEGraph {
 public:
  struct Node {
    uint32_t op;
    uint32_t payload;
    std::vector<int> children;
    auto operator<=>(const Node&) const = default;
  };
  // Maps class variables to classes and payload variables to payloads.
  using Binding = std::map<uint32_t, int>;

  NaiveEGraph() = default;
  // Copies the nodes and classes of an e-graph, to compare two of them.
  explicit NaiveEGraph(const EGraph& graph) {
    for (uint32_t i = 0; i < graph.class_bound(); ++i) {
      parents_.push_back(static_cast<int>(graph.Find(ClassId{i}).value));
    }
    for (uint32_t i = 0; i < graph.node_bound(); ++i) {
      const NodeId n{i};
      if (!graph.alive(n)) continue;
      Node node{graph.op(n).value, graph.payload(n).value, {}};
      for (const ClassId c : graph.children(n)) node.children.push_back(static_cast<int>(c.value));
      nodes_.emplace_back(node, static_cast<int>(graph.class_of(n).value));
    }
  }

  int Add(const Term& term) {
    std::vector<int> classes;
    for (const TermNode& node : term.nodes) {
      std::vector<int> children;
      for (const uint32_t c : node.children) children.push_back(classes[c]);
      classes.push_back(AddNode({node.op.value, node.payload.value, children}));
    }
    return classes.back();
  }

  int AddNode(Node node) {
    for (int& c : node.children) c = Find(c);
    for (const auto& [other, id] : nodes_) {
      if (Canonical(other) == node) return Find(id);
    }
    const int id = static_cast<int>(parents_.size());
    parents_.push_back(id);
    nodes_.emplace_back(node, id);
    return id;
  }

  int Find(int id) const {
    while (parents_[id] != id) id = parents_[id];
    return id;
  }

  void Union(int a, int b) { parents_[Find(a)] = Find(b); }

  void Close() {
    for (bool changed = true; changed;) {
      changed = false;
      std::map<Node, int> seen;
      std::vector<std::pair<Node, int>> kept;
      for (const auto& [node, id] : nodes_) {
        const auto [it, inserted] = seen.try_emplace(Canonical(node), Find(id));
        if (inserted) {
          kept.emplace_back(Canonical(node), Find(id));
        } else if (Find(it->second) != Find(id)) {
          Union(id, it->second);
          changed = true;
        }
      }
      nodes_ = kept;
    }
    for (auto& [node, id] : nodes_) id = Find(id);
  }

  // Returns all bindings of `pattern` in class `id` that agree with `binding`.
  std::vector<Binding> Matches(const Pattern& pattern, size_t index, int id,
                               const Binding& binding) const {
    const PatternNode& wanted = pattern.nodes[index];
    if (wanted.is_variable()) return Bound(binding, wanted.variable, id);
    std::vector<Binding> found;
    for (const auto& [node, cls] : nodes_) {
      const bool fits = cls == id && node.op == wanted.op.value &&
                        node.children.size() == wanted.children.size() &&
                        (!wanted.payload.valid() || wanted.payload.value == node.payload);
      if (!fits) continue;
      std::vector<Binding> partial = {binding};
      if (wanted.payload_variable != Variables::kNone) {
        partial = Bound(binding, wanted.payload_variable, static_cast<int>(node.payload));
      }
      for (size_t i = 0; i < node.children.size(); ++i) {
        std::vector<Binding> next;
        for (const Binding& b : partial) {
          for (Binding& m : Matches(pattern, wanted.children[i], node.children[i], b)) {
            next.push_back(std::move(m));
          }
        }
        partial = std::move(next);
      }
      found.insert(found.end(), partial.begin(), partial.end());
    }
    return found;
  }

  // Returns all bindings of several equations at once.
  std::set<Binding> Matches(const std::vector<Equation>& premises) const {
    std::set<Binding> bindings = {Binding{}};
    for (const Equation& e : premises) {
      std::set<Binding> next;
      for (const Binding& b : bindings) {
        for (const int id : Classes()) {
          std::vector<Binding> rooted = {b};
          if (e.root != Variables::kNone) rooted = Bound(b, e.root, id);
          for (const Binding& r : rooted) {
            for (Binding& m : Matches(e.pattern, e.pattern.nodes.size() - 1, id, r)) {
              next.insert(std::move(m));
            }
          }
        }
      }
      bindings = std::move(next);
    }
    return bindings;
  }

  int Instantiate(const Pattern& pattern, const Binding& binding) {
    std::vector<int> classes;
    for (const PatternNode& node : pattern.nodes) {
      if (node.is_variable()) {
        classes.push_back(Find(binding.at(node.variable)));
        continue;
      }
      std::vector<int> children;
      for (const uint32_t c : node.children) children.push_back(classes[c]);
      const uint32_t payload = node.payload_variable == Variables::kNone
                                   ? node.payload.value
                                   : static_cast<uint32_t>(binding.at(node.payload_variable));
      classes.push_back(AddNode({node.op.value, payload, children}));
    }
    return classes.back();
  }

  // A rule, given as premises and conclusions over the same variables.
  struct NaiveRule {
    std::vector<Equation> premises;
    std::vector<Equation> conclusions;  // with roots
  };
  void Step(const std::vector<NaiveRule>& rules) {
    std::vector<std::set<Binding>> matches;
    for (const NaiveRule& rule : rules) matches.push_back(Matches(rule.premises));
    for (size_t i = 0; i < rules.size(); ++i) {
      for (const Binding& b : matches[i]) {
        for (const Equation& c : rules[i].conclusions) {
          Union(b.at(c.root), Instantiate(c.pattern, b));
        }
      }
    }
    Close();
  }

  std::set<int> Classes() const {
    std::set<int> classes;
    for (const auto& [node, id] : nodes_) classes.insert(Find(id));
    return classes;
  }
  const std::vector<std::pair<Node, int>>& nodes() const { return nodes_; }

 private:
  Node Canonical(Node node) const {
    for (int& c : node.children) c = Find(c);
    return node;
  }

  static std::vector<Binding> Bound(const Binding& binding, uint32_t variable, int value) {
    const auto it = binding.find(variable);
    if (it != binding.end()) {
      return it->second == value ? std::vector<Binding>{binding} : std::vector<Binding>{};
    }
    Binding more = binding;
    more[variable] = value;
    return {more};
  }

  std::vector<std::pair<Node, int>> nodes_;
  std::vector<int> parents_;
};

// Returns "" if both hold the same nodes in the same classes, else the first difference. Classes
// are matched up from the leaves; in cycles, from classes that are matched already.
inline std::string Difference(const NaiveEGraph& naive, const EGraph& graph) {
  if (naive.nodes().size() != graph.num_nodes() || naive.Classes().size() != graph.num_classes()) {
    return "naive: " + std::to_string(naive.nodes().size()) + " nodes in " +
           std::to_string(naive.Classes().size()) +
           " classes; e-graph: " + std::to_string(graph.num_nodes()) + " in " +
           std::to_string(graph.num_classes());
  }
  std::map<int, ClassId> known;
  size_t matched = 0;
  for (size_t last = 1; matched < naive.nodes().size() && last > 0;) {
    last = 0;
    matched = 0;
    for (const auto& [node, id] : naive.nodes()) {
      std::vector<ClassId> children;
      for (const int c : node.children) {
        if (known.contains(c)) children.push_back(known[c]);
      }
      if (children.size() < node.children.size()) continue;
      ++matched;
      const ClassId found = graph.Lookup(OpId{node.op}, PayloadId{node.payload}, children);
      if (!found.valid())
        return "the e-graph lacks a node with operator " + std::to_string(node.op);
      const auto [it, inserted] = known.try_emplace(id, found);
      last += inserted;
      if (it->second != found) return "class " + std::to_string(id) + " is two";
    }
  }
  std::set<ClassId> images;
  for (const auto& [id, image] : known) images.insert(image);
  if (matched < naive.nodes().size()) return "a class cannot be reached from leaves";
  return images.size() == known.size() ? "" : "two classes are one";
}

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_NAIVE_TESTING_H_
