#include "server/text/jinja/evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/text/jinja/operators.h"
#include "server/text/jinja/print.h"

namespace athanor::jinja {

Evaluator::Evaluator(Work* run, absl::CivilSecond time) : Caller(run, time) {}

Marked Evaluator::Run(const Statement& root) {
  Marked text;
  out_ = &text;
  variables_ = work->NewVariables(nullptr, root.scope.variables);
  Enter(root.scope);
  Do(root.body);
  return text;
}

void Evaluator::Enter(const Scope& scope) {
  work->Step(static_cast<int64_t>(scope.begins.size()));
  for (const Scope::Begin& begin : scope.begins) {
    std::optional<Value>& value = variables_->values[begin.variable];
    if (begin.way == Scope::kOuter) value = At(begin.outer);
    if (begin.way == Scope::kUndefined) value.reset();
    if (begin.way == Scope::kResolved) {
      const auto found = given_.find(begin.name);
      if (found != given_.end()) {
        value = found->second;
      } else if (IsFunction(begin.name)) {
        value = work->Function({Callable::kFunction, begin.name});
      } else {
        value.reset();
      }
    }
  }
}

void Evaluator::Leave(const Scope& scope) {
  if (jump_ != Jump::kNone || !work->Step(static_cast<int64_t>(scope.begins.size()))) return;
  for (const Scope::Begin& begin : scope.begins) variables_->values[begin.variable].reset();
}

void Evaluator::Do(const Statement::Body& body) {
  for (const Statement::Pointer& statement : body) {
    if (work->failed() || jump_ != Jump::kNone) return;
    Do(*statement);
  }
}

void Evaluator::Do(const Statement& statement) {
  const Work::Depth in(work);
  work->line = statement.line;
  if (!in || !work->Step()) return;
  switch (statement.kind) {
    case Statement::kText:
      return Print(Value::Text(&statement.text));
    case Statement::kPrint:
      return Print(Evaluate(*statement.expression));
    case Statement::kIf:
      return DoIf(statement);
    case Statement::kFor:
      return DoFor(statement);
    case Statement::kSet:
      if (!HasNamespaces(statement.target)) return;
      return Assign(statement.target, Evaluate(*statement.expression));
    case Statement::kSetBlock:
    case Statement::kFilter:
      return DoBlock(statement);
    case Statement::kWith:
      return DoWith(statement);
    case Statement::kMacro:
      At(statement.target.place) =
          work->Function({Callable::kMacro, statement.target.name, {}, &statement, variables_});
      return;
    case Statement::kCall:
      return DoCall(statement);
    case Statement::kScope:
      return Print(CallMacro({Callable::kMacro, "generation", {}, &statement, variables_}, {}));
    case Statement::kBreak:
      jump_ = Jump::kBreak;
      return;
    case Statement::kContinue:
      jump_ = Jump::kContinue;
      return;
  }
}

void Evaluator::DoIf(const Statement& statement) {
  for (const Statement::Arm& arm : statement.arms) {
    const bool holds = Truth(Evaluate(*arm.test));
    if (work->failed()) return;
    if (holds) return Do(arm.body);
  }
  Do(statement.otherwise);
}

void Evaluator::DoFor(const Statement& statement) {
  std::optional<Value> unused;
  std::optional<Value>& special =
      statement.special < 0 ? unused : variables_->values[statement.special];
  special.reset();
  std::vector<Value> all = Elements(work, Evaluate(*statement.expression));
  Loop::Passes passes;
  if (statement.test != nullptr) {
    Enter(statement.test_scope);
    passes = [this, &statement, home = variables_](const Value& item) {
      Variables* const before = std::exchange(variables_, home);
      Assign(statement.test_target, item);
      std::optional<Value> passed;
      if (Truth(Evaluate(*statement.test))) passed = Assigned(statement.test_target);
      variables_ = before;
      return passed;
    };
  }
  if (!work->Charge(sizeof(Loop))) return;
  Value loop;
  loop.kind = Value::kLoop;
  loop.loop = &kept_.emplace_back(work, std::move(all), std::move(passes), 1);
  bool any = false;  // jinja2 counts only turns that reach their end
  while (const Value* item = loop.loop->Next()) {
    special = loop;
    Assign(statement.target, *item);
    Enter(statement.scope);
    Do(statement.body);
    const Jump jump = std::exchange(jump_, Jump::kNone);
    any = any || jump == Jump::kNone;
    if (jump == Jump::kBreak || work->failed()) break;
  }
  Leave(statement.scope);
  if (any || work->failed()) return;
  Enter(statement.otherwise_scope);
  Do(statement.otherwise);
  Leave(statement.otherwise_scope);
}

void Evaluator::DoWith(const Statement& statement) {
  Enter(statement.scope);
  for (const Statement::Parameter& parameter : statement.parameters) {
    variables_->values[parameter.variable] = Evaluate(*parameter.value);
  }
  Do(statement.body);
  Leave(statement.scope);
}

void Evaluator::DoCall(const Statement& statement) {
  const Expression& call = *statement.expression;
  const Value callee = Evaluate(*call.args[0]);
  Arguments arguments = ArgumentsOf(call);
  arguments.named.emplace_back(
      "caller", work->Function({Callable::kCaller, "caller", {}, &statement, variables_}));
  Print(Call(callee, arguments));
}

void Evaluator::DoBlock(const Statement& statement) {
  Enter(statement.scope);
  const Value text = TextOf(statement.body, variables_);
  if (jump_ != Jump::kNone || work->failed()) return;  // a jump leaves the text out
  Value value = text;
  if (statement.filter != nullptr) {
    const Value* const before = std::exchange(block_text_, &text);
    value = Evaluate(*statement.filter);
    block_text_ = before;
  }
  if (statement.kind == Statement::kFilter) {
    Print(value);
  } else {
    Assign(statement.target, value);
  }
  Leave(statement.scope);
}

Value Evaluator::TextOf(const Statement::Body& body, Variables* variables) {
  Marked text;
  Marked* const before = std::exchange(out_, &text);
  Variables* const outer = std::exchange(variables_, variables);
  Do(body);
  variables_ = outer;
  out_ = before;
  return work->String(std::move(text));
}

void Evaluator::Print(const Value& value) {
  if (!work->failed()) AppendStr(work, value, out_);
}

bool Evaluator::HasNamespaces(const Statement::Target& target) {
  if (target.is_tuple) {
    return std::all_of(target.parts.begin(), target.parts.end(),
                       [this](const Statement::Target& part) { return HasNamespaces(part); });
  }
  if (target.attribute.empty()) return true;
  const std::optional<Value>& variable = At(target.place);
  if (variable.has_value() && variable->Is(Value::kNamespace)) return true;
  FailAttribute(target);
  return false;
}

void Evaluator::FailAttribute(const Statement::Target& target) {
  work->Wrong(absl::StrCat("\"", target.name, "\" is no namespace, so it has no attribute to set"));
}

Value Evaluator::Assigned(const Statement::Target& target) {
  if (!target.is_tuple) return At(target.place).value_or(Value());
  std::vector<Value> values;
  for (const Statement::Target& part : target.parts) values.push_back(Assigned(part));
  return work->Tuple(std::move(values));
}

void Evaluator::Assign(const Statement::Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = Elements(work, value);
    if (work->failed()) return;
    if (items.size() != target.parts.size()) {
      work->Wrong(absl::StrCat(target.parts.size(), " names are set to ", items.size(), " values"));
      return;
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i]);
    return;
  }
  std::optional<Value>& variable = At(target.place);
  if (target.attribute.empty()) {
    variable = value;
    return;
  }
  if (variable.has_value() && variable->Is(Value::kDict)) {
    work->Lacks("setting the attribute of a dict is not supported");
    return;
  }
  if (!variable.has_value() || !variable->Is(Value::kNamespace)) return FailAttribute(target);
  const Value key = work->String(target.attribute, true);
  if (!work->failed()) work->Put(variable->dict, key, value);
}

