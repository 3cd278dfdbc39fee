#include "server/text/jinja/names.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/jinja/lexer.h"

namespace athanor::jinja {
namespace {

using Body = Statement::Body;
using Target = Statement::Target;

// Finds which loops have a `loop` and which functions a `caller`: those whose bodies, nested scopes
// included, read the name before they bind it, in jinja2's order of a node's parts.
class Specials {
 public:
  // Marks them by special = 0.
  explicit Specials(Statement* root) { Look(root); }

  const absl::Status& status() const { return status_; }

 private:
  // Tells what a part of the tree does first with a name.
  enum First : uint8_t { kNothing, kReads, kBinds };
  struct Found {
    First loop = kNothing, caller = kNothing;
    bool sets_loop = false;
  };

  void Name(absl::string_view name, First first) {
    if (name == "loop" && found_.loop == kNothing) found_.loop = first;
    if (name == "caller" && found_.caller == kNothing) found_.caller = first;
  }
  void Look(const Expression* expression);
  void Look(const Target& target);
  // Returns what `body` alone does.
  Found Look(Body* body);
  void Look(Statement* statement);
  void LookAtFunction(Statement* statement);

  Found found_;
  absl::Status status_;
};

void Specials::Look(const Expression* expression) {
  if (expression == nullptr) return;
  if (expression->kind == Expression::kName) Name(expression->name, kReads);
  for (const Expression::Pointer& child : expression->args) Look(child.get());
  for (const auto& [name, child] : expression->named) Look(child.get());
}

void Specials::Look(const Target& target) {
  for (const Target& part : target.parts) Look(part);
  if (target.is_tuple || !target.attribute.empty()) return;
  Name(target.name, kBinds);
  found_.sets_loop = found_.sets_loop || target.name == "loop";
}

Specials::Found Specials::Look(Body* body) {
  const Found before = std::exchange(found_, {});
  for (const Statement::Pointer& statement : *body) Look(statement.get());
  const Found inside = found_;
  found_ = before;
  if (found_.loop == kNothing) found_.loop = inside.loop;
  if (found_.caller == kNothing) found_.caller = inside.caller;
  found_.sets_loop = found_.sets_loop || inside.sets_loop;
  return inside;
}

void Specials::LookAtFunction(Statement* statement) {
  for (const auto& parameter : statement->parameters) Name(parameter.name, kBinds);
  for (const auto& parameter : statement->parameters) Look(parameter.value.get());
  statement->special = Look(&statement->body).caller == kReads ? 0 : -1;
}

void Specials::Look(Statement* statement) {
  switch (statement->kind) {
    case Statement::kPrint:
      return Look(statement->expression.get());
    case Statement::kIf:
      for (Statement::Arm& arm : statement->arms) {
        Look(arm.test.get());
        Look(&arm.body);
      }
      Look(&statement->otherwise);
      return;
    case Statement::kFor: {
      const bool before = std::exchange(found_.sets_loop, false);
      Look(statement->target);
      Look(statement->expression.get());
      statement->special = Look(&statement->body).loop == kReads ? 0 : -1;
      Look(&statement->otherwise);
      Look(statement->test.get());
      if (found_.sets_loop) {
        status_.Update(SyntaxError(statement->line, "\"loop\" is set inside this loop"));
      }
      found_.sets_loop = found_.sets_loop || before;
      return;
    }
    case Statement::kSet:
      Look(statement->target);
      return Look(statement->expression.get());
    case Statement::kSetBlock:
      Look(statement->target);
      Look(statement->filter.get());
      Look(&statement->body);
      return;
    case Statement::kWith:
      for (const auto& parameter : statement->parameters) Name(parameter.name, kBinds);
      for (const auto& parameter : statement->parameters) Look(parameter.value.get());
      Look(&statement->body);
      return;
    case Statement::kCall:
      Look(statement->expression.get());
      return LookAtFunction(statement);
    case Statement::kMacro:
    case Statement::kScope:
      return LookAtFunction(statement);
    case Statement::kFilter:
      Look(&statement->body);
      return Look(statement->filter.get());
    default:
      return;
  }
}

// Finds what one scope does with its names, without looking into scopes inside it.
class Uses {
 public:
  struct Use {
    absl::string_view name;
    bool set = false;
    bool given = false;
    bool set_first = false;  // the first use sets it, outside of any `if`
  };

  const std::vector<Use>& all() const { return all_; }

  void Give(absl::string_view name) { Find(name).given = true; }
  void Give(const Target& target) {
    for (const Target& part : target.parts) Give(part);
    if (!target.is_tuple) Give(target.name);
  }
  void Read(const Expression* expression);
  void Set(const Target& target);
  void Run(const Body& body) {
    for (const Statement::Pointer& statement : body) Run(*statement);
  }

