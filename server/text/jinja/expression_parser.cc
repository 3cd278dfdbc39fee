#include "server/text/jinja/expression_parser.h"

#include <algorithm>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/parser.h"

namespace athanor::jinja {

bool ExpressionParser::IsOperator(absl::string_view text) const {
  return current().kind == Token::kOperator && current().text == text;
}

bool ExpressionParser::IsName(absl::string_view text) const {
  return current().kind == Token::kName && current().text == text;
}

bool ExpressionParser::SkipOperator(absl::string_view text) {
  const bool is = IsOperator(text);
  if (is) Advance();
  return is;
}

bool ExpressionParser::SkipName(absl::string_view text) {
  const bool is = IsName(text);
  if (is) Advance();
  return is;
}

absl::Status ExpressionParser::ExpectOperator(absl::string_view text) {
  return SkipOperator(text) ? absl::OkStatus() : Error(absl::StrCat("\"", text, "\""));
}

absl::StatusOr<std::string> ExpressionParser::ExpectName(absl::string_view what) {
  if (current().kind != Token::kName) return Error(what);
  std::string name = current().text;
  Advance();
  return name;
}

absl::Status ExpressionParser::Error(absl::string_view wanted) const {
  const Token& token = current();
  const bool end = token.kind == Token::kTagEnd || token.kind == Token::kPrintEnd;
  const std::string is = token.kind == Token::kEnd ? "the template ends"
                         : end                     ? "the tag ends"
                               : absl::StrCat("there is \"", token.text.substr(0, 40), "\"");
  return SyntaxError(token.line, absl::StrCat(is, " where ", wanted, " is wanted"));
}

absl::Status ExpressionParser::Enter() {
  if (++depth_ <= kMaxTreeDepth) return absl::OkStatus();
  return LacksError(current().line, absl::StrCat("nesting deeper than ", kMaxTreeDepth));
}

Expression::Pointer ExpressionParser::Node(Expression::Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

Expression::Pointer ExpressionParser::Node(Expression::Kind kind, Expression::Pointer first) const {
  Expression::Pointer node = Node(kind);
  if (first != nullptr) node->line = first->line;
  node->args.push_back(std::move(first));
  return node;
}

ExpressionParser::Result ExpressionParser::Finish(Expression::Pointer node) const {
  for (const Expression::Pointer& child : node->args) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  }
  for (const auto& [name, child] : node->named)
    node->depth = std::max(node->depth, child->depth + 1);
  if (node->depth > kMaxTreeDepth) {
    return LacksError(node->line, absl::StrCat("nesting deeper than ", kMaxTreeDepth));
  }
  return node;
}

ExpressionParser::Result ExpressionParser::ParseExpression() {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  ASSIGN_OR_RETURN(Expression::Pointer then, ParseOr());
  while (SkipName("if")) {
    ASSIGN_OR_RETURN(Expression::Pointer test, ParseOr());
    Expression::Pointer otherwise;
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    Expression::Pointer node = Node(Expression::kIf, std::move(test));
    node->args.push_back(std::move(then));
    node->args.push_back(std::move(otherwise));
    ASSIGN_OR_RETURN(then, Finish(std::move(node)));
  }
  return then;
}

ExpressionParser::Result ExpressionParser::ParseTuple(bool conditional) {
  std::vector<Expression::Pointer> parts;
  const int line = current().line;
  bool tuple = false;
  for (;;) {
    const Token::Kind kind = current().kind;
    if (kind == Token::kTagEnd || kind == Token::kPrintEnd || IsOperator(")") ||
        IsName("recursive"))
      break;
    ASSIGN_OR_RETURN(Expression::Pointer part, conditional ? ParseExpression() : ParseOr());
    parts.push_back(std::move(part));
    if (!SkipOperator(",")) break;
    tuple = true;
  }
  if (!tuple && parts.size() == 1) return std::move(parts[0]);
  if (parts.empty()) return Error("an expression");
  Expression::Pointer node = Node(Expression::kTuple);
  node->line = line;
  node->args = std::move(parts);
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParseBinary(
    Rule operand, std::initializer_list<absl::string_view> operators) {
  ASSIGN_OR_RETURN(Expression::Pointer left, (this->*operand)());
  for (;;) {
    const auto is = [this](absl::string_view text) { return IsOperator(text); };
    const auto* found = std::find_if(operators.begin(), operators.end(), is);
    if (found == operators.end()) return left;
    Advance();
    ASSIGN_OR_RETURN(Expression::Pointer right, (this->*operand)());
    Expression::Pointer node = Node(Expression::kBinary, std::move(left));
    node->name = std::string(*found);
    node->args.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
}

ExpressionParser::Result ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(Expression::Pointer left, ParseAnd());
  while (SkipName("or")) {
    ASSIGN_OR_RETURN(Expression::Pointer right, ParseAnd());
    Expression::Pointer node = Node(Expression::kOr, std::move(left));
    node->args.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(Expression::Pointer left, ParseNot());
  while (SkipName("and")) {
    ASSIGN_OR_RETURN(Expression::Pointer right, ParseNot());
    Expression::Pointer node = Node(Expression::kAnd, std::move(left));
    node->args.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseNot() {
  if (!SkipName("not")) return ParseCompare();
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  ASSIGN_OR_RETURN(Expression::Pointer operand, ParseNot());
  return Finish(Node(Expression::kNot, std::move(operand)));
}

ExpressionParser::Result ExpressionParser::ParseCompare() {
  ASSIGN_OR_RETURN(Expression::Pointer first, ParseSum());
  Expression::Pointer node;
  for (;;) {
    std::string op;
    for (const absl::string_view text : {"==", "!=", "<", "<=", ">", ">="}) {
      if (IsOperator(text)) op = std::string(text);
    }
    if (IsName("in")) op = "in";
    if (IsName("not") && next().kind == Token::kName && next().text == "in") {
      op = "not in";
      Advance();
    }
    if (op.empty()) break;
    Advance();
    ASSIGN_OR_RETURN(Expression::Pointer operand, ParseSum());
    if (node == nullptr) node = Node(Expression::kCompare, std::move(first));
    node->operators.push_back(std::move(op));
    node->args.push_back(std::move(operand));
  }
  if (node == nullptr) return first;
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat, {"+", "-"});
}

ExpressionParser::Result ExpressionParser::ParseConcat() {
  ASSIGN_OR_RETURN(Expression::Pointer first, ParseProduct());
  if (!IsOperator("~")) return first;
  Expression::Pointer node = Node(Expression::kConcat, std::move(first));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(Expression::Pointer part, ParseProduct());
    node->args.push_back(std::move(part));
  }
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {"*", "/", "//", "%"});
}

// jinja2 reads 2 ** 3 ** 2 from the left.
ExpressionParser::Result ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseOperand, {"**"});
}

