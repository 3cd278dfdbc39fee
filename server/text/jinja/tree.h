// A parsed template: statements that hold expressions. Immutable once parsed.
#ifndef ATHANOR_SERVER_TEXT_JINJA_TREE_H_
#define ATHANOR_SERVER_TEXT_JINJA_TREE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text/jinja/marked.h"
#include "server/text/jinja/value.h"

namespace athanor::jinja {

struct FilterRow;
struct TestRow;

struct Expression {
  enum Kind : uint8_t {
    kConstant,   // value, or text
    kName,       // name
    kTuple,      // args
    kList,       // args
    kDict,       // args: key, value, key, value
    kIf,         // args: test, then, else (may be null)
    kOr,         // args: two
    kAnd,        // args: two
    kNot,        // args: one
    kCompare,    // args: first and its operands; operators: one less
    kBinary,     // args: two; name: + - * / // % **
    kConcat,     // args
    kNegate,     // args: one
    kPlus,       // args: one
    kFilter,     // args: input (null at a block's start), then positional; named; filter
    kTest,       // args: input, then positional; named; test
    kCall,       // args: callee, then positional; named
    kAttribute,  // args: object; name
    kItem,       // args: object, index
    kSlice,      // args: object, begin, end, step, each of which may be null
  };
  using Pointer = std::unique_ptr<Expression>;

  Kind kind = kConstant;
  int line = 0;
  int depth = 1;  // of the tree from here down
  Value value;
  Marked text;
  std::string name;
  std::vector<Pointer> args;
  std::vector<std::pair<std::string, Pointer>> named;
  std::vector<std::string> operators;  // == != < <= > >= in "not in"
  const FilterRow* filter = nullptr;
  const TestRow* test = nullptr;
};

struct Statement {
  enum Kind : uint8_t {
    kText,      // text
    kPrint,     // expression
    kIf,        // arms: the tests and bodies in order; otherwise
    kFor,       // target, expression, test (may be null), body, otherwise
    kSet,       // target, expression
    kSetBlock,  // target, filter (may be null), body
    kWith,      // targets and values as `parameters`, body
    kMacro,     // name, parameters, body
    kCall,      // parameters, expression (a call), body
    kFilter,    // filter, body
    kScope,     // body; {% generation %}
    kBreak,
    kContinue,
  };
  using Pointer = std::unique_ptr<Statement>;
  using Body = std::vector<Pointer>;

  // A name, an attribute of a namespace, or several in brackets.
  struct Target {
    std::string name;
    std::string attribute;
    std::vector<Target> parts;
    bool is_tuple = false;
  };
  struct Parameter {
    std::string name;
    Expression::Pointer value;  // the default; may be null
  };
  struct Arm {
    Expression::Pointer test;
    Body body;
  };

  Kind kind = kText;
  int line = 0;
  Marked text;
  Expression::Pointer expression, test, filter;
  Target target;
  Body body, otherwise;
  std::vector<Arm> arms;
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_caller = false;  // of a macro or a caller: its body names `caller`
};

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_TREE_H_