Value Evaluator::EvaluateOr(const Expression* expression) {
  return expression == nullptr ? Value::None() : Evaluate(*expression);
}

std::vector<Value> Evaluator::EvaluateAll(const Expression& expression, size_t from) {
  std::vector<Value> values;
  for (size_t i = from; i < expression.args.size(); ++i) {
    values.push_back(Evaluate(*expression.args[i]));
  }
  return values;
}

Arguments Evaluator::ArgumentsOf(const Expression& expression) {
  Arguments arguments;
  arguments.values = EvaluateAll(expression, 1);
  for (const auto& [name, value] : expression.named) {
    arguments.named.emplace_back(name, Evaluate(*value));
  }
  return arguments;
}

std::optional<Value>& Evaluator::At(const Place& place) {
  Variables* variables = variables_;
  for (int i = 0; i < place.out; ++i) variables = variables->outer;
  return variables->values[place.variable];
}

Value Evaluator::Name(const Expression& expression) {
  const std::optional<Value>& value = At(expression.place);
  if (value.has_value()) return *value;
  if (!expression.place.given) return Value::Undefined(&expression.name);
  return work->Lacks(absl::StrCat("\"", expression.name,
                                  "\" is read by a macro after the loop or with that gave it has "
                                  "ended"));
}

Value Evaluator::DictOf(const Expression& expression) {
  const Value dict = work->NewDict();
  for (size_t i = 0; i + 1 < expression.args.size() && !work->failed(); i += 2) {
    const Value key = Evaluate(*expression.args[i]);
    const Value value = Evaluate(*expression.args[i + 1]);
    if (!work->failed()) work->Put(dict.dict, key, value);
  }
  return dict;
}

