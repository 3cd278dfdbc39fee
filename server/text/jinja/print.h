// Values as text: str(), repr() and json.dumps() of Python.
#ifndef ATHANOR_SERVER_TEXT_JINJA_PRINT_H_
#define ATHANOR_SERVER_TEXT_JINJA_PRINT_H_

#include <optional>
#include <string>

#include "server/text/jinja/marked.h"
#include "server/text/jinja/value.h"

namespace athanor::jinja {

// Brackets, quotes and commas are not trusted; texts inside keep their marks.
void AppendStr(Work* work, const Value& value, Marked* out);
void AppendRepr(Work* work, const Value& value, Marked* out);
// Returns `value` itself if it is text.
Value Str(Work* work, const Value& value);

std::string FloatRepr(double value);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  std::optional<std::string> indent;
  Marked item = Marked(", ", false);
  Marked key = Marked(": ", false);
};
void AppendJson(Work* work, const Value& value, const JsonStyle& style, Marked* out);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_PRINT_H_
