// A checkpoint's keys in one form, whether they come from JSON or from a GGUF file.
//
//   absl::StatusOr<Keys> keys = KeysOfJson(config_json);
//   keys->find("rope_scaling.factor");
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_KEYS_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_KEYS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/files/gguf.h"

namespace athanor::checkpoint {

using Keys = std::map<std::string, GgufValue, std::less<>>;

// Reads a JSON object. A member of an object inside is named "rope_scaling.factor"; null, and an
// object without members, are as if they were not there; a list of unlike things is its text.
// INVALID_ARGUMENT: no object, more than 16 MB, deeper than 32, a key twice in an object, or keys
// named so that have more than 1,024 bytes, or 64 MB together.
absl::StatusOr<Keys> KeysOfJson(std::string_view json);

// Reads a JSON list of objects, each as KeysOfJson does; the bounds are for all of them together.
absl::StatusOr<std::vector<Keys>> KeysOfJsonList(std::string_view json);

// Returns the value as config.json would have it, a list as "[...]".
std::string TextOf(const GgufValue& value);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_KEYS_H_