ExpressionParser::Result ExpressionParser::ParseUnary(bool with_filter) {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  Expression::Pointer node;
  if (IsOperator("-") || IsOperator("+")) {
    const auto kind = IsOperator("-") ? Expression::kNegate : Expression::kPlus;
    Advance();
    ASSIGN_OR_RETURN(Expression::Pointer operand, ParseUnary(false));
    ASSIGN_OR_RETURN(node, Finish(Node(kind, std::move(operand))));
  } else {
    ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  return with_filter ? ParseFilters(std::move(node)) : Result(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParsePrimary() {
  const Token& token = current();
  Expression::Pointer node = Node(Expression::kConstant);
  switch (token.kind) {
    case Token::kName: {
      const std::string& name = token.text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node->value = Value::Bool(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        node->value = Value::None();
      } else {
        RETURN_IF_ERROR(Named(name, token.line));
        node->kind = Expression::kName;
        node->name = name;
      }
      break;
    }
    case Token::kString: {
      std::string text;
      for (; current().kind == Token::kString; Advance()) text += current().text;
      node->text = Marked(std::move(text), true);
      node->value.kind = Value::kString;
      return node;
    }
    case Token::kInt:
      node->value = Value::Int(token.integer);
      break;
    case Token::kFloat:
      node->value = Value::Float(token.real);
      break;
    default:
      return ParseBrackets();
  }
  Advance();
  return node;
}

ExpressionParser::Result ExpressionParser::ParseBrackets() {
  if (SkipOperator("(")) {
    if (SkipOperator(")")) return Node(Expression::kTuple);
    ASSIGN_OR_RETURN(Expression::Pointer node, ParseTuple(true));
    RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }
  if (SkipOperator("[")) return ParseList();
  if (SkipOperator("{")) return ParseDict();
  return Error("an expression");
}

ExpressionParser::Result ExpressionParser::ParseList() {
  Expression::Pointer node = Node(Expression::kList);
  while (!IsOperator("]")) {
    if (!node->args.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("]")) break;
    ASSIGN_OR_RETURN(Expression::Pointer part, ParseExpression());
    node->args.push_back(std::move(part));
  }
  Advance();
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParseDict() {
  Expression::Pointer node = Node(Expression::kDict);
  while (!IsOperator("}")) {
    if (!node->args.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("}")) break;
    ASSIGN_OR_RETURN(Expression::Pointer key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(Expression::Pointer value, ParseExpression());
    node->args.push_back(std::move(key));
    node->args.push_back(std::move(value));
  }
  Advance();
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParsePostfix(Expression::Pointer node) {
  for (;;) {
    if (IsOperator(".") || IsOperator("[")) {
      ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseSubscript(Expression::Pointer object) {
  if (SkipOperator(".")) {
    const Token token = current();
    Advance();
    Expression::Pointer node = Node(Expression::kAttribute, std::move(object));
    node->line = token.line;
    if (token.kind == Token::kName) {
      node->name = token.text;
      return Finish(std::move(node));
    }
    if (token.kind != Token::kInt) return SyntaxError(token.line, "a name is wanted behind \".\"");
    node->kind = Expression::kItem;
    node->args.push_back(Node(Expression::kConstant));
    node->args.back()->value = Value::Int(token.integer);
    return Finish(std::move(node));
  }
  Advance();
  Expression::Pointer node = Node(Expression::kItem, std::move(object));
  Expression::Pointer part;
  const auto parse = [&]() -> absl::Status {
    if (IsOperator(":") || IsOperator("]") || IsOperator(",")) {
      part = nullptr;
    } else {
      ASSIGN_OR_RETURN(part, ParseExpression());
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(parse());
  node->args.push_back(std::move(part));
  if (IsOperator(":")) {
    node->kind = Expression::kSlice;
    for (int i = 0; i < 2 && SkipOperator(":"); ++i) {
      RETURN_IF_ERROR(parse());
      node->args.push_back(std::move(part));
    }
    node->args.resize(4);
  } else if (node->args.back() == nullptr) {
    return Error("an index");
  }
  if (IsOperator(",")) return LacksError(current().line, "several indexes in one \"[]\"");
  RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(node));
}

absl::Status ExpressionParser::ParseArguments(Expression* node) {
  RETURN_IF_ERROR(ExpectOperator("("));
  bool first = true;
  absl::flat_hash_set<std::string> names;
  for (; !IsOperator(")"); first = false) {
    if (!first) RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator(")")) break;
    if (IsOperator("*") || IsOperator("**")) {
      return LacksError(current().line, "* or ** in the arguments of a call");
    }
    if (current().kind == Token::kName && next().kind == Token::kOperator && next().text == "=") {
      std::string name = current().text;
      Advance();
      Advance();
      if (!names.insert(name).second) {
        return SyntaxError(node->line, "an argument is given twice: " + name);
      }
      ASSIGN_OR_RETURN(Expression::Pointer value, ParseExpression());
      node->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!node->named.empty()) {
        return SyntaxError(current().line, "an argument without a name behind one with a name");
      }
      ASSIGN_OR_RETURN(Expression::Pointer value, ParseExpression());
      node->args.push_back(std::move(value));
    }
  }
  Advance();
  return absl::OkStatus();
}

ExpressionParser::Result ExpressionParser::ParseCall(Expression::Pointer callee) {
  if (callee->kind == Expression::kAttribute && IsLackedMethod(callee->name)) {
    return LacksError(callee->line, absl::StrCat("the method \"", callee->name, "\""));
  }
  Expression::Pointer node = Node(Expression::kCall, std::move(callee));
  RETURN_IF_ERROR(ParseArguments(node.get()));
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParseFilters(Expression::Pointer node) {
  for (;;) {
    if (SkipOperator("|")) {
      ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    } else if (SkipName("is")) {
      ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseFilter(Expression::Pointer input) {
  Expression::Pointer node = Node(Expression::kFilter, std::move(input));
  node->line = current().line;
  ASSIGN_OR_RETURN(node->name, ExpectName("a filter's name"));
  node->filter = FindFilter(node->name);
  if (node->filter == nullptr || IsOperator(".")) {
    return LacksError(node->line, absl::StrCat("the filter \"", node->name, "\""));
  }
  if (IsOperator("(")) RETURN_IF_ERROR(ParseArguments(node.get()));
  if (const std::string lacked = LackedInside(*node); !lacked.empty()) {
    return LacksError(node->line, lacked);
  }
  return Finish(std::move(node));
}

ExpressionParser::Result ExpressionParser::ParseTest(Expression::Pointer input) {
  const bool negated = SkipName("not");
  Expression::Pointer node = Node(Expression::kTest, std::move(input));
  ASSIGN_OR_RETURN(node->name, ExpectName("a test's name"));
  node->test = FindTest(node->name);
  if (node->test == nullptr || IsOperator(".")) {
    return LacksError(node->line, absl::StrCat("the test \"", node->name, "\""));
  }
  const Token::Kind kind = current().kind;
  if (IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(node.get()));
  } else if ((kind == Token::kName || kind == Token::kString || kind == Token::kInt ||
              kind == Token::kFloat || IsOperator("[") || IsOperator("{")) &&
             !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) return SyntaxError(current().line, "two tests in a row, \"is ... is\"");
    ASSIGN_OR_RETURN(Expression::Pointer argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node->args.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(node, Finish(std::move(node)));
  if (!negated) return node;
  return Finish(Node(Expression::kNot, std::move(node)));
}

}  // namespace athanor::jinja
