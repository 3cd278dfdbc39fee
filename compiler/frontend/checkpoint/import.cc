#include "compiler/frontend/checkpoint/import.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "compiler/frontend/checkpoint/decoder/spec.h"
#include "compiler/frontend/checkpoint/encoder/encoder.h"
#include "compiler/frontend/checkpoint/encoder/spec.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/dim_binding.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

constexpr size_t kMessageBytes = 4000;

void AddNote(ImportedCheckpoint* imported) {
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

// Holds what imports of decoders and encoders share.
class Importer {
 public:
  Importer(CheckpointFormat format, absl::Span<const CheckpointFile> files,
           const ImportOptions& options, std::vector<ImportRefusal>* refusals)
      : format_(format), files_(files), options_(options), refusals_(*refusals) {}

  absl::StatusOr<ImportedCheckpoint> Run() {
    parts_ = ReadParts(format_, files_, options_.max_head_bytes, &refusals_);
    if (!parts_.keys) return ToStatus(refusals_, kMessageBytes);
    const std::string name = FamilyName();
    if (encoder::FindFamily(format_, name) != nullptr) return RunEncoder();
    if (FindFamily(format_, name) != nullptr) return RunDecoder();
    Refuse(FamilyKey(),
           name.empty() ? std::string("is missing")
                        : Cat("is ", Quoted(name), "; supported are ", FamilyNames(format_), ", ",
                              encoder::FamilyNames(format_)),
           name.empty() ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kUnimplemented);
    return ToStatus(refusals_, kMessageBytes);
  }

 private:
  std::string_view FamilyKey() const {
    return format_ == CheckpointFormat::kGguf ? "general.architecture" : "model_type";
  }
  // Returns "" if there is none, or no text.
  std::string FamilyName() const {
    const auto it = parts_.keys->find(FamilyKey());
    const auto* name = it == parts_.keys->end() ? nullptr : std::get_if<std::string>(&it->second);
    return name == nullptr ? "" : *name;
  }

  absl::StatusOr<ImportedCheckpoint> RunDecoder() {
    ImportedCheckpoint imported;
    spec_ = SpecOf(format_, *parts_.keys, options_.ignore_keys, &refusals_);
    imported.generation = ReadGeneration(format_, parts_.generation, *parts_.keys, &refusals_);
    if (spec_ && format_ == CheckpointFormat::kGguf) CompleteFromTensors();
    if (spec_ && spec_->vocabulary > 0) CheckEnds(imported.generation.end_tokens);
    if (spec_ && parts_.tensors) MatchTensors(*spec_, *parts_.tensors, &refusals_);
    if (!refusals_.empty()) return ToStatus(refusals_, kMessageBytes);
    ASSIGN_OR_RETURN(CheckpointGraph built, BuildDecoder(*spec_, *parts_.tensors, options_.limits,
                                                         options_.form, options_.graph));
    imported.family = spec_->family->name;
    imported.layers = spec_->layers;
    imported.vocabulary = spec_->vocabulary;
    imported.context = ContextOf(*spec_, options_.limits);
    return Finish(std::move(built), std::move(imported));
  }

  absl::StatusOr<ImportedCheckpoint> RunEncoder() {
    ImportedCheckpoint imported;
    auto spec = encoder::SpecOf(format_, *parts_.keys, files_, options_.ignore_keys, &refusals_);
    Tensors tensors;
    if (spec && parts_.tensors) {
      tensors = encoder::CanonicalTensors(*spec, *parts_.tensors, &refusals_);
      if (format_ == CheckpointFormat::kGguf) CompleteFrom(tensors, &*spec);
      encoder::MatchTensors(*spec, tensors, &refusals_);
    }
    if (!refusals_.empty()) return ToStatus(refusals_, kMessageBytes);
    const encoder::Limits limits = {.inputs = options_.limits.sequences,
                                    .context = options_.limits.context};
    ASSIGN_OR_RETURN(CheckpointGraph built,
                     encoder::BuildEncoder(*spec, tensors, limits, options_.graph));
    imported.family = spec->family->name;
    imported.layers = spec->layers;
    imported.vocabulary = spec->vocabulary;
    imported.width = spec->width;
    imported.context = encoder::ContextOf(*spec, limits);
    imported.batch_dim = encoder::kBatchDim;
    imported.notes = std::move(spec->pooling.notes);
    return Finish(std::move(built), std::move(imported));
  }

  absl::StatusOr<ImportedCheckpoint> Finish(CheckpointGraph built, ImportedCheckpoint imported) {
    RETURN_IF_ERROR(Verify(built.graph, options_.graph));
    RETURN_IF_ERROR(VerifyBindable(built.graph));
    RETURN_IF_ERROR(DimBinding::Create(built.graph).status());
    imported.graph = std::move(built.graph);
    imported.parameters = std::move(built.parameters);
    AddNote(&imported);
    return imported;
  }

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

  // A GGUF file's tensors tell what no key of it does.
  void CompleteFromTensors() {
    const Tensors& tensors = *parts_.tensors;
    spec_->tied = !tensors.contains(TensorName(format_, Part::kLogits, 0));
    CompleteVocabulary(tensors, TensorName(format_, Part::kEmbedding, 0), &spec_->vocabulary);
    if (const auto it = tensors.find("rope_freqs.weight"); it != tensors.end()) {
      const absl::Status scaled = ScaleBy(it->second);
      if (!scaled.ok()) Refuse(it->first, std::string(scaled.message()), scaled.code());
    }
  }
  void CompleteFrom(const Tensors& tensors, encoder::Spec* spec) {
    const auto types = tensors.find(TensorName(format_, encoder::Part::kTypes, 0));
    if (types != tensors.end() && types->second.shape.size() == 2) {
      spec->types = std::min(types->second.shape[0], kMostSize);
    }
    CompleteVocabulary(tensors, TensorName(format_, encoder::Part::kTokens, 0), &spec->vocabulary);
  }
  void CompleteVocabulary(const Tensors& tensors, const std::string& name, int64_t* vocabulary) {
    const auto embedding = tensors.find(name);
    if (*vocabulary == 0 && embedding != tensors.end() && !embedding->second.shape.empty()) {
      *vocabulary = embedding->second.shape[0];
      if (*vocabulary < 1 || *vocabulary > kMostSize) {
        Refuse(name, Cat("has ", *vocabulary, " rows; there must be from 1 to ", kMostSize));
      }
    }
    if (const auto it = parts_.keys->find("tokenizer.ggml.tokens"); it != parts_.keys->end()) {
      const auto* tokens = std::get_if<std::vector<std::string>>(&it->second);
      if (tokens != nullptr && static_cast<int64_t>(tokens->size()) > *vocabulary) {
        Refuse(it->first, Cat("has ", tokens->size(), " tokens; ", Quoted(name), " has ",
                              *vocabulary, " rows"));
      }
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

  const CheckpointFormat format_;
  const absl::Span<const CheckpointFile> files_;
  const ImportOptions& options_;
  std::vector<ImportRefusal>& refusals_;
  CheckpointParts parts_;
  std::optional<DecoderSpec> spec_;
};

}  // namespace

absl::StatusOr<ImportedCheckpoint> ImportCheckpoint(CheckpointFormat format,
                                                    absl::Span<const CheckpointFile> files,
                                                    const ImportOptions& options,
                                                    std::vector<ImportRefusal>* refusals) {
  refusals->clear();
  return Importer(format, files, options, refusals).Run();
}

}  // namespace athanor::checkpoint
