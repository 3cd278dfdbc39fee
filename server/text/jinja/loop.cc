#include "server/text/jinja/loop.h"

#include <limits>

#include "server/text/jinja/operators.h"

namespace athanor::jinja {

void Loop::Find(size_t count) {
  while (found_.size() < count && looked_ < all_.size() && work_->Step()) {
    const Value& item = all_[looked_++];
    const std::optional<Value> passed = passes_ == nullptr ? item : passes_(item);
    if (passed.has_value()) found_.push_back(*passed);
  }
}

const Value* Loop::Next() {
  Find(at_ + 1);
  if (at_ >= found_.size() || work_->failed()) return nullptr;
  return &found_[at_++];
}

Value Loop::Attribute(const Value& self, const std::string& name) {
  const auto index = static_cast<int64_t>(at_);
  const auto length = [this] {
    Find(std::numeric_limits<size_t>::max());
    return static_cast<int64_t>(found_.size());
  };
  if (name == "index") return Value::Int(index);
  if (name == "index0") return Value::Int(index - 1);
  if (name == "first") return Value::Bool(index == 1);
  if (name == "depth") return Value::Int(depth_);
  if (name == "depth0") return Value::Int(depth_ - 1);
  if (name == "length") return Value::Int(length());
  if (name == "revindex") return Value::Int(length() - index + 1);
  if (name == "revindex0") return Value::Int(length() - index);
  if (name == "previtem") return at_ > 1 ? found_[at_ - 2] : Value::Undefined(&name);
  if (name == "cycle" || name == "changed") {
    return work_->Function({Callable::kMethod, name == "cycle" ? "cycle" : "changed", self});
  }
  if (name == "last" || name == "nextitem") {
    Find(at_ + 1);
    const bool last = at_ >= found_.size();
    if (name == "last") return Value::Bool(last);
    return last ? Value::Undefined(&name) : found_[at_];
  }
  return Value::Undefined(&name);
}

Value Loop::Cycle(const std::vector<Value>& values) const {
  if (values.empty()) return work_->Wrong("loop.cycle() without values");
  return values[(at_ - 1) % values.size()];
}

bool Loop::Changed(const std::vector<Value>& values) {
  bool same = last_changed_.has_value() && last_changed_->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    same = Equal(work_, (*last_changed_)[i], values[i]);
  }
  last_changed_ = values;
  return !same;
}

}  // namespace athanor::jinja
