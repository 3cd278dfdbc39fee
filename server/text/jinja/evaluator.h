// Runs a parsed template.
//
//   Work work(limits);
//   Evaluator evaluator(&work, now);
//   evaluator.Set("messages", value);
//   Marked text = evaluator.Run(*root);
//   if (work.failed()) return work.status();
//
// Names are bound by names.h: a scope's variables begin as it says when the scope is entered, and a
// macro sees those of where it was defined. `Run` may be called once. Not thread-safe.
#ifndef ATHANOR_SERVER_TEXT_JINJA_EVALUATOR_H_
#define ATHANOR_SERVER_TEXT_JINJA_EVALUATOR_H_

#include <deque>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/civil_time.h"
#include "nlohmann/json_fwd.hpp"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/loop.h"
#include "server/text/jinja/tree.h"
#include "server/text/jinja/value.h"

namespace athanor::jinja {

class Evaluator final : public Caller {
 public:
  Evaluator(Work* run, absl::CivilSecond time);

  // Gives the template a variable. `name` must outlive this.
  void Set(absl::string_view name, const Value& value) { given_[name] = value; }
  Marked Run(const Statement& root);

  Value Call(const Value& callee, const Arguments& arguments) override;

 private:
  enum class Jump : uint8_t { kNone, kBreak, kContinue };

  void Do(const Statement::Body& body);
  void Do(const Statement& statement);
  void DoIf(const Statement& statement);
  void DoFor(const Statement& statement);
  void DoWith(const Statement& statement);
  void DoCall(const Statement& statement);
  // Runs the body of a set or filter block, and its filter on the text.
  void DoBlock(const Statement& statement);
  // Sets the variables of a scope to what they begin as.
  void Enter(const Scope& scope);
  // Makes them undefined, which macros that outlive the scope see. A jump out of it does not.
  void Leave(const Scope& scope);
  // Runs `body` with `variables` and returns its text.
  Value TextOf(const Statement::Body& body, Variables* variables);
  void Print(const Value& value);
  // Fails where a target's attribute is not one of a namespace, which jinja2 looks at first.
  bool HasNamespaces(const Statement::Target& target);
  void FailAttribute(const Statement::Target& target);
  // Returns the values of what `target` set: tuples for its tuples.
  Value Assigned(const Statement::Target& target);
  void Assign(const Statement::Target& target, const Value& value);

  Value Evaluate(const Expression& expression);
  // Returns none where there is no expression.
  Value EvaluateOr(const Expression* expression);
  std::optional<Value>& At(const Place& place);
  Value Name(const Expression& expression);
  Value DictOf(const Expression& expression);
  Value CompareAll(const Expression& expression);
  Value Concat(const Expression& expression);
  Value Filter(const Expression& expression, const Value& input);
  std::vector<Value> EvaluateAll(const Expression& expression, size_t from);
  Arguments ArgumentsOf(const Expression& expression);
  Value CallMacro(const Callable& macro, const Arguments& arguments);

  absl::flat_hash_map<absl::string_view, Value> given_;
  Variables* variables_ = nullptr;  // of the function that runs
  Marked* out_ = nullptr;
  Jump jump_ = Jump::kNone;
  const Value* block_text_ = nullptr;  // the input of a filter or set block's first filter
  std::deque<Loop> kept_;              // loops live as long as values may name them
};

// Makes a value of JSON. Its texts, numbers and names are trusted if `trusted`; else none but the
// known roles under the key "role" are: templates build tokens of them, as "<|" + role + "|>".
Value OfJson(Work* work, const nlohmann::ordered_json& json, bool trusted);
// The same of JSON's text; fails if it is none. Each value takes its step as it is read.
Value OfJsonText(Work* work, const std::string& text, bool trusted);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_EVALUATOR_H_
