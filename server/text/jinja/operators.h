// Python's operators on values, and its ways to a value's parts.
//
// Each fails the Work with INVALID_ARGUMENT where Python raises, and where an integer would need
// more than 64 bits. Text keeps the marks of its bytes.
#ifndef ATHANOR_SERVER_TEXT_JINJA_OPERATORS_H_
#define ATHANOR_SERVER_TEXT_JINJA_OPERATORS_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/text/jinja/value.h"

namespace athanor::jinja {

bool Truth(const Value& value);
bool Equal(Work* work, const Value& a, const Value& b);
// Returns -1, 0 or 1. Fails where Python's < does.
int Order(Work* work, const Value& a, const Value& b);
// Returns the places of `keys` in ascending order (descending if `reverse`); equals stay in order.
std::vector<size_t> SortedPlaces(Work* work, const std::vector<Value>& keys, bool reverse);
bool Contains(Work* work, const Value& container, const Value& value);
// One of == != < <= > >= in "not in".
bool Compare(Work* work, absl::string_view op, const Value& a, const Value& b);
// One of + - * / // % **.
Value Binary(Work* work, absl::string_view op, const Value& a, const Value& b);
Value Negate(Work* work, const Value& value);
// False for lists and dicts, which it fails.
bool CanBeKey(Work* work, const Value& key);

// Undefined if there is no such part, as jinja2's environment; `a.name` finds methods first.
Value Attribute(Work* work, const Value& object, const std::string& name);
Value Item(Work* work, const Value& object, const Value& index);
Value Slice(Work* work, const Value& object, const Value& begin, const Value& end,
            const Value& step);

// Elements of what can be iterated; takes a generator's. Fails for others.
std::vector<Value> Elements(Work* work, const Value& value);
// len(); nullopt where there is none (without failing).
std::optional<int64_t> Length(const Value& value);

// "'x' is undefined"; "list".
Value FailUndefined(Work* work, const Value& value);
absl::string_view TypeName(const Value& value);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_OPERATORS_H_
