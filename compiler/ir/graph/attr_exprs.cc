#include "compiler/ir/graph/attr_exprs.h"

#include <vector>

namespace athanor {

void ForEachExpr(const Attrs& attrs, absl::FunctionRef<void(const Expr&)> visit) {
  const auto all = [&](const std::vector<Expr>& list) {
    for (const Expr& e : list) visit(e);
  };
  for (const auto& [name, value] : attrs) {
    if (const auto* shape = std::get_if<Shape>(&value)) all(*shape);
    if (const auto* map = std::get_if<IndexMap>(&value)) {
      all(map->shape);
      all(map->coordinates);
    }
    const auto* body = std::get_if<SubGraph>(&value);
    if (body == nullptr || !*body) continue;
    for (const Node& node : (*body)->nodes) {
      all(node.type.shape);
      ForEachExpr(node.attrs, visit);
    }
  }
}

void EditExprs(Attrs* attrs, absl::FunctionRef<void(Expr&)> edit) {
  const auto all = [&](std::vector<Expr>& list) {
    for (Expr& e : list) edit(e);
  };
  for (auto& [name, value] : *attrs) {
    if (auto* shape = std::get_if<Shape>(&value)) all(*shape);
    if (auto* map = std::get_if<IndexMap>(&value)) {
      all(map->shape);
      all(map->coordinates);
    }
    auto* body = std::get_if<SubGraph>(&value);
    if (body == nullptr || !*body) continue;
    for (Node& node : body->Edit().nodes) {
      all(node.type.shape);
      EditExprs(&node.attrs, edit);
    }
  }
}

}  // namespace athanor
