// Values of a template, and the bounded work that makes them.
//
//   Work work(limits);
//   Value name = work.String("Ada", /*trusted=*/false);
//   Value row = work.Tuple({name, Value::Int(36)});
//   if (work.failed()) return work.status();        // a limit, or an error of the template
//
// All that a run makes lives until its Work ends, so values are plain pointers and may form cycles.
// What is made is charged and never given back: `bytes` bounds the memory of a run. The first
// failure is kept; after it values mean nothing, but all functions may still be called.
#ifndef ATHANOR_SERVER_TEXT_JINJA_VALUE_H_
#define ATHANOR_SERVER_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/text/jinja/marked.h"

namespace athanor {

struct RenderLimits {
  int64_t steps = 20'000'000;        // nodes evaluated, elements visited, 16 bytes of text each
  int64_t bytes = int64_t{1} << 28;  // all texts, lists and variables made
  int depth = 400;                   // nested nodes, macros and values
};

namespace jinja {

struct Statement;
struct Sequence;
struct Dict;
struct Callable;
struct Variables;
class Loop;

struct Value {
  enum Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kSequence,
    kDict,
    kNamespace,  // a Dict of names
    kLoop,
    kCallable,
  };
  Kind kind = kUndefined;
  bool trusted = true;  // of bool, int, float: its text is the authors'
  bool safe = false;    // of text: jinja2's Markup, to which + escapes
  union {
    const std::string* name = nullptr;  // of undefined: of the variable or attribute; may be null
    bool flag;
    int64_t integer;
    double real;
    const Marked* text;
    Sequence* sequence;
    Dict* dict;
    Loop* loop;
    Callable* callable;
  };

  static Value Undefined(const std::string* name) {
    Value value;
    value.name = name;
    return value;
  }
  static Value None() { return Of(kNone); }
  static Value Bool(bool flag) {
    Value value = Of(kBool);
    value.flag = flag;
    return value;
  }
  static Value Int(int64_t integer) {
    Value value = Of(kInt);
    value.integer = integer;
    return value;
  }
  static Value Float(double real) {
    Value value = Of(kFloat);
    value.real = real;
    return value;
  }
  static Value Text(const Marked* text) {
    Value value = Of(kString);
    value.text = text;
    return value;
  }

  bool Is(Kind other) const { return kind == other; }
  bool IsNumber() const { return kind == kBool || kind == kInt || kind == kFloat; }
  bool IsInteger() const { return kind == kBool || kind == kInt; }
  // REQUIRES: IsInteger().
  int64_t AsInt() const { return kind == kBool ? flag : integer; }
  // REQUIRES: IsNumber().
  double AsDouble() const { return kind == kFloat ? real : static_cast<double>(AsInt()); }
  const std::string& bytes() const { return text->bytes(); }  // REQUIRES: Is(kString)

 private:
  static Value Of(Kind kind) {
    Value value;
    value.kind = kind;
    return value;
  }
};

struct Sequence {
  enum Form : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };
  Form form = kList;
  std::vector<Value> items;
  size_t taken = 0;  // of a generator: read already
};

// Keeps the order of insertion, as Python's.
struct Dict {
  std::vector<std::pair<Value, Value>> rows;
  absl::flat_hash_map<absl::string_view, size_t> by_text;  // rows whose keys are text
};

struct Callable {
  enum Form : uint8_t { kMacro, kCaller, kMethod, kFunction };
  Form form;
  absl::string_view name;            // of a method or function
  Value self;                        // of a method
  const Statement* macro = nullptr;  // also of a caller
  Variables* outer = nullptr;        // of the function that defined a macro
};

// Holds the variables of one call of a function: the template, a macro, the body of a call,
// `generation`.
struct Variables {
  Variables* outer = nullptr;
  std::vector<std::optional<Value>> values;  // none: undefined
};

class Work {
 public:
  explicit Work(const RenderLimits& limits) : limits_(limits) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }
  // Keeps the first failure, with the line; returns a value for the caller to return.
  Value Fail(const absl::Status& status);
  Value Wrong(absl::string_view message) { return Fail(absl::InvalidArgumentError(message)); }
  Value Lacks(absl::string_view message) { return Fail(absl::UnimplementedError(message)); }

  // Both return false once the run has failed.
  bool Step(int64_t steps = 1);
  bool Charge(int64_t bytes);
  // Steps for looking at so many bytes.
  bool StepBytes(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 16)); }

  Value String(Marked text);
  Value String(std::string bytes, bool trusted) {
    return String(Marked(std::move(bytes), trusted));
  }
  Value List(std::vector<Value> items) { return Make(Sequence::kList, std::move(items)); }
  Value Tuple(std::vector<Value> items) { return Make(Sequence::kTuple, std::move(items)); }
  Value Make(Sequence::Form form, std::vector<Value> items);
  Value NewDict(Value::Kind kind = Value::kDict);
  Value Function(const Callable& callable);
  Variables* NewVariables(Variables* outer, int count);

  // Lists, dicts and other keys that Python cannot hash fail.
  void Put(Dict* dict, const Value& key, const Value& value);
  // Returns null if there is no such key.
  const Value* Get(const Dict& dict, const Value& key);

  int line = 0;  // of the statement or expression that is evaluated
  // Guards recursion: `Depth in(work); if (!in) return {};`
  class Depth {
   public:
    explicit Depth(Work* work) : work_(work) { ++work->depth_; }
    ~Depth() { --work_->depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    explicit operator bool() const { return work_->InDepth(); }

   private:
    Work* work_;
  };

 private:
  bool InDepth();

  const RenderLimits limits_;
  absl::Status status_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int depth_ = 0;
  std::deque<Marked> texts_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Callable> callables_;
  std::deque<Variables> variables_;
};

}  // namespace jinja
}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_JINJA_VALUE_H_
