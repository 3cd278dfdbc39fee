// Runs a parsed template.
//
//   Work work(limits);
//   Evaluator evaluator(&work, now);
//   evaluator.Set("messages", value);
//   Marked text = evaluator.Run(body);
//   if (work.failed()) return work.status();
//
// Variables are found as jinja2 finds them: loops, macros, set and filter blocks have a scope of
// their own, a macro sees where it was defined. `Run` may be called once. Not thread-safe.
#ifndef ATHANOR_SERVER_TEXT_JINJA_EVALUATOR_H_
#define ATHANOR_SERVER_TEXT_JINJA_EVALUATOR_H_

#include <deque>
#include <string>

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

  // A variable of the template. `name` must outlive this.
  void Set(absl::string_view name, const Value& value) { scope_->names[name] = value; }
  Marked Run(const Statement::Body& body);

  Value Call(const Value& callee, const Arguments& arguments) override;

 private:
  enum class Jump : uint8_t { kNone, kBreak, kContinue };

  void Do(const Statement::Body& body);
  void Do(const Statement& statement);
  void DoIf(const Statement& statement);
  void DoFor(const Statement& statement);
  void DoWith(const Statement& statement);
  void DoCall(const Statement& statement);
  // Runs `body` in a scope of its own and returns its text.
  Value TextOf(const Statement::Body& body);
  void Print(const Value& value);
  void Assign(const Statement::Target& target, const Value& value);

  Value Evaluate(const Expression& expression);
  // Returns none where there is no expression.
  Value EvaluateOr(const Expression* expression);
  Value Name(const Expression& expression);
  Value DictOf(const Expression& expression);
  Value CompareAll(const Expression& expression);
  Value Concat(const Expression& expression);
  Value Filter(const Expression& expression, const Value& input);
  Value FilterBlock(const Expression& filter, const Value& text);
  std::vector<Value> EvaluateAll(const Expression& expression, size_t from);
  Arguments ArgumentsOf(const Expression& expression);
  Value CallMacro(const Callable& macro, const Arguments& arguments);

  Scope* scope_;
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
