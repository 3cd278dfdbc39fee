// Orders dims independently of their names. If one symbol of an expression has no new name yet, the
// position of the expression decides. If several have none, as in a first axis of size a + 2*b,
// they are told apart by their roles in the expressions that hold them. Dims with equal roles are
// symmetric in all but contrived graphs. In those, the hash may differ, which costs only a cache
// miss.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

using Substitution = std::map<std::string, Expr, std::less<>>;

constexpr size_t kMaxCompared = 64;  // number of expressions that a role is read from

// Returns every expression of the graph that is not a number, in the order of nodes.
std::vector<Expr*> Expressions(Graph* graph) {
  std::vector<Expr*> expressions;
  const auto collect = [&](Expr& e) {
    if (!e.constant()) expressions.push_back(&e);
  };
  for (Node& node : graph->nodes) {
    for (Expr& e : node.type.shape) collect(e);
    EditExprs(&node.attrs, collect);
  }
  return expressions;
}

class DimOrder {
 public:
  explicit DimOrder(const std::vector<Expr*>& expressions) {
    absl::flat_hash_set<std::string> seen;
    for (const Expr* e : expressions) {
      if (!seen.insert(e->ToString()).second) continue;
      Unnamed entry{e, {}};
      e->CollectSymbols(&entry.symbols);
      if (!Settle(&entry)) pending_.push_back(std::move(entry));
    }
    // An expression with one unnamed symbol names it. Symbols that occur only together are told
    // apart by their roles.
    while (!pending_.empty()) {
      const size_t before = pending_.size();
      std::erase_if(pending_, [this](Unnamed& entry) { return Settle(&entry); });
      if (pending_.size() == before) Name(FirstByRole());
    }
  }

  // Maps old names to symbols d0, d1, ...
  const Substitution& names() const { return names_; }
  const std::vector<std::string>& order() const { return order_; }

 private:
  struct Unnamed {
    const Expr* expression;
    std::set<std::string> symbols;  // symbols that have no new name
  };

  void Name(const std::string& symbol) {
    names_.emplace(symbol, Expr::Symbol(Cat("d", order_.size())));
    order_.push_back(symbol);
  }

  // Returns true once every symbol has its name.
  bool Settle(Unnamed* entry) {
    std::erase_if(entry->symbols, [this](const std::string& symbol) {
      return symbol[0] == '$' || names_.contains(symbol);
    });
    if (entry->symbols.size() > 1) return false;
    if (!entry->symbols.empty()) Name(*entry->symbols.begin());
    return true;
  }

  std::string FirstByRole() const {
    std::map<std::string, std::string> roles;
    for (size_t i = 0; i < pending_.size() && i < kMaxCompared; ++i) {
      for (const std::string& symbol : pending_[i].symbols) {
        Substitution values = names_;
        for (const std::string& other : pending_[i].symbols) {
          values.emplace(other, Expr::Symbol(other == symbol ? "$self" : "$other"));
        }
        const std::string role = pending_[i].expression->Substitute(values).ToString();
        roles[symbol] += Cat(i, ":", role, ";");
      }
    }
    const auto least =
        std::min_element(roles.begin(), roles.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return least->first;
  }

  std::vector<Unnamed> pending_;
  Substitution names_;
  std::vector<std::string> order_;
};

}  // namespace

std::vector<std::string> RenameDims(Graph* graph) {
  const std::vector<Expr*> expressions = Expressions(graph);
  const DimOrder order(expressions);
  std::map<std::string, Expr, std::less<>> renamed;
  for (Expr* e : expressions) {
    auto [it, fresh] = renamed.try_emplace(e->ToString());
    if (fresh) it->second = e->Substitute(order.names());
    *e = it->second;
  }
  std::vector<Dim> dims;
  std::vector<std::string> former;
  for (const std::string& name : order.order()) {
    auto dim = std::find_if(graph->dims.begin(), graph->dims.end(),
                            [&](const Dim& d) { return d.name == name; });
    if (dim == graph->dims.end()) continue;
    dims.push_back({Cat("d", dims.size()), dim->min, dim->max});
    former.push_back(name);
  }
  graph->dims = std::move(dims);
  return former;
}

}  // namespace athanor
