// Maps names to values while an ONNX graph is imported. A sub-graph's scope sees the scopes around
// it; a function's sees none.
//
//   Scope main, body(&main);
//   main.Define("x", x);
//   body.Find("x").level == 0;   // outside of the body, whose level is 1
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_SCOPE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_SCOPE_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/frontend/onnx/model/value.h"

namespace athanor::onnx {

// Follows the kind and name of a value that no scope has, in errors.
inline constexpr std::string_view kUndefined =
    "is not defined; it must be an input, an initializer or the result of a node";

// Values do not move while the scope lives. Borrows `outer`, which must outlive it.
class Scope {
 public:
  explicit Scope(const Scope* outer = nullptr)
      : outer_(outer), level_(outer == nullptr ? 0 : outer->level_ + 1) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  int level() const { return level_; }
  // Returns false if this scope has the name already.
  bool Define(std::string_view name, Value value) {
    return names_.emplace(std::string(name), std::move(value)).second;
  }
  // Defines the result of a node that was refused.
  void Poison(std::string_view name) {
    Value poisoned;
    poisoned.poisoned = true;
    Define(name, std::move(poisoned));
  }
  // Records an operand that a function's call omits: a known name without a value.
  bool Omit(std::string_view name) {
    return names_.emplace(std::string(name), std::nullopt).second;
  }

  struct Found {
    bool known = false;
    const Value* value = nullptr;  // null if unknown or omitted
    int level = -1;                // level of the scope that has the name
  };
  Found Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
      auto it = scope->names_.find(name);
      if (it == scope->names_.end()) continue;
      return {true, it->second ? &*it->second : nullptr, scope->level_};
    }
    return {};
  }

 private:
  const Scope* outer_;
  const int level_;
  std::map<std::string, std::optional<Value>, std::less<>> names_;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_SCOPE_H_
