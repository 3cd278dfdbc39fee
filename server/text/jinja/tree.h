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

// Says where a name's value is: in a variable of the function that is `out` functions around the
// one that runs. BindNames (names.h) fills all of them in.
struct Place {
  int out = 0;
  int variable = -1;   // -1: none
  bool given = false;  // by a loop, a call or a with, so jinja2 does not look whether it is set
};

// Names of a part of a template that has its own: how each variable begins when it is entered.
struct Scope {
  enum Way : uint8_t {
    kUndefined,
    kResolved,  // the chat's variable or the function `name`
    kOuter,     // the value at `outer`
    kGiven,     // who enters sets it
  };
  struct Begin {
    Way way;
    int variable;
    std::string name;
    Place outer;
  };
  std::vector<Begin> begins;
  int variables = 0;  // of the function, if the scope is one's
};

struct Expression {
  enum Kind : uint8_t {
    kConstant,   // value, or text
    kName,       // name, place
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
  Place place;
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
    kMacro,     // target (its name), parameters, body
    kCall,      // parameters, expression (a call), body
    kFilter,    // filter, body
    kScope,     // body; {% generation %}, and the template itself
    kBreak,
    kContinue,
  };
  using Pointer = std::unique_ptr<Statement>;
  using Body = std::vector<Pointer>;

  // A name, an attribute of a namespace, or several in brackets.
  struct Target {
    std::string name;
    Place place;
    std::string attribute;
    std::vector<Target> parts;
    bool is_tuple = false;
  };
  struct Parameter {
    std::string name;
    Expression::Pointer value;  // the default; may be null
    int variable = -1;
  };
  struct Arm {
    Expression::Pointer test;
    Body body;
  };

  Kind kind = kText;
  int line = 0;
  Marked text;
  Expression::Pointer expression, test, filter;
  Target target, test_target;  // names that the body, and the test of a loop, see
  Body body, otherwise;
  std::vector<Arm> arms;
  std::vector<Parameter> parameters;
  // Macros, callers and kScope are functions; other scopes are parts of one.
  Scope scope, otherwise_scope, test_scope;
  // The variable `loop` of a loop, `caller` of a function, if the body reads it; else -1.
  int special = -1;
};

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_TREE_H_