Value Evaluator::CompareAll(const Expression& expression) {
  Value left = Evaluate(*expression.args[0]);
  for (size_t i = 0; i < expression.operators.size() && !work->failed(); ++i) {
    const Value right = Evaluate(*expression.args[i + 1]);
    if (work->failed()) break;
    if (!Compare(work, expression.operators[i], left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Evaluator::Concat(const Expression& expression) {
  Marked text;
  for (const Expression::Pointer& part : expression.args) {
    const Value value = Evaluate(*part);
    if (work->failed()) return {};
    AppendStr(work, value, &text);
  }
  return work->String(std::move(text));
}

Value Evaluator::Filter(const Expression& expression, const Value& input) {
  const Arguments arguments = ArgumentsOf(expression);
  if (work->failed()) return {};
  work->line = expression.line;
  return expression.filter->apply(this, input, arguments);
}

Value Evaluator::Evaluate(const Expression& expression) {
  const Work::Depth in(work);
  if (!in || !work->Step()) return {};
  const auto arg = [&](size_t i) { return Evaluate(*expression.args[i]); };
  switch (expression.kind) {
    case Expression::kConstant:
      return expression.value.Is(Value::kString) ? Value::Text(&expression.text) : expression.value;
    case Expression::kName:
      return Name(expression);
    case Expression::kTuple:
      return work->Tuple(EvaluateAll(expression, 0));
    case Expression::kList:
      return work->List(EvaluateAll(expression, 0));
    case Expression::kDict:
      return DictOf(expression);
    case Expression::kIf:
      if (Truth(arg(0))) return arg(1);
      return expression.args[2] == nullptr ? Value() : arg(2);
    case Expression::kOr: {
      const Value left = arg(0);
      return Truth(left) ? left : arg(1);
    }
    case Expression::kAnd: {
      const Value left = arg(0);
      return Truth(left) ? arg(1) : left;
    }
    case Expression::kNot:
      return Value::Bool(!Truth(arg(0)));
    case Expression::kCompare:
      return CompareAll(expression);
    case Expression::kConcat:
      return Concat(expression);
    default:
      break;
  }
  const Value first = expression.args[0] == nullptr ? *block_text_ : arg(0);
  if (work->failed()) return {};
  work->line = expression.line;
  switch (expression.kind) {
    case Expression::kBinary: {
      const Value second = arg(1);
      return work->failed() ? Value() : Binary(work, expression.name, first, second);
    }
    case Expression::kNegate:
      return Negate(work, first);
    case Expression::kPlus: {
      if (!first.IsNumber()) Negate(work, first);
      Value value = first.Is(Value::kBool) ? Value::Int(first.AsInt()) : first;
      value.trusted = first.trusted;
      return value;
    }
    case Expression::kFilter:
      return Filter(expression, first);
    case Expression::kTest: {
      const Arguments arguments = ArgumentsOf(expression);
      return Value::Bool(!work->failed() && expression.test->holds(this, first, arguments));
    }
    case Expression::kCall: {
      const Arguments arguments = ArgumentsOf(expression);
      work->line = expression.line;
      return work->failed() ? Value() : Call(first, arguments);
    }
    case Expression::kAttribute:
      return Attribute(work, first, expression.name);
    case Expression::kItem: {
      const Value index = arg(1);
      return work->failed() ? Value() : Item(work, first, index);
    }
    default: {  // kSlice
      const Value begin = EvaluateOr(expression.args[1].get());
      const Value end = EvaluateOr(expression.args[2].get());
      const Value step = EvaluateOr(expression.args[3].get());
      return work->failed() ? Value() : Slice(work, first, begin, end, step);
    }
  }
}

Value Evaluator::Call(const Value& callee, const Arguments& arguments) {
  if (work->failed()) return {};
  if (callee.Is(Value::kUndefined)) return FailUndefined(work, callee);
  if (!callee.Is(Value::kCallable)) {
    return work->Wrong(absl::StrCat("a ", TypeName(callee), " is called"));
  }
  switch (callee.callable->form) {
    case Callable::kMethod:
      return CallMethod(this, *callee.callable, arguments);
    case Callable::kFunction:
      return CallFunction(this, callee.callable->name, arguments);
    default:
      return CallMacro(*callee.callable, arguments);
  }
}

Value Evaluator::CallMacro(const Callable& macro, const Arguments& arguments) {
  const Work::Depth in(work);
  if (!in) return {};
  const Statement& statement = *macro.macro;
  const auto& parameters = statement.parameters;
  if (arguments.values.size() > parameters.size()) {
    return work->Wrong(absl::StrCat("the macro \"", macro.name, "\" takes ", parameters.size(),
                                    " arguments, not ", arguments.values.size()));
  }
  Variables* const variables = work->NewVariables(macro.outer, statement.scope.variables);
  const auto variable = [&](size_t i) -> std::optional<Value>& {
    return variables->values[parameters[i].variable];
  };
  for (size_t i = 0; i < arguments.values.size(); ++i) variable(i) = arguments.values[i];
  static const std::string kCaller = "caller";
  const bool has_caller = statement.special >= 0;
  if (has_caller) variables->values[statement.special] = Value::Undefined(&kCaller);
  for (const auto& [name, value] : arguments.named) {
    if (has_caller && name == kCaller) {
      // jinja2 takes none for no caller.
      if (!value.Is(Value::kNone)) variables->values[statement.special] = value;
      continue;
    }
    const auto parameter =
        std::find_if(parameters.begin(), parameters.end(),
                     [&, &key = name](const auto& other) { return other.name == key; });
    const auto place = static_cast<size_t>(parameter - parameters.begin());
    if (parameter == parameters.end() || variable(place).has_value()) {
      return work->Wrong(
          absl::StrCat("the macro \"", macro.name, "\" takes no argument \"", name, "\" here"));
    }
    variable(place) = value;
  }
  Variables* const outer = std::exchange(variables_, variables);
  Enter(statement.scope);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (variable(i).has_value()) continue;
    const Statement::Parameter& parameter = parameters[i];
    const Value value =
        parameter.value == nullptr ? Value::Undefined(&parameter.name) : Evaluate(*parameter.value);
    variable(i) = value;
  }
  variables_ = outer;
  return TextOf(statement.body, variables);
}

}  // namespace athanor::jinja