 private:
  Use& Find(absl::string_view name) {
    const auto [place, added] = at_.try_emplace(name, all_.size());
    if (added) all_.push_back({.name = name});
    return all_[place->second];
  }
  void Run(const Statement& statement);

  std::vector<Use> all_;
  absl::flat_hash_map<absl::string_view, size_t> at_;
  int ifs_ = 0;  // around what is looked at
};

void Uses::Read(const Expression* expression) {
  if (expression == nullptr) return;
  if (expression->kind == Expression::kName) Find(expression->name);
  for (const Expression::Pointer& child : expression->args) Read(child.get());
  for (const auto& [name, child] : expression->named) Read(child.get());
}

void Uses::Set(const Target& target) {
  for (const Target& part : target.parts) Set(part);
  if (target.is_tuple) return;
  const size_t known = all_.size();
  Use& use = Find(target.name);
  if (!target.attribute.empty()) return;  // only reads it
  use.set_first = use.set_first || (all_.size() > known && ifs_ == 0);
  use.set = true;
}

void Uses::Run(const Statement& statement) {
  switch (statement.kind) {
    case Statement::kPrint:
    case Statement::kFor:
    case Statement::kCall:
      return Read(statement.expression.get());
    case Statement::kIf:
      ++ifs_;
      for (const Statement::Arm& arm : statement.arms) {
        Read(arm.test.get());
        Run(arm.body);
      }
      Run(statement.otherwise);
      --ifs_;
      return;
    case Statement::kSet:
      Read(statement.expression.get());
      return Set(statement.target);
    case Statement::kSetBlock:
    case Statement::kMacro:
      return Set(statement.target);
    case Statement::kWith:
      for (const auto& parameter : statement.parameters) Read(parameter.value.get());
      return;
    case Statement::kFilter:
      return Read(statement.filter.get());
    default:
      return;
  }
}

// Gives each scope its variables, and each name its place.
class Binder {
 public:
  // REQUIRES: `Specials` went over it.
  absl::Status Run(Statement* root) {
    BindFunction(root);
    return status_;
  }

 private:
  // A name that a scope around the current place has.
  struct Known {
    size_t function;  // of functions_
    int level;
    int variable;
    bool given;
  };
  // Scopes of one function that lie equally deep share variables, as jinja2's do: a macro that
  // outlives its scope sees what the next one sets. Tests of loops share a second set.
  struct Function {
    absl::flat_hash_map<std::pair<int, absl::string_view>, int> variables;
    absl::flat_hash_map<std::pair<int, absl::string_view>, int> test_variables;
    int count = 0;
  };

  void Open(const Uses& uses, bool is_test, Scope* scope);
  void Close();
  Place Find(absl::string_view name, int line);
  void Bind(Expression* expression);
  void Bind(Target* target, int line);
  void Bind(Body* body) {
    for (const Statement::Pointer& statement : *body) Bind(statement.get());
  }
  void Bind(Statement* statement);
  void BindLoop(Statement* statement);
  void BindFunction(Statement* statement);
  void BindWith(Statement* statement);
  // A set or filter block.
  void BindBlock(Statement* statement);

