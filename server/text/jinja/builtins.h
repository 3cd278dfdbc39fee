// Filters, tests, methods and functions: one table each, by name.
//
//   const FilterRow* row = FindFilter("trim");
//   Value trimmed = row->apply(&caller, input, &arguments);
//
// Their results are those of jinja2 3.1.6 under its sandbox that changes nothing, of Python's
// methods, and of `tojson` as transformers sets it. What is not here is refused by the parser.
#ifndef ATHANOR_SERVER_TEXT_JINJA_BUILTINS_H_
#define ATHANOR_SERVER_TEXT_JINJA_BUILTINS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "server/text/jinja/tree.h"
#include "server/text/jinja/value.h"

namespace athanor::jinja {

// Arguments of one call.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<absl::string_view, Value>> named;

  // Gives each parameter its argument, in order. Fails if there are more, others, or one twice, or
  // if one of the first `required` has none.
  std::vector<std::optional<Value>> Bind(Work* work, absl::string_view callee, size_t required,
                                         std::initializer_list<absl::string_view> parameters) const;
};

// Calls macros; the evaluator is one.
class Caller {
 public:
  virtual Value Call(const Value& callee, const Arguments& arguments) = 0;
  Work* const work;
  const absl::CivilSecond now;

 protected:
  Caller(Work* run, absl::CivilSecond time) : work(run), now(time) {}
  ~Caller() = default;
};

struct FilterRow {
  absl::string_view name;
  Value (*apply)(Caller* caller, const Value& input, const Arguments& arguments);
};
struct TestRow {
  absl::string_view name;
  bool (*holds)(Caller* caller, const Value& input, const Arguments& arguments);
};

const FilterRow* FindFilter(absl::string_view name);  // null if there is none
const TestRow* FindTest(absl::string_view name);
// Names what a filter's or test's constant argument names and we lack; empty if nothing.
std::string LackedInside(const Expression& filter);
// True for methods of Python's text, lists, dicts and numbers that are not served.
bool IsLackedMethod(absl::string_view name);

// Returns whether a value of this type has that method, and calls it.
bool HasMethod(const Value& self, absl::string_view name);
// True if it has one that may not be called, since it changes the value.
bool HasChangingMethod(const Value& self, absl::string_view name);
Value CallMethod(Caller* caller, const Callable& method, const Arguments& arguments);

// range, dict, namespace, raise_exception, strftime_now.
bool IsFunction(absl::string_view name);
Value CallFunction(Caller* caller, absl::string_view name, const Arguments& arguments);

// More filters by table: of text, and of lists.
absl::Span<const FilterRow> TextFilters();
absl::Span<const FilterRow> ListFilters();

// "a.b" or a number of `attribute`, through `value`; `value` itself for none.
Value AttributePath(Work* work, const Value& value, const Value& attribute);
// Python's methods of text, which some filters share.
Value Cased(Work* work, const Value& text, absl::string_view how);  // upper lower capitalize title
Value Stripped(Work* work, const Value& text, bool left, bool right, const Value& characters);
Value Replaced(Work* work, const Marked& text, const Marked& from, const Marked& to, int64_t most);
Value Padded(Work* work, const Marked& text, int64_t width, char align,
             const Marked& fill = Marked(" ", true));
std::vector<Marked> LinesOf(Work* work, const Marked& text, bool keep_ends);

// "x %s" % value, and "x {}".format(...).
Value FormatPercent(Work* work, const Marked& format, const Value& value);
Value FormatBraces(Work* work, const Marked& format, const Arguments& arguments);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_BUILTINS_H_
