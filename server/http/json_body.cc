#include "server/http/json_body.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Heap bytes of a value beside its text, for lists grown by doubling.
constexpr int64_t kValueBytes = 48;

// Returns how many commas, colons and brackets there are outside of strings: values, or more.
int64_t CountMarks(absl::string_view body) {
  int64_t marks = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == ',' || c == ':' || c == '[' || c == '{') {
      ++marks;
    }
  }
  return marks;
}

// Builds a value from the parser's events. The parser is iterative, so depth costs no stack.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool key(std::string& value) override {
    Frame& frame = frames_.back();
    if (!frame.seen.insert(value).second) {
      status_ = Invalid("the body has the key ", Quoted(value), " twice in one object");
      return false;
    }
    frame.keys.push_back(std::move(value));
    return true;
  }
  bool end_array() override {
    Json::array_t values = std::move(frames_.back().values);
    frames_.pop_back();
    return Add(std::move(values));
  }
  bool end_object() override {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    Json::object_t object;
    object.reserve(frame.keys.size());
    for (size_t i = 0; i < frame.keys.size(); ++i) {
      // Not by the map's own emplace, which looks through all keys each time.
      object.Json::object_t::Container::emplace_back(std::move(frame.keys[i]),
                                                     std::move(frame.values[i]));
    }
    return Add(std::move(object));
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    status_ =
        Invalid("the body is no valid JSON: byte ", position, " is wrong, or the body ends there");
    return false;
  }

  absl::Status status() const { return status_; }
  Json Take() { return std::move(value_); }

 private:
  struct Frame {
    bool object;
    std::vector<std::string> keys;
    absl::flat_hash_set<std::string> seen;
    Json::array_t values;
  };

  bool Open(bool object) {
    if (frames_.size() == kMostJsonDepth) {
      status_ = Invalid("the body has values inside each other deeper than ", kMostJsonDepth);
      return false;
    }
    frames_.push_back({.object = object});
    return true;
  }
  bool Add(Json value) {
    if (frames_.empty()) {
      value_ = std::move(value);
    } else {
      frames_.back().values.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Frame> frames_;  // values that are open
  Json value_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<JsonBody> ParseJsonBody(absl::string_view body, ServerLedger* ledger) {
  // The parser takes the first NUL for the end.
  if (const size_t at = body.find('\0'); at != absl::string_view::npos) {
    return Invalid("the body is no valid JSON: byte ", at + 1, " is NUL");
  }
  const int64_t bytes = static_cast<int64_t>(body.size()) + kValueBytes * CountMarks(body);
  JsonBody parsed;
  auto memory = ledger->Reserve(HeldKind::kRequests, bytes, "the request");
  if (!memory.ok()) {
    // Marks without end are no reason to come again.
    return Json::accept(body.begin(), body.end()) ? memory.status()
                                                  : Invalid("the body is no valid JSON");
  }
  parsed.memory = *std::move(memory);
  Builder builder;
  const char* begin = body.data();
  if (!Json::sax_parse(begin, begin + body.size(), &builder)) {
    return builder.status().ok() ? Invalid("the body is no valid JSON") : builder.status();
  }
  parsed.value = builder.Take();
  return parsed;
}

}  // namespace athanor