  std::vector<Function> functions_;
  int level_ = -1;
  int defaults_ = -1;  // the level of the function whose parameters' defaults are bound
  absl::flat_hash_map<absl::string_view, std::vector<Known>> known_;  // the innermost last
  // Names that each open scope added to known_.
  std::vector<std::vector<absl::string_view>> added_;
  absl::Status status_;
};

void Binder::Open(const Uses& uses, bool is_test, Scope* scope) {
  ++level_;
  Function& function = functions_.back();
  std::vector<absl::string_view>& added = added_.emplace_back();
  for (const Uses::Use& use : uses.all()) {
    std::vector<Known>& known = known_[use.name];
    if (!known.empty() && !use.set && !use.given) continue;
    auto& variables = is_test ? function.test_variables : function.variables;
    const auto [at, is_new] = variables.try_emplace({level_, use.name}, function.count);
    if (is_new) ++function.count;
    Scope::Begin& begin = scope->begins.emplace_back();
    begin.variable = at->second;
    if (use.given) {
      begin.way = Scope::kGiven;
    } else if (!known.empty()) {
      begin.way = Scope::kOuter;
      begin.outer = Find(use.name, 0);
    } else if (use.set_first) {
      begin.way = Scope::kUndefined;
    } else {
      begin.way = Scope::kResolved;
      begin.name = std::string(use.name);
    }
    known.push_back({functions_.size(), level_, begin.variable, use.given});
    added.push_back(use.name);
  }
}

void Binder::Close() {
  for (const absl::string_view name : added_.back()) known_[name].pop_back();
  added_.pop_back();
  --level_;
}

Place Binder::Find(absl::string_view name, int line) {
  const auto found = known_.find(name);
  if (found == known_.end() || found->second.empty()) {
    status_.Update(SyntaxError(
        line, absl::StrCat("the filter of a set block reads \"", name,
                           "\", which nothing around the block and nothing in it reads or sets; "
                           "read it ahead of the block")));
    return {};
  }
  const Known& known = found->second.back();
  return {.out = static_cast<int>(functions_.size() - known.function),
          .variable = known.variable,
          .given = known.given && known.level != defaults_};
}

void Binder::Bind(Expression* expression) {
  if (expression == nullptr) return;
  if (expression->kind == Expression::kName) {
    expression->place = Find(expression->name, expression->line);
  }
  for (const Expression::Pointer& child : expression->args) Bind(child.get());
  for (const auto& [name, child] : expression->named) Bind(child.get());
}

void Binder::Bind(Target* target, int line) {
  for (Target& part : target->parts) Bind(&part, line);
  if (!target->is_tuple) target->place = Find(target->name, line);
}

void Binder::BindFunction(Statement* statement) {
  Uses uses;
  for (const auto& parameter : statement->parameters) uses.Give(parameter.name);
  for (const auto& parameter : statement->parameters) uses.Read(parameter.value.get());
  uses.Run(statement->body);
  if (statement->special >= 0) uses.Give("caller");
  functions_.emplace_back();
  Open(uses, false, &statement->scope);
  for (auto& parameter : statement->parameters) {
    parameter.variable = Find(parameter.name, statement->line).variable;
  }
  if (statement->special >= 0) statement->special = Find("caller", statement->line).variable;
  defaults_ = level_;
  for (const auto& parameter : statement->parameters) Bind(parameter.value.get());
  defaults_ = -1;
  Bind(&statement->body);
  Close();
  statement->scope.variables = functions_.back().count;
  functions_.pop_back();
}

void Binder::BindLoop(Statement* statement) {
  const int line = statement->line;
  Bind(statement->expression.get());
  Uses uses;
  if (statement->special >= 0) uses.Give("loop");
  uses.Give(statement->target);
  uses.Run(statement->body);
  Open(uses, false, &statement->scope);
  if (statement->special >= 0) statement->special = Find("loop", line).variable;
  Bind(&statement->target, line);
  Bind(&statement->body);
  Close();
  Uses otherwise;
  otherwise.Run(statement->otherwise);
  Open(otherwise, false, &statement->otherwise_scope);
  Bind(&statement->otherwise);
  Close();
  if (statement->test == nullptr) return;
  statement->test_target = statement->target;
  Uses test;
  test.Give(statement->target);
  test.Read(statement->test.get());
  Open(test, true, &statement->test_scope);
  Bind(&statement->test_target, line);
  Bind(statement->test.get());
  Close();
}

void Binder::BindWith(Statement* statement) {
  for (const auto& parameter : statement->parameters) Bind(parameter.value.get());
  Uses uses;
  for (const auto& parameter : statement->parameters) uses.Give(parameter.name);
  uses.Run(statement->body);
  Open(uses, false, &statement->scope);
  for (auto& parameter : statement->parameters) {
    parameter.variable = Find(parameter.name, statement->line).variable;
  }
  Bind(&statement->body);
  Close();
}

void Binder::BindBlock(Statement* statement) {
  Uses uses;
  uses.Run(statement->body);
  // jinja2 evaluates both kinds' filters inside the block, but looks only at one's names.
  if (statement->kind == Statement::kFilter) uses.Read(statement->filter.get());
  Open(uses, false, &statement->scope);
  Bind(&statement->body);
  Bind(statement->filter.get());
  Close();
}

void Binder::Bind(Statement* statement) {
  switch (statement->kind) {
    case Statement::kPrint:
      return Bind(statement->expression.get());
    case Statement::kIf:
      for (Statement::Arm& arm : statement->arms) {
        Bind(arm.test.get());
        Bind(&arm.body);
      }
      return Bind(&statement->otherwise);
    case Statement::kFor:
      return BindLoop(statement);
    case Statement::kSet:
      Bind(statement->expression.get());
      return Bind(&statement->target, statement->line);
    case Statement::kWith:
      return BindWith(statement);
    case Statement::kSetBlock:
      Bind(&statement->target, statement->line);
      return BindBlock(statement);
    case Statement::kFilter:
      return BindBlock(statement);
    case Statement::kMacro:
      Bind(&statement->target, statement->line);
      return BindFunction(statement);
    case Statement::kCall:
      Bind(statement->expression.get());
      return BindFunction(statement);
    case Statement::kScope:
      return BindFunction(statement);
    default:
      return;
  }
}

}  // namespace

absl::Status BindNames(Statement* root) {
  const Specials specials(root);
  RETURN_IF_ERROR(specials.status());
  root->special = -1;  // nobody calls a template
  return Binder().Run(root);
}

}  // namespace athanor::jinja
