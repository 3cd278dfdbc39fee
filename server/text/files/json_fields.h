// Typed fields of a JSON object from outside: what is missing, of another type or unknown is told
// by its path.
//
//   JsonFields fields(json, "pre_tokenizer");
//   std::string pattern = fields.Text("pattern");
//   RETURN_IF_ERROR(fields.Done());   // the first error; fields that nobody asked for are one
#ifndef ATHANOR_SERVER_TEXT_FILES_JSON_FIELDS_H_
#define ATHANOR_SERVER_TEXT_FILES_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace athanor {

// Returns INVALID_ARGUMENT if `text` is no JSON, RESOURCE_EXHAUSTED if it is longer or deeper than
// any tokenizer's file is; `name` says which.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view name);

class JsonFields {
 public:
  // `json` must outlive it.
  JsonFields(const nlohmann::json& json, std::string path);

  const std::string& path() const { return path_; }
  bool ok() const { return status_.ok(); }
  // Returns the first error so far.
  const absl::Status& status() const { return status_; }

  // Reports whether the field is there and not null.
  bool Has(std::string_view name);

  // Return the field, or the default if it is missing or null; without a default that is an error.
  // After an error they return something empty.
  const nlohmann::json& Any(std::string_view name);
  std::string Text(std::string_view name);
  bool Bool(std::string_view name);
  bool Bool(std::string_view name, bool fallback) { return Has(name) ? Bool(name) : fallback; }
  int64_t Int(std::string_view name);
  // Returns the index of one of `texts`.
  int Choice(std::string_view name, std::initializer_list<std::string_view> texts);

  void Ignore(std::string_view name) { asked_.insert(std::string(name)); }
  void Fail(absl::Status status) { status_.Update(status); }
  void Unsupported(std::string_view what);

  // Returns the first error: UNIMPLEMENTED for a field that was not asked for.
  absl::Status Done();

 private:
  const nlohmann::json& json_;
  std::string path_;
  std::set<std::string, std::less<>> asked_;
  absl::Status status_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_JSON_FIELDS_H_
