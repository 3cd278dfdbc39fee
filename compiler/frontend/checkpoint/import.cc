#include "compiler/frontend/checkpoint/import.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "compiler/frontend/checkpoint/gguf.h"
#include "compiler/frontend/checkpoint/keys.h"
#include "compiler/frontend/checkpoint/safetensors.h"
#include "compiler/frontend/checkpoint/spec.h"
#include "compiler/frontend/dim_binding.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

constexpr size_t kMessageBytes = 4000;
constexpr std::string_view kConfig = "config.json", kGeneration = "generation_config.json",
                           kIndex = "model.safetensors.index.json";
// Forms of weights that are not read: most of them would run code, or need a library of their own.
constexpr std::string_view kOtherWeights[] = {".bin",     ".pt", ".pth",  ".ckpt", ".pkl",
                                              ".msgpack", ".h5", ".onnx", ".npz"};

class Importer {
 public:
  Importer(CheckpointFormat format, absl::Span<const CheckpointFile> files,
           const ImportDecoderOptions& options, std::vector<ImportRefusal>* refusals)
      : format_(format), files_(files), options_(options), refusals_(*refusals) {}

  absl::StatusOr<ImportedDecoder> Run() {
    if (format_ == CheckpointFormat::kGguf) {
      ReadGgufFile();
    } else {
      ReadHfFiles();
    }
    ImportedDecoder imported;
    if (have_keys_) {
      spec_ = SpecOf(format_, keys_, options_.ignore_keys, &refusals_);
      imported.generation = ReadGeneration(format_, generation_, keys_, &refusals_);
    }
    if (spec_ && format_ == CheckpointFormat::kGguf) CompleteFromTensors();
    if (spec_ && spec_->vocabulary > 0) CheckEnds(imported.generation.end_tokens);
    if (spec_ && have_tensors_) MatchTensors(*spec_, tensors_, &refusals_);
    if (!refusals_.empty()) return ToStatus(refusals_, kMessageBytes);
    return Build(std::move(imported));
  }

