// The loop of a `for`: its elements that pass the test, found as they are asked for.
#ifndef ATHANOR_SERVER_TEXT_JINJA_LOOP_H_
#define ATHANOR_SERVER_TEXT_JINJA_LOOP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/text/jinja/value.h"

namespace athanor::jinja {

class Loop {
 public:
  // Returns what an element that passes the test becomes; nothing for another.
  using Passes = std::function<std::optional<Value>(const Value&)>;

  // `passes` may be null. Both must outlive the loop.
  Loop(Work* work, std::vector<Value> all, Passes passes, int depth)
      : work_(work), all_(std::move(all)), passes_(std::move(passes)), depth_(depth) {}

  // Moves to the next element; null behind the last one.
  const Value* Next();
  // index, index0, revindex, revindex0, first, last, length, previtem, nextitem, depth, depth0,
  // cycle, changed. Undefined for others.
  Value Attribute(const Value& self, const std::string& name);
  // Returns the element of `values` for this turn.
  Value Cycle(const std::vector<Value>& values) const;
  bool Changed(const std::vector<Value>& values);

 private:
  // Finds elements until there are `count`, or all.
  void Find(size_t count);

  Work* const work_;
  const std::vector<Value> all_;
  const Passes passes_;
  const int depth_;
  size_t looked_ = 0;  // of all_
  std::vector<Value> found_;
  size_t at_ = 0;  // of found_, plus 1
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_LOOP_H_
