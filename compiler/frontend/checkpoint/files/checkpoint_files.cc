#include "compiler/frontend/checkpoint/files/checkpoint_files.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "compiler/frontend/checkpoint/files/gguf.h"
#include "compiler/frontend/checkpoint/files/safetensors.h"
#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

constexpr std::string_view kConfig = "config.json", kGeneration = "generation_config.json",
                           kIndex = "model.safetensors.index.json";
// Forms of weights that are not read: most of them would run code, or need a library of their own.
constexpr std::string_view kOtherWeights[] = {".bin",     ".pt", ".pth",  ".ckpt", ".pkl",
                                              ".msgpack", ".h5", ".onnx", ".npz"};

class PartsReader {
 public:
  PartsReader(absl::Span<const CheckpointFile> files, int64_t max_head_bytes,
              std::vector<ImportRefusal>* refusals)
      : files_(files), max_head_bytes_(max_head_bytes), refusals_(*refusals) {}

  CheckpointParts ReadGgufFile() {
    if (files_.size() != 1) {
      Refuse("", Cat("a GGUF checkpoint is one file; there are ", files_.size(),
                     " (shards of gguf-split can be merged with it)"));
      return {};
    }
    GgufLimits limits;
    limits.max_head_bytes = max_head_bytes_;
    absl::StatusOr<Gguf> gguf =
        ReadGguf(files_[0].bytes, 0, static_cast<int64_t>(files_[0].bytes.size()), limits);
    if (!gguf.ok()) {
      Refuse(files_[0].path, gguf.status());
      return {};
    }
    AddTensors(std::move(gguf->tensors));
    return {.keys = std::move(gguf->keys), .tensors = std::move(tensors_)};
  }

  CheckpointParts ReadHfFiles() {
    CheckpointParts parts;
    std::set<std::string, std::less<>> weights;
    std::optional<Keys> index;
    for (const CheckpointFile& file : files_) {
      const std::string_view path = file.path;
      if (path.find('/') != std::string_view::npos) continue;  // in a folder: of something else
      const auto ends = [&](std::string_view end) { return path.ends_with(end); };
      if (path == kConfig) {
        parts.keys = ReadKeys(file);
      } else if (path == kGeneration) {
        parts.generation = ReadKeys(file).value_or(Keys());
      } else if (path == kIndex) {
        index = ReadKeys(file);
      } else if (ends(".safetensors") && !path.starts_with("consolidated")) {
        weights.emplace(path);
      } else if (std::any_of(std::begin(kOtherWeights), std::end(kOtherWeights), ends)) {
        Refuse(path, "is not supported; weights must be in .safetensors files",
               absl::StatusCode::kUnimplemented);
      }
    }
    if (FindFile(files_, kConfig) == nullptr) Refuse(kConfig, "is missing");
    if (weights.empty()) Refuse("", "there is no .safetensors file");
    const size_t before = refusals_.size();
    if (before > kMostRefusals) return parts;
    ReadWeights(weights);
    if (index && refusals_.size() == before) CheckIndex(*index, weights);
    if (!weights.empty() && refusals_.size() == before) parts.tensors = std::move(tensors_);
    return parts;
  }

 private:
  std::optional<Keys> ReadKeys(const CheckpointFile& file) {
    absl::StatusOr<Keys> read = KeysOfJson(file.bytes);
    if (read.ok()) return *std::move(read);
    Refuse(file.path, read.status());
    return std::nullopt;
  }

  void ReadWeights(const std::set<std::string, std::less<>>& weights) {
    SafetensorsLimits limits;
    limits.max_head_bytes = max_head_bytes_;
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!weights.contains(files_[i].path)) continue;
      absl::StatusOr<std::vector<FileTensor>> tensors =
          ReadSafetensors(files_[i].bytes, static_cast<int>(i),
                          static_cast<int64_t>(files_[i].bytes.size()), limits);
      if (tensors.ok()) {
        AddTensors(*std::move(tensors));
      } else {
        Refuse(files_[i].path, tensors.status());
      }
    }
  }

  void AddTensors(std::vector<FileTensor> tensors) {
    for (FileTensor& tensor : tensors) {
      const auto [it, added] = tensors_.emplace(tensor.name, tensor);
      if (added) continue;
      Refuse(tensor.name, Cat("is in ", Quoted(files_[it->second.file].path), " and again in ",
                              Quoted(files_[tensor.file].path)));
    }
  }

  // The index says in which file each tensor is.
  void CheckIndex(const Keys& index, const std::set<std::string, std::less<>>& weights) {
    constexpr std::string_view kMap = "weight_map.";
    std::set<std::string> named;
    for (auto it = index.lower_bound(kMap); it != index.end() && it->first.starts_with(kMap);
         ++it) {
      const std::string tensor = it->first.substr(kMap.size());
      const auto* file = std::get_if<std::string>(&it->second);
      if (file == nullptr) {
        Refuse(kIndex, Cat(Quoted(it->first), " is no name of a file"));
        continue;
      }
      if (named.insert(*file).second && !weights.contains(*file)) {
        Refuse(*file, Cat("is missing; ", kIndex, " names it"));
      }
      const auto found = tensors_.find(tensor);
      if (!weights.contains(*file) ||
          (found != tensors_.end() && files_[found->second.file].path == *file)) {
        continue;
      }
      Refuse(tensor, Cat("is not in ", Quoted(*file), ", where ", kIndex, " has it"));
    }
    for (const std::string& file : weights) {
      if (!named.contains(file)) Refuse(file, Cat("is not named by ", kIndex));
    }
  }

  void Refuse(std::string_view node, std::string reason,
              absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    ImportRefusal refusal;
    refusal.code = code;
    refusal.node = node;
    refusal.reason = std::move(reason);
    AddRefusal(std::move(refusal), &refusals_);
  }
  // A whole file is here, so that a head which goes on behind it is wrong.
  void Refuse(std::string_view node, const absl::Status& status) {
    Refuse(node, std::string(status.message()),
           absl::IsOutOfRange(status) ? absl::StatusCode::kInvalidArgument : status.code());
  }

  const absl::Span<const CheckpointFile> files_;
  const int64_t max_head_bytes_;
  std::vector<ImportRefusal>& refusals_;
  Tensors tensors_;
};

}  // namespace

CheckpointParts ReadParts(CheckpointFormat format, absl::Span<const CheckpointFile> files,
                          int64_t max_head_bytes, std::vector<ImportRefusal>* refusals) {
  PartsReader reader(files, max_head_bytes, refusals);
  return format == CheckpointFormat::kGguf ? reader.ReadGgufFile() : reader.ReadHfFiles();
}

const CheckpointFile* FindFile(absl::Span<const CheckpointFile> files, std::string_view path) {
  const auto* found = std::find_if(files.begin(), files.end(),
                                   [&](const CheckpointFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : found;
}

}  // namespace athanor::checkpoint
