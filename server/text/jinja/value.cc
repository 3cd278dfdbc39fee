#include "server/text/jinja/value.h"

#include "absl/strings/str_cat.h"
#include "server/text/jinja/operators.h"

namespace athanor::jinja {

Value Work::Fail(const absl::Status& status) {
  if (failed()) return {};
  status_ = absl::Status(status.code(),
                         absl::StrCat("the chat template, line ", line, ": ", status.message()));
  return {};
}

bool Work::Step(int64_t steps) {
  if (steps <= limits_.steps - steps_) {
    steps_ += steps;
  } else {
    Fail(absl::ResourceExhaustedError(
        absl::StrCat("it takes more than ", limits_.steps, " steps for this chat")));
  }
  return !failed();
}

bool Work::Charge(int64_t bytes) {
  if (bytes <= limits_.bytes - bytes_) {
    bytes_ += bytes;
  } else {
    Fail(absl::ResourceExhaustedError(
        absl::StrCat("it makes more than ", limits_.bytes, " bytes of values for this chat")));
  }
  return !failed();
}

bool Work::InDepth() {
  if (depth_ > limits_.depth && !failed()) {
    Fail(absl::ResourceExhaustedError(
        absl::StrCat("it nests deeper than ", limits_.depth, " for this chat")));
  }
  return !failed();
}

Value Work::String(Marked text) {
  if (!Charge(static_cast<int64_t>(sizeof(Marked) + text.size() +
                                   text.runs().size() * sizeof(Marked::Run))) ||
      !StepBytes(text.size())) {
    return {};
  }
  return Value::Text(&texts_.emplace_back(std::move(text)));
}

Value Work::Make(Sequence::Form form, std::vector<Value> items) {
  const auto count = static_cast<int64_t>(items.size());
  if (!Charge(static_cast<int64_t>(sizeof(Sequence)) +
              count * static_cast<int64_t>(sizeof(Value))) ||
      !Step(1 + count)) {
    return {};
  }
  Value value;
  value.kind = Value::kSequence;
  value.sequence = &sequences_.emplace_back(Sequence{form, std::move(items)});
  return value;
}

Value Work::NewDict(Value::Kind kind) {
  if (!Charge(sizeof(Dict))) return {};
  Value value;
  value.kind = kind;
  value.dict = &dicts_.emplace_back();
  return value;
}

Value Work::Function(const Callable& callable) {
  if (!Charge(sizeof(Callable))) return {};
  Value value;
  value.kind = Value::kCallable;
  value.callable = &callables_.emplace_back(callable);
  return value;
}

Variables* Work::NewVariables(Variables* outer, int count) {
  Variables& made = variables_.emplace_back();
  made.outer = outer;
  made.values.resize(count);  // also of a failed run, which may still write them
  Charge(static_cast<int64_t>(sizeof(Variables)) +
         count * static_cast<int64_t>(sizeof(std::optional<Value>)));
  Step(count / 16);
  return &made;
}

void Work::Put(Dict* dict, const Value& key, const Value& value) {
  if (!CanBeKey(this, key) || !Step()) return;
  if (key.Is(Value::kString)) {
    const auto [row, added] = dict->by_text.try_emplace(key.bytes(), dict->rows.size());
    if (!added) {
      dict->rows[row->second].second = value;
      return;
    }
  } else if (const Value* there = Get(*dict, key)) {
    *const_cast<Value*>(there) = value;
    return;
  }
  if (Charge(sizeof(std::pair<Value, Value>) + 32)) dict->rows.emplace_back(key, value);
}

const Value* Work::Get(const Dict& dict, const Value& key) {
  if (key.Is(Value::kString)) {
    const auto row = dict.by_text.find(key.bytes());
    return row == dict.by_text.end() ? nullptr : &dict.rows[row->second].second;
  }
  if (!CanBeKey(this, key)) return nullptr;
  for (const auto& [other, value] : dict.rows) {
    if (!Step()) return nullptr;
    if (!other.Is(Value::kString) && Equal(this, other, key)) return &value;
  }
  return nullptr;
}

}  // namespace athanor::jinja
