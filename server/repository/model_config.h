// A model's config.pbtxt: Triton's configuration, as far as it concerns a model that is served
// here.
//
//   RepositoryConfig config = ParseConfig(text, "digits").value();
//   config.WantedVersions({1, 2, 3});   // {3}, unless version_policy says otherwise
//   config.inert;                       // {"instance_group", ...}: read, without effect here
//
// A field that would change answers if it were ignored is refused by name; so is one that Triton
// does not have. Pure.
#ifndef ATHANOR_SERVER_REPOSITORY_MODEL_CONFIG_H_
#define ATHANOR_SERVER_REPOSITORY_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/inference/model_config.pb.h"

namespace athanor {

// Says how a field of a configuration is used.
struct ConfigField {
  enum class Use : uint8_t { kRead, kInert, kRefused };
  std::string_view message;  // "ModelConfig"
  std::string_view name;
  Use use = Use::kInert;
  std::string_view why = {};  // of a refused one
};

// Returns the row of a field; null: the table has none.
const ConfigField* FindConfigField(std::string_view message, std::string_view name);

struct RepositoryConfig {
  inference::ModelConfig message;
  std::vector<std::string> inert;  // fields that are set, and have no effect

  // From parameters; empty where they say nothing.
  std::string dims;           // "athanor.dims": "batch=1:64, seq=128"
  std::string batch_dim;      // "athanor.batch_dim"
  std::string search_budget;  // "athanor.search_budget", as UploadHeader has it
  std::string device;         // "athanor.device"

  // Picks the versions that version_policy wants; by default the newest. `there` is ascending, the
  // result too.
  std::vector<int64_t> WantedVersions(const std::vector<int64_t>& there) const;
};

// Parses config.pbtxt of the folder `model`; an empty text is a configuration that says nothing.
// INVALID_ARGUMENT names the line of a syntax error, or the field that is wrong and what would be
// right; UNIMPLEMENTED names a field, platform or backend that is not served here.
absl::StatusOr<RepositoryConfig> ParseConfig(std::string_view text, const std::string& model);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_MODEL_CONFIG_H_
