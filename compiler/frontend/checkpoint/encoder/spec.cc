#include "compiler/frontend/checkpoint/encoder/spec.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "compiler/frontend/checkpoint/files/format.h"
#include "compiler/frontend/checkpoint/files/key_reader.h"
#include "compiler/ir/value/message.h"

namespace athanor::checkpoint::encoder {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr int64_t kMostLayers = 1000;

// By transformers' ACT2FN.
struct ActivationRow {
  std::string_view name;
  Activation activation;
};
constexpr ActivationRow kActivations[] = {
    {"gelu", Activation::kGelu},          {"gelu_python", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},  {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh}, {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},          {"swish", Activation::kSilu},
    {"tanh", Activation::kTanh},
};

class SpecReader {
 public:
  SpecReader(CheckpointFormat format, const Keys& keys, std::vector<ImportRefusal>* refusals)
      : hf_(format == CheckpointFormat::kHf),
        keys_(keys),
        refusals_(*refusals),
        read_(keys, refusals) {
    spec_.format = format;
  }

  // Stops at a family that is not known, since the others' names follow from it.
  void Read(absl::Span<const CheckpointFile> files, absl::Span<const std::string> ignore_keys) {
    ReadFamily();
    if (spec_.family == nullptr) return;
    const bool sized = ReadSizes();
    if (hf_) {
      ReadActivation();
      if (auto pooling = ReadPooling(files, ignore_keys, &refusals_)) {
        spec_.pooling = *std::move(pooling);
      }
    } else {
      spec_.pooling = ReadGgufPooling(Cat(spec_.family->gguf, ".pooling_type"), &read_);
    }
    const int64_t width = spec_.pooling.width;
    if (sized && width != 0 && spec_.width != width) {
      read_.Refuse(kInvalid, Key(Field::kWidth),
                   Cat("is ", spec_.width, ", but the configuration of Pooling has ", width));
    }
    const auto inert = [&](std::string_view key) {
      return InertValues(spec_.format, *spec_.family, key);
    };
    RefuseOthers(keys_, ignore_keys, inert, &read_);
  }

  Spec Take() { return std::move(spec_); }

 private:
  std::string Key(Field field) const { return KeyOf(spec_.format, *spec_.family, field); }
  int64_t Size(Field field, std::optional<int64_t> otherwise = std::nullopt) {
    return read_.Integer(Key(field), 1, kMostSize, otherwise);
  }

  void ReadFamily() {
    const std::string_view key = hf_ ? "model_type" : "general.architecture";
    const std::string name = read_.Text(key, "");
    spec_.family = encoder::FindFamily(spec_.format, name);
    if (spec_.family == nullptr) {
      read_.Refuse(
          kUnimplemented, key,
          Cat("is ", Quoted(name), "; supported are ", encoder::FamilyNames(spec_.format)));
      return;
    }
    if (!hf_ || !read_.Has("architectures")) return;
    const std::vector<std::string> classes = read_.Texts("architectures");
    const std::string known = Cat("|", spec_.family->architectures, "|");
    if (classes.size() == 1 && known.find(Cat("|", classes[0], "|")) != std::string::npos) return;
    std::string right(spec_.family->architectures);
    for (size_t at; (at = right.find('|')) != std::string::npos;) right.replace(at, 1, ", ");
    read_.Refuse(kUnimplemented, "architectures",
                 Cat("must be one of ", right, " for model_type ", Quoted(name)));
  }

  // Returns false if a size is refused.
  bool ReadSizes() {
    const size_t before = refusals_.size();
    spec_.layers = read_.Integer(Key(Field::kLayers), 1, kMostLayers);
    spec_.width = Size(Field::kWidth);
    spec_.hidden = Size(Field::kHidden);
    spec_.heads = Size(Field::kHeads);
    spec_.vocabulary = hf_ ? Size(Field::kVocabulary) : Size(Field::kVocabulary, 0);
    spec_.positions = Size(Field::kPositions);
    spec_.epsilon = hf_ ? read_.Number(Key(Field::kEpsilon), 0, 1, 1e-12)
                        : read_.Number(Key(Field::kEpsilon), 0, 1);
    if (hf_) spec_.types = read_.Integer("type_vocab_size", 1, kMostSize, 2);
    if (hf_ && spec_.family->counts_from_padding) {
      spec_.padding = read_.Integer("pad_token_id", 0, kMostSize, 1);
      spec_.first_position = *spec_.padding + 1;
    }
    if (refusals_.size() != before) return false;
    CheckSizes();
    return true;
  }

  void CheckSizes() {
    if (spec_.width % spec_.heads != 0) {
      read_.Refuse(
          kInvalid, Key(Field::kHeads),
          Cat("is ", spec_.heads, ", which must divide ", Key(Field::kWidth), ", ", spec_.width));
    }
    if (spec_.first_position >= spec_.positions) {
      read_.Refuse(kInvalid, Key(Field::kPositions),
                   Cat("is ", spec_.positions, "; it must be above pad_token_id + 1, ",
                       spec_.first_position, ", the first position"));
    }
  }

  void ReadActivation() {
    constexpr std::string_view kKey = "hidden_act";
    const std::string name = read_.Text(kKey, "gelu");
    for (const ActivationRow& row : kActivations) {
      if (row.name != name) continue;
      spec_.activation = row.activation;
      return;
    }
    std::string right;
    for (const ActivationRow& row : kActivations) right += Cat(right.empty() ? "" : ", ", row.name);
    read_.Refuse(kUnimplemented, kKey, Cat("is ", Quoted(name), "; supported are ", right));
  }

  const bool hf_;
  const Keys& keys_;
  std::vector<ImportRefusal>& refusals_;
  KeyReader read_;
  Spec spec_;
};

}  // namespace

int64_t MostTokens(const Spec& spec) {
  const int64_t room = spec.positions - spec.first_position;
  const int64_t most = spec.pooling.most_tokens;
  return most == 0 ? room : std::min(room, most);
}

std::optional<Spec> SpecOf(CheckpointFormat format, const Keys& keys,
                           absl::Span<const CheckpointFile> files,
                           absl::Span<const std::string> ignore_keys,
                           std::vector<ImportRefusal>* refusals) {
  std::vector<ImportRefusal> found;  // apart, since many may be there already
  SpecReader reader(format, keys, &found);
  reader.Read(files, ignore_keys);
  if (found.empty()) return reader.Take();
  for (ImportRefusal& refusal : found) AddRefusal(std::move(refusal), refusals);
  return std::nullopt;
}

}  // namespace athanor::checkpoint::encoder
