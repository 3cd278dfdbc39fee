#include "clients/cpp/inputs/checkpoint_files.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "nlohmann/json.hpp"

namespace athanor::client {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
// The server takes these texts, *.tiktoken and *.safetensors, and refuses others by name
// (server/models/checkpoint_upload.cc).
constexpr const char* kTexts[] = {"generation_config.json",
                                  "tokenizer.json",
                                  "tokenizer.model",
                                  "tekken.json",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template.jinja",
                                  "vocab.txt",
                                  "modules.json",
                                  "config_sentence_transformers.json"};
constexpr char kModules[] = "modules.json";

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

absl::StatusOr<nlohmann::json> ReadJson(const fs::path& path) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  const absl::string_view text = file->bytes();
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// Reports whether `name` can be that of a file or folder in a folder, and of no other.
bool IsNameInAFolder(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Returns the configurations of sentence-transformers' modules that have folders of their own:
// "1_Pooling/config.json". Modules with weights are none that the server knows; it names them.
absl::StatusOr<std::vector<std::string>> Modules(const fs::path& modules) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJson(modules));
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(modules.string(), ": ", what));
  };
  if (!json.is_array()) return wrong("no list of modules");
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (const nlohmann::json& module : json) {
    if (!module.is_object() || !module.contains("path") || !module["path"].is_string()) {
      return wrong("no list of modules: an entry has no \"path\"");
    }
    const std::string path = module["path"];
    if (path.empty() || !seen.insert(path).second) continue;  // the model itself
    if (!IsNameInAFolder(path)) {
      return wrong(absl::StrCat("\"", path, "\" is no name of a folder beside it"));
    }
    if (IsFile(modules.parent_path() / path / kConfig)) {
      files.push_back(absl::StrCat(path, "/", kConfig));
    }
  }
  return files;
}

absl::StatusOr<std::vector<std::string>> Shards(const fs::path& index) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJson(index));
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(index.string(), ": ", what));
  };
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return wrong("no index of shards: it has no \"weight_map\"");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (!IsNameInAFolder(name)) {
      return wrong(absl::StrCat("the shard of \"", tensor, "\" is no name of a file beside it"));
    }
    shards.insert(name);
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

std::vector<std::string> FilesWithEnd(const fs::path& folder, absl::string_view end) {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (absl::EndsWith(name, end)) found.insert(name);
  }
  return std::vector<std::string>(found.begin(), found.end());
}

absl::StatusOr<std::vector<std::string>> Weights(const fs::path& folder) {
  if (IsFile(folder / kWeights)) return std::vector<std::string>{kWeights};
  if (IsFile(folder / kIndex)) {
    ASSIGN_OR_RETURN(std::vector<std::string> shards, Shards(folder / kIndex));
    shards.insert(shards.begin(), kIndex);
    return shards;
  }
  std::vector<std::string> found = FilesWithEnd(folder, ".safetensors");
  // These repeat the others.
  std::erase_if(found,
                [](const std::string& name) { return absl::StartsWith(name, "consolidated"); });
  if (!found.empty()) return found;
  return absl::InvalidArgumentError(absl::StrCat(
      folder.string(), ": no .safetensors file; weights in other forms (.bin, .pt) are not taken"));
}

}  // namespace

absl::StatusOr<std::vector<CheckpointFile>> CheckpointFiles(const std::string& path) {
  std::vector<CheckpointFile> files;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
    files.push_back({fs::path(path).filename(), std::move(file)});
    return files;
  }
  const fs::path folder(path);
  std::vector<std::string> names = {kConfig};
  for (const char* text : kTexts) {
    if (IsFile(folder / text)) names.emplace_back(text);
  }
  for (std::string& ranks : FilesWithEnd(folder, ".tiktoken")) names.push_back(std::move(ranks));
  // The settings of a Transformer are named after a family: sentence_bert_config.json.
  for (std::string& name : FilesWithEnd(folder, "_config.json")) {
    if (absl::StartsWith(name, "sentence_")) names.push_back(std::move(name));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> weights, Weights(folder));
  names.insert(names.end(), weights.begin(), weights.end());
  if (IsFile(folder / kModules)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> modules, Modules(folder / kModules));
    names.insert(names.end(), modules.begin(), modules.end());
  }
  for (const std::string& name : names) {
    if (LinksElsewhere(folder / kConfig, name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": its file \"", name, "\" is a link out of the folder"));
    }
    ASSIGN_OR_RETURN(auto file, MappedFile::Open(folder / name));
    files.push_back({name, std::move(file)});
  }
  return files;
}

}  // namespace athanor::client
