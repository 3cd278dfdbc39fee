#include "server/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/expression_parser.h"
#include "server/text/jinja/lexer.h"
#include "server/text/jinja/names.h"

namespace athanor::jinja {
namespace {

using Body = Statement::Body;

bool IsIn(absl::string_view name, std::initializer_list<absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Parser final : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  absl::StatusOr<Statement::Pointer> Run();

 private:
  using Result = absl::StatusOr<Statement::Pointer>;

  // A macro or a call's body: no loop outside it can be left from inside.
  struct Function {
    std::vector<std::string> parameters;
    bool is_macro = false;
    int loops = 0;
  };

  absl::Status Named(const std::string& name, int line) override;

  // Statements up to a tag with one of `ends`; that name is then the current token.
  absl::StatusOr<Body> ParseBody(std::initializer_list<absl::string_view> ends);
  // A body up to the tag `end`, from the end of the tag before it on.
  absl::StatusOr<Body> ParseBlock(absl::string_view end);
  absl::Status ExpectTagEnd();
  absl::StatusOr<std::string> ExpectNameToSet();
  Result ParseTag();
  Result ParseIf();
  Result ParseFor();
  Result ParseSet();
  Result ParseWith();
  Result ParseMacro();
  Result ParseCallBlock();
  Result ParseFilterBlock();
  absl::Status ParseFunctionBody(absl::string_view end, Statement* node);
  absl::StatusOr<Statement::Target> ParseTarget(bool with_attribute);
  absl::StatusOr<Statement::Target> ParseTargetPart(bool with_attribute);
  absl::StatusOr<std::vector<Statement::Parameter>> ParseParameters();
  Statement::Pointer Node(Statement::Kind kind) const;

  std::vector<Function> functions_ = {{}};
};

Statement::Pointer Parser::Node(Statement::Kind kind) const {
  auto node = std::make_unique<Statement>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

absl::Status Parser::Named(const std::string& name, int line) {
  if (IsIn(name, {"lipsum", "cycler", "joiner", "self", "super"})) {
    return LacksError(line, absl::StrCat("\"", name, "\""));
  }
  if (IsIn(name, {"varargs", "kwargs"})) {
    for (const Function& function : functions_) {
      const auto& own = function.parameters;
      if (function.is_macro && std::find(own.begin(), own.end(), name) == own.end()) {
        return LacksError(line, absl::StrCat("\"", name, "\" in a macro"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Statement::Pointer> Parser::Run() {
  Statement::Pointer root = Node(Statement::kScope);
  ASSIGN_OR_RETURN(root->body, ParseBody({}));
  RETURN_IF_ERROR(BindNames(root.get()));
  return root;
}

absl::StatusOr<Body> Parser::ParseBody(std::initializer_list<absl::string_view> ends) {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  Body body;
  for (;;) {
    switch (current().kind) {
      case Token::kText:
        body.push_back(Node(Statement::kText));
        body.back()->text = Marked(current().text, true);
        Advance();
        break;
      case Token::kPrint: {
        Advance();
        body.push_back(Node(Statement::kPrint));
        ASSIGN_OR_RETURN(body.back()->expression, ParseTuple(true));
        if (current().kind != Token::kPrintEnd) return Error("\"}}\"");
        Advance();
        break;
      }
      case Token::kTag: {
        Advance();
        if (current().kind == Token::kName && IsIn(current().text, ends)) return body;
        ASSIGN_OR_RETURN(Statement::Pointer node, ParseTag());
        body.push_back(std::move(node));
        RETURN_IF_ERROR(ExpectTagEnd());
        break;
      }
      default:
        if (ends.size() == 0 && current().kind == Token::kEnd) return body;
        return Error(absl::StrCat("\"", ends.size() == 0 ? "a tag" : *(ends.end() - 1), "\""));
    }
  }
}

absl::Status Parser::ExpectTagEnd() {
  if (current().kind != Token::kTagEnd) return Error("\"%}\"");
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<std::string> Parser::ExpectNameToSet() {
  const int line = current().line;
  ASSIGN_OR_RETURN(std::string name, ExpectName("a name to set"));
  if (IsIn(name, {"true", "false", "none", "True", "False", "None"})) {
    return SyntaxError(line, absl::StrCat("\"", name, "\" cannot be set"));
  }
  return name;
}

absl::StatusOr<Body> Parser::ParseBlock(absl::string_view end) {
  SkipOperator(":");
  RETURN_IF_ERROR(ExpectTagEnd());
  ASSIGN_OR_RETURN(Body body, ParseBody({end}));
  Advance();
  return body;
}

Parser::Result Parser::ParseTag() {
  const int line = current().line;
  ASSIGN_OR_RETURN(const std::string tag, ExpectName("a tag's name"));
  if (tag == "if") return ParseIf();
  if (tag == "for") return ParseFor();
  if (tag == "set") return ParseSet();
  if (tag == "with") return ParseWith();
  if (tag == "macro") return ParseMacro();
  if (tag == "call") return ParseCallBlock();
  if (tag == "filter") return ParseFilterBlock();
  if (tag == "generation") {
    Statement::Pointer node = Node(Statement::kScope);
    RETURN_IF_ERROR(ParseFunctionBody("endgeneration", node.get()));
    return node;
  }
  if (tag == "break" || tag == "continue") {
    if (functions_.back().loops == 0) return SyntaxError(line, tag + " outside a loop");
    return Node(tag == "break" ? Statement::kBreak : Statement::kContinue);
  }
  if (IsIn(tag, {"autoescape", "block", "do", "extends", "from", "import", "include", "trans"})) {
    return LacksError(line, absl::StrCat("the tag \"", tag, "\""));
  }
  return SyntaxError(line, absl::StrCat("there is no tag \"", tag, "\" here"));
}

Parser::Result Parser::ParseIf() {
  Statement::Pointer node = Node(Statement::kIf);
  for (;;) {
    Statement::Arm arm;
    ASSIGN_OR_RETURN(arm.test, ParseTuple(false));
    SkipOperator(":");
    RETURN_IF_ERROR(ExpectTagEnd());
    ASSIGN_OR_RETURN(arm.body, ParseBody({"elif", "else", "endif"}));
    node->arms.push_back(std::move(arm));
    if (SkipName("elif")) continue;
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(node->otherwise, ParseBlock("endif"));
    } else {
      Advance();
    }
    return node;
  }
}

Parser::Result Parser::ParseFor() {
  Statement::Pointer node = Node(Statement::kFor);
  ASSIGN_OR_RETURN(node->target, ParseTarget(false));
  if (!SkipName("in")) return Error("\"in\"");
  ASSIGN_OR_RETURN(node->expression, ParseTuple(false));
  if (SkipName("if")) {
    ASSIGN_OR_RETURN(node->test, ParseExpression());
  }
  if (IsName("recursive")) return LacksError(current().line, "recursive loops");
  SkipOperator(":");
  RETURN_IF_ERROR(ExpectTagEnd());
  ++functions_.back().loops;
  ASSIGN_OR_RETURN(node->body, ParseBody({"else", "endfor"}));
  --functions_.back().loops;
  if (SkipName("else")) {
    ASSIGN_OR_RETURN(node->otherwise, ParseBlock("endfor"));
  } else {
    Advance();
  }
  return node;
}

Parser::Result Parser::ParseSet() {
  Statement::Pointer node = Node(Statement::kSet);
  ASSIGN_OR_RETURN(node->target, ParseTarget(true));
  if (SkipOperator("=")) {
    ASSIGN_OR_RETURN(node->expression, ParseTuple(true));
    return node;
  }
  node->kind = Statement::kSetBlock;
  while (SkipOperator("|")) {
    ASSIGN_OR_RETURN(node->filter, ParseFilter(std::move(node->filter)));
  }
  ASSIGN_OR_RETURN(node->body, ParseBlock("endset"));
  return node;
}

Parser::Result Parser::ParseWith() {
  Statement::Pointer node = Node(Statement::kWith);
  while (current().kind != Token::kTagEnd) {
    if (!node->parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    const int line = current().line;
    const bool is_tuple = IsOperator("(");
    std::string name;
    if (!is_tuple) {
      ASSIGN_OR_RETURN(name, ExpectNameToSet());
    }
    if (is_tuple || IsOperator(",")) {
      return LacksError(line, "several names in one part of a with");
    }
    RETURN_IF_ERROR(ExpectOperator("="));
    ASSIGN_OR_RETURN(Expression::Pointer value, ParseExpression());
    node->parameters.push_back({std::move(name), std::move(value)});
  }
  ASSIGN_OR_RETURN(node->body, ParseBlock("endwith"));
  return node;
}

absl::StatusOr<std::vector<Statement::Parameter>> Parser::ParseParameters() {
  std::vector<Statement::Parameter> parameters;
  absl::flat_hash_set<std::string> names;
  RETURN_IF_ERROR(ExpectOperator("("));
  while (!IsOperator(")")) {
    if (!parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    const int line = current().line;
    Statement::Parameter parameter;
    ASSIGN_OR_RETURN(parameter.name, ExpectNameToSet());
    if (parameter.name == "caller") return LacksError(line, "a parameter named \"caller\"");
    if (!names.insert(parameter.name).second) {
      return SyntaxError(line, "two parameters of one name");
    }
    if (SkipOperator("=")) {
      ASSIGN_OR_RETURN(parameter.value, ParseExpression());
    } else if (!parameters.empty() && parameters.back().value != nullptr) {
      return SyntaxError(line, "a parameter without a default behind one with a default");
    }
    parameters.push_back(std::move(parameter));
  }
  Advance();
  return parameters;
}

absl::Status Parser::ParseFunctionBody(absl::string_view end, Statement* node) {
  Function function;
  function.is_macro = true;
  for (const Statement::Parameter& parameter : node->parameters) {
    function.parameters.push_back(parameter.name);
  }
  functions_.push_back(std::move(function));
  ASSIGN_OR_RETURN(node->body, ParseBlock(end));
  functions_.pop_back();
  return absl::OkStatus();
}

Parser::Result Parser::ParseMacro() {
  Statement::Pointer node = Node(Statement::kMacro);
  ASSIGN_OR_RETURN(node->target.name, ExpectNameToSet());
  ASSIGN_OR_RETURN(node->parameters, ParseParameters());
  RETURN_IF_ERROR(ParseFunctionBody("endmacro", node.get()));
  return node;
}

Parser::Result Parser::ParseCallBlock() {
  Statement::Pointer node = Node(Statement::kCall);
  if (IsOperator("(")) {
    ASSIGN_OR_RETURN(node->parameters, ParseParameters());
  }
  ASSIGN_OR_RETURN(node->expression, ParseExpression());
  if (node->expression->kind != Expression::kCall) {
    return SyntaxError(node->line, "a call block calls nothing");
  }
  for (const auto& [name, value] : node->expression->named) {
    if (name == "caller") return SyntaxError(node->line, "an argument is given twice: caller");
  }
  RETURN_IF_ERROR(ParseFunctionBody("endcall", node.get()));
  return node;
}

Parser::Result Parser::ParseFilterBlock() {
  Statement::Pointer node = Node(Statement::kFilter);
  ASSIGN_OR_RETURN(node->filter, ParseFilter(nullptr));
  while (SkipOperator("|")) {
    ASSIGN_OR_RETURN(node->filter, ParseFilter(std::move(node->filter)));
  }
  ASSIGN_OR_RETURN(node->body, ParseBlock("endfilter"));
  return node;
}

absl::StatusOr<Statement::Target> Parser::ParseTargetPart(bool with_attribute) {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  if (SkipOperator("(")) {
    ASSIGN_OR_RETURN(Statement::Target target, ParseTarget(with_attribute));
    RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  Statement::Target target;
  ASSIGN_OR_RETURN(target.name, ExpectNameToSet());
  if (with_attribute && SkipOperator(".")) {
    ASSIGN_OR_RETURN(target.attribute, ExpectName("a namespace's attribute"));
  }
  return target;
}

absl::StatusOr<Statement::Target> Parser::ParseTarget(bool with_attribute) {
  ASSIGN_OR_RETURN(Statement::Target first, ParseTargetPart(with_attribute));
  if (!IsOperator(",")) return first;
  Statement::Target target;
  target.is_tuple = true;
  target.parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (IsName("in") || IsOperator("=") || IsOperator(")") || current().kind == Token::kTagEnd)
      break;
    ASSIGN_OR_RETURN(Statement::Target part, ParseTargetPart(with_attribute));
    target.parts.push_back(std::move(part));
  }
  return target;
}

}  // namespace

absl::StatusOr<Statement::Pointer> Parse(absl::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the chat template has ", source.size(),
                                                   " bytes; at most ", kMaxTemplateBytes,
                                                   " are served"));
  }
  if (!IsUtf8(source)) return absl::InvalidArgumentError("the chat template is not UTF-8");
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokens(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace athanor::jinja