 private:
  // A token that no row of logits has would never end a sequence.
  void CheckEnds(absl::Span<const int32_t> ends) {
    for (int32_t end : ends) {
      if (end < spec_->vocabulary) continue;
      Refuse(format_ == CheckpointFormat::kGguf ? "tokenizer.ggml.eos_token_id" : "eos_token_id",
             Cat("has token ", end, "; the vocabulary has ", spec_->vocabulary));
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

  void ReadGgufFile() {
    if (files_.size() != 1) {
      Refuse("", Cat("a GGUF checkpoint is one file; there are ", files_.size(),
                     " (shards of gguf-split can be merged with it)"));
      return;
    }
    GgufLimits limits;
    limits.max_head_bytes = options_.max_head_bytes;
    absl::StatusOr<Gguf> gguf =
        ReadGguf(files_[0].bytes, 0, static_cast<int64_t>(files_[0].bytes.size()), limits);
    if (!gguf.ok()) return Refuse(files_[0].path, gguf.status());
    keys_ = std::move(gguf->keys);
    have_keys_ = have_tensors_ = true;
    AddTensors(std::move(gguf->tensors));
  }

  void ReadHfFiles() {
    std::set<std::string, std::less<>> weights;
    std::optional<Keys> index;
    for (const CheckpointFile& file : files_) {
      const std::string_view path = file.path;
      if (path.find('/') != std::string_view::npos) continue;  // in a folder: of something else
      const auto ends = [&](std::string_view end) { return path.ends_with(end); };
      if (path == kConfig) {
        have_keys_ = ReadKeys(file, &keys_);
      } else if (path == kGeneration) {
        ReadKeys(file, &generation_);
      } else if (path == kIndex) {
        if (!ReadKeys(file, &index.emplace())) index.reset();
      } else if (ends(".safetensors") && !path.starts_with("consolidated")) {
        weights.emplace(path);
      } else if (std::any_of(std::begin(kOtherWeights), std::end(kOtherWeights), ends)) {
        Refuse(path, "is not supported; weights must be in .safetensors files",
               absl::StatusCode::kUnimplemented);
      }
    }
    if (!Has(kConfig)) Refuse(kConfig, "is missing");
    if (weights.empty()) Refuse("", "there is no .safetensors file");
    const size_t before = refusals_.size();
    if (before > kMostRefusals) return;
    ReadWeights(weights);
    if (index && refusals_.size() == before) CheckIndex(*index, weights);
    have_tensors_ = !weights.empty() && refusals_.size() == before;
  }

  bool Has(std::string_view path) const {
    return std::any_of(files_.begin(), files_.end(),
                       [&](const CheckpointFile& file) { return file.path == path; });
  }

  bool ReadKeys(const CheckpointFile& file, Keys* keys) {
    absl::StatusOr<Keys> read = KeysOfJson(file.bytes);
    if (!read.ok()) {
      Refuse(file.path, read.status());
      return false;
    }
    *keys = *std::move(read);
    return true;
  }

  void ReadWeights(const std::set<std::string, std::less<>>& weights) {
    SafetensorsLimits limits;
    limits.max_head_bytes = options_.max_head_bytes;
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

  // A GGUF file's tensors tell what no key of it does.
  void CompleteFromTensors() {
    spec_->tied = !tensors_.contains(TensorName(format_, Part::kLogits, 0));
    const std::string name = TensorName(format_, Part::kEmbedding, 0);
    const auto embedding = tensors_.find(name);
    if (spec_->vocabulary == 0 && embedding != tensors_.end() && !embedding->second.shape.empty()) {
      spec_->vocabulary = embedding->second.shape[0];
      if (spec_->vocabulary < 1 || spec_->vocabulary > kMostSize) {
        Refuse(name, Cat("has ", spec_->vocabulary, " rows; there must be from 1 to ", kMostSize));
      }
    }
    if (const auto it = keys_.find("tokenizer.ggml.tokens"); it != keys_.end()) {
      const auto* tokens = std::get_if<std::vector<std::string>>(&it->second);
      if (tokens != nullptr && static_cast<int64_t>(tokens->size()) > spec_->vocabulary) {
        Refuse(it->first, Cat("has ", tokens->size(), " tokens; ", Quoted(name), " has ",
                              spec_->vocabulary, " rows"));
      }
    }
    if (const auto it = tensors_.find("rope_freqs.weight"); it != tensors_.end()) {
      const absl::Status scaled = ScaleBy(it->second);
      if (!scaled.ok()) Refuse(it->first, scaled);
    }
  }

  absl::Status ScaleBy(const FileTensor& factors) {
    if (factors.stored != Stored::kF32) return Unimplemented("must be stored as f32");
    const auto pairs = static_cast<int64_t>(spec_->inverse.size());
    if (factors.shape != std::vector<int64_t>{pairs}) {
      return Invalid("must have shape [", pairs, "], a factor for each pair of a head");
    }
    std::vector<float> values(factors.bytes / sizeof(float));
    std::memcpy(values.data(), files_[factors.file].bytes.data() + factors.offset,
                values.size() * sizeof(float));
    return ScaleRope(values, &*spec_);
  }

  absl::StatusOr<ImportedDecoder> Build(ImportedDecoder imported) {
    ASSIGN_OR_RETURN(DecoderGraph decoder, BuildDecoder(*spec_, tensors_, options_.limits,
                                                        options_.form, options_.graph));
    RETURN_IF_ERROR(Verify(decoder.graph, options_.graph));
    RETURN_IF_ERROR(VerifyBindable(decoder.graph));
    RETURN_IF_ERROR(DimBinding::Create(decoder.graph).status());
    imported.graph = std::move(decoder.graph);
    imported.parameters = std::move(decoder.parameters);
    imported.family = spec_->family->name;
    imported.layers = spec_->layers;
    imported.vocabulary = spec_->vocabulary;
    imported.context = ContextOf(*spec_, options_.limits);
    AddNote(&imported);
    return imported;
  }

  static void AddNote(ImportedDecoder* imported) {
    int64_t narrow = 0, wide = 0;
    for (const FileTensor& tensor : imported->parameters) {
      if (tensor.stored == Stored::kF32) continue;
      int64_t bytes = sizeof(float);
      for (int64_t size : tensor.shape) bytes *= size;
      narrow += tensor.bytes;
      wide += bytes;
    }
    if (narrow == 0) return;
    imported->notes.push_back(
        Cat("weights of ", narrow, " bytes become f32, ", wide, " bytes in memory"));
  }

  const CheckpointFormat format_;
  const absl::Span<const CheckpointFile> files_;
  const ImportDecoderOptions& options_;
  std::vector<ImportRefusal>& refusals_;
  bool have_keys_ = false, have_tensors_ = false;
  Keys keys_, generation_;
  Tensors tensors_;
  std::optional<DecoderSpec> spec_;
};

}  // namespace

absl::StatusOr<ImportedDecoder> ImportCheckpoint(CheckpointFormat format,
                                                 absl::Span<const CheckpointFile> files,
                                                 const ImportDecoderOptions& options,
                                                 std::vector<ImportRefusal>* refusals) {
  refusals->clear();
  return Importer(format, files, options, refusals).Run();
}

}  // namespace athanor::checkpoint
