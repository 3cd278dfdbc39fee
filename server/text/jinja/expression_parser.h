// The half of the parser that reads expressions; Parser (parser.cc) adds statements.
#ifndef ATHANOR_SERVER_TEXT_JINJA_EXPRESSION_PARSER_H_
#define ATHANOR_SERVER_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/jinja/lexer.h"
#include "server/text/jinja/tree.h"

namespace athanor::jinja {

// Reads tokens from the current one on. Not thread-safe.
class ExpressionParser {
 public:
  using Result = absl::StatusOr<Expression::Pointer>;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result ParseExpression();  // with "a if b else c"
  Result ParseOr();          // without
  // Expressions apart by commas: one, or a tuple. `conditional` as above.
  Result ParseTuple(bool conditional);
  // "|name(...)" and "is name" behind `input`.
  Result ParseFilters(Expression::Pointer input);
  // A filter whose name is the current token; `input` may be null.
  Result ParseFilter(Expression::Pointer input);
  // Arguments of a call, from "(" to ")", are added to `node`.
  absl::Status ParseArguments(Expression* node);
  Result ParseUnary(bool with_filter = true);

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Advance() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool IsOperator(absl::string_view text) const;
  bool IsName(absl::string_view text) const;
  bool SkipOperator(absl::string_view text);
  bool SkipName(absl::string_view text);
  absl::Status ExpectOperator(absl::string_view text);
  absl::StatusOr<std::string> ExpectName(absl::string_view what);
  absl::Status Error(absl::string_view wanted) const;
  // Bounds recursion and the tree.
  absl::Status Enter();
  void Leave() { --depth_; }

 protected:
  // Told of each name that is read.
  virtual absl::Status Named(const std::string& name, int line) = 0;
  ~ExpressionParser() = default;

 private:
  using Rule = Result (ExpressionParser::*)();

  Result ParseBinary(Rule operand, std::initializer_list<absl::string_view> operators);
  Result ParseAnd();
  Result ParseNot();
  Result ParseCompare();
  Result ParseSum();
  Result ParseConcat();
  Result ParseProduct();
  Result ParsePower();
  Result ParseOperand() { return ParseUnary(); }
  Result ParsePrimary();
  Result ParseBrackets();
  Result ParseList();
  Result ParseDict();
  Result ParsePostfix(Expression::Pointer node);
  Result ParseSubscript(Expression::Pointer node);
  Result ParseCall(Expression::Pointer node);
  Result ParseTest(Expression::Pointer input);
  // Sets the depth of `node` from its children.
  Result Finish(Expression::Pointer node) const;
  Expression::Pointer Node(Expression::Kind kind) const;
  Expression::Pointer Node(Expression::Kind kind, Expression::Pointer first) const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_EXPRESSION_PARSER_H_
