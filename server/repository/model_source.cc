#include "server/repository/model_source.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/models/checkpoint_upload.h"

namespace athanor {
namespace {

constexpr char kConfig[] = "config.json";
constexpr std::string_view kUsual[] = {"model.onnx", "model.athanor", "model.gguf"};
constexpr char kCheckpointFolder[] = "model";

bool Has(const std::vector<FolderFile>& files, const std::string& path) {
  return absl::c_any_of(files, [&](const FolderFile& file) { return file.path == path; });
}

// Lists the files in a folder, with their paths there.
std::vector<FolderFile> Inside(const std::vector<FolderFile>& files, const std::string& base) {
  std::vector<FolderFile> inside;
  for (const FolderFile& file : files) {
    absl::string_view path = file.path;
    if (absl::ConsumePrefix(&path, base)) inside.push_back({std::string(path), file.bytes});
  }
  return inside;
}

// Lists what a folder shows, for messages.
std::string Shown(const std::vector<FolderFile>& files) {
  std::set<std::string> names;
  for (const FolderFile& file : files) names.insert(file.path.substr(0, file.path.find('/')));
  constexpr size_t kMost = 10;
  std::vector<std::string> shown(names.begin(), names.end());
  const bool more = shown.size() > kMost;
  if (more) shown.resize(kMost);
  return shown.empty() ? "nothing" : absl::StrJoin(shown, ", ") + (more ? ", ..." : "");
}

// Puts the model first: an upload's first file of format "onnx" is the model.
absl::StatusOr<ModelSource> Onnx(const std::vector<FolderFile>& files, const std::string& name) {
  ModelSource source{"onnx", "", files};
  std::string model = name;
  if (!Has(files, name)) {
    source.base = name + "/";
    source.files = Inside(files, source.base);
    if (!Has(source.files, model)) model = "model.onnx";
    if (!Has(source.files, model)) {
      return Invalid("the folder ", name, " has no model.onnx; it has ", Shown(source.files));
    }
  }
  const auto at =
      absl::c_find_if(source.files, [&](const FolderFile& file) { return file.path == model; });
  std::rotate(source.files.begin(), at, at + 1);
  return source;
}

absl::StatusOr<ModelSource> OneFile(const std::vector<FolderFile>& files, const std::string& name,
                                    const std::string& format) {
  for (const FolderFile& file : files) {
    if (file.path == name) return ModelSource{format, "", {file}};
  }
  return Invalid(name, " is a folder; it must be a file");
}

ModelSource Checkpoint(const std::vector<FolderFile>& files, const std::string& base) {
  ModelSource source{"hf", base, {}};
  for (FolderFile& file : Inside(files, base)) {
    if (CheckpointUpload::IsFileOfHf(file.path)) source.files.push_back(std::move(file));
  }
  return source;
}

// Returns the model that is called `name`, a file or a folder.
absl::StatusOr<ModelSource> Named(const std::vector<FolderFile>& files, const std::string& name) {
  if (!Has(files, name) && Inside(files, name + "/").empty()) {
    return Invalid("there is no ", name, "; the folder has ", Shown(files));
  }
  if (name.ends_with(".onnx")) return Onnx(files, name);
  if (name.ends_with(".athanor")) return OneFile(files, name, "athanor");
  if (name.ends_with(".gguf")) return OneFile(files, name, "gguf");
  if (Has(files, name + "/" + kConfig)) return Checkpoint(files, name + "/");
  return Invalid(name,
                 " is no model that is served here: *.onnx, *.athanor, *.gguf, or the folder ",
                 "of a checkpoint with its ", kConfig);
}

}  // namespace

absl::StatusOr<ModelSource> FindModel(const std::vector<FolderFile>& files,
                                      const inference::ModelConfig& config) {
  ModelSource source;
  if (!config.default_model_filename().empty()) {
    ASSIGN_OR_RETURN(source, Named(files, config.default_model_filename()));
  } else {
    std::vector<std::string> found;
    for (std::string_view name : kUsual) {
      const std::string text(name);
      if (Has(files, text) || !Inside(files, text + "/").empty()) found.push_back(text);
    }
    if (Has(files, kConfig)) found.push_back(kConfig);
    if (Has(files, Cat(kCheckpointFolder, "/", kConfig))) found.push_back(kCheckpointFolder);
    if (found.empty()) {
      return Invalid("there is no model.onnx, model.athanor, model.gguf or checkpoint with its ",
                     kConfig, "; the folder has ", Shown(files));
    }
    if (found.size() > 1) {
      return Invalid("there are ", absl::StrJoin(found, " and "),
                     "; keep one, or name it in default_model_filename");
    }
    if (found[0] == kConfig) {
      source = Checkpoint(files, "");
    } else {
      ASSIGN_OR_RETURN(source, Named(files, found[0]));
    }
  }
  const bool onnx = config.platform() == "onnxruntime_onnx" || config.backend() == "onnxruntime";
  if (onnx && source.format != "onnx") {
    return Invalid("the configuration says ONNX, but the model's format is ", source.format,
                   "; leave platform and backend out");
  }
  return source;
}

}  // namespace athanor
