#include "compiler/frontend/checkpoint/decoder/spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "compiler/frontend/checkpoint/files/inert.h"
#include "compiler/frontend/checkpoint/files/key_reader.h"
#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr int64_t kMostLayers = 1000;
constexpr int64_t kMostExperts = 1024;
constexpr double kMostNumber = 1e12;
constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";

class SpecReader {
 public:
  SpecReader(CheckpointFormat format, const Keys& keys, std::vector<ImportRefusal>* refusals)
      : hf_(format == CheckpointFormat::kHf),
        keys_(keys),
        refusals_(*refusals),
        read_(keys, refusals) {
    spec_.format = format;
  }

  // Reads everything but stops at a family that is not known, since the others' names follow from
  // it.
  void Read() {
    ReadFamily();
    if (spec_.family == nullptr) return;
    ReadSizes();
    ReadRope();
    ReadWindows();
    ReadScores();
  }

  void RefuseUnknown(absl::Span<const std::string> ignore_keys) {
    if (spec_.family == nullptr) return;
    const auto inert = [&](std::string_view key) {
      return InertValues(spec_.format, *spec_.family, key);
    };
    RefuseOthers(keys_, ignore_keys, inert, &read_);
  }

  DecoderSpec Take() { return std::move(spec_); }

 private:
  std::string Key(Field field) const { return KeyOf(spec_.format, *spec_.family, field); }
  int64_t Size(Field field, std::optional<int64_t> otherwise = std::nullopt,
               int64_t most = kMostSize) {
    return read_.Integer(Key(field), 1, most, otherwise);
  }

  void ReadFamily() {
    const std::string_view key = hf_ ? "model_type" : "general.architecture";
    const std::string name = read_.Text(key, "");
    spec_.family = FindFamily(spec_.format, name);
    if (spec_.family == nullptr) {
      if (!read_.Has(key)) {
        read_.Refuse(kInvalid, key, "is missing");
      } else {
        read_.Refuse(kUnimplemented, key,
                     Cat("is ", Quoted(name), "; supported are ", FamilyNames(spec_.format)));
      }
      return;
    }
    if (!hf_ || !read_.Has("architectures")) return;
    const std::vector<std::string> classes = read_.Texts("architectures");
    if (classes.size() == 1 && classes[0] == spec_.family->architecture) return;
    read_.Refuse(
        kUnimplemented, "architectures",
        Cat("must be [", Quoted(spec_.family->architecture), "] for model_type ", Quoted(name)));
  }

  void ReadSizes() {
    const size_t before = refusals_.size();
    spec_.layers = Size(Field::kLayers, std::nullopt, kMostLayers);
    spec_.width = Size(Field::kWidth);
    if (spec_.family->experts) {
      ReadExperts();
    } else {
      spec_.hidden = Size(Field::kHidden);
    }
    spec_.heads = Size(Field::kHeads);
    const FamilyRow& family = *spec_.family;
    spec_.kv_heads =
        hf_ && family.says_kv_heads ? Size(Field::kKvHeads) : Size(Field::kKvHeads, spec_.heads);
    spec_.head = hf_ && family.says_head
                     ? Size(Field::kHead)
                     : Size(Field::kHead, std::max<int64_t>(1, spec_.width / spec_.heads));
    spec_.vocabulary = hf_ ? Size(Field::kVocabulary) : Size(Field::kVocabulary, 0);
    spec_.positions = Size(Field::kPositions);
    spec_.epsilon = hf_ ? read_.Number(Key(Field::kEpsilon), 0, 1, family.epsilon)
                        : read_.Number(Key(Field::kEpsilon), 0, 1);
    if (hf_) spec_.tied = read_.Flag("tie_word_embeddings", family.tied);
    const bool read = refusals_.size() == before;
    if (read) CheckSizes();
    if (!hf_) ReadSameSizes(read);
  }

  void ReadExperts() {
    constexpr std::string_view kLocal = "num_local_experts";  // as transformers 5 writes it
    spec_.hidden = Size(Field::kExpertHidden);
    spec_.experts = hf_ && read_.Has(kLocal) ? read_.Integer(kLocal, 1, kMostExperts)
                                             : Size(Field::kExperts, std::nullopt, kMostExperts);
    spec_.experts_of_row = Size(Field::kExpertsOfRow, std::nullopt, kMostExperts);
    // llama.cpp divides whatever the file says.
    spec_.sums_to_one = !hf_ || read_.Flag("norm_topk_prob", false);
  }

  void CheckSizes() {
    if (spec_.experts_of_row > spec_.experts) {
      read_.Refuse(kInvalid, Key(Field::kExpertsOfRow),
                   Cat("is ", spec_.experts_of_row, ", of ", spec_.experts, " experts"));
    }
    const std::string key = Key(Field::kHead);
    if (spec_.heads % spec_.kv_heads != 0) {
      read_.Refuse(kInvalid, Key(Field::kKvHeads),
                   Cat("is ", spec_.kv_heads, ", which must divide ", Key(Field::kHeads), ", ",
                       spec_.heads));
    }
    if (spec_.width % spec_.heads != 0 && !read_.Has(key)) {
      read_.Refuse(kInvalid, Key(Field::kHeads),
                   Cat("is ", spec_.heads, ", which must divide ", Key(Field::kWidth), ", ",
                       spec_.width, ", where there is no ", key));
    } else if (spec_.head % 2 != 0) {
      read_.Refuse(kUnimplemented, key,
                   Cat("is ", spec_.head, "; supported are even sizes, since a rope turns pairs"));
    }
    if (spec_.head * spec_.heads > kMostSize) {
      read_.Refuse(kInvalid, key,
                   Cat("is ", spec_.head, ", too much for ", spec_.heads, " heads: ", kMostSize,
                       " elements are the most"));
    }
  }

  // Sizes of GGUF that may differ from a head's, though in none of our families.
  void ReadSameSizes(bool compare) {
    for (std::string_view same : {"attention.value_length", "rope.dimension_count"}) {
      const std::string key = Cat(spec_.family->gguf, ".", same);
      const int64_t size = read_.Integer(key, 1, kMostSize, spec_.head);
      if (size == spec_.head || !compare) continue;
      read_.Refuse(kUnimplemented, key,
                   Cat("is ", size, "; supported is the size of a head, ", spec_.head));
    }
  }

  // transformers 5 writes rope_parameters, older ones rope_scaling beside rope_theta. It has an
  // object for each kind of layers in families with two ropes.
  void ReadRope() {
    const bool two = spec_.family->two_ropes;
    const std::string parameters = two ? "rope_parameters.full_attention." : "rope_parameters.";
    const std::string local = "rope_parameters.sliding_attention.";
    const double theta = hf_ ? spec_.family->theta : 10000.0;
    if (!hf_) {
      spec_.inverse = Rope(Key(Field::kTheta), theta, Cat(spec_.family->gguf, ".rope.scaling."));
    } else if (read_.HasBelow(parameters)) {
      spec_.inverse = Rope(Cat(parameters, "rope_theta"), theta, parameters);
    } else {
      spec_.inverse = Rope(Key(Field::kTheta), theta, "rope_scaling.");
    }
    if (!two) return;
    if (hf_ && read_.HasBelow(local)) {
      spec_.local_inverse = Rope(Cat(local, "rope_theta"), 10000.0, local);
    } else {
      spec_.local_inverse = PlainRope(Key(Field::kLocalTheta), 10000.0);
    }
  }

  std::vector<float> PlainRope(const std::string& theta_key, double otherwise) {
    const double theta = read_.Number(theta_key, 1, kMostNumber, otherwise);
    std::vector<float> inverse;
    const int64_t pairs = std::min(spec_.head, kMostSize) / 2;
    for (int64_t i = 0; i < pairs; ++i) {
      const double exponent =
          static_cast<float>(2 * i) / static_cast<float>(spec_.head);  // as PyTorch: in f32
      inverse.push_back(static_cast<float>(1 / std::pow(theta, exponent)));
    }
    return inverse;
  }

  // Scales it as the keys that begin with `below` say.
  std::vector<float> Rope(const std::string& theta_key, double otherwise,
                          const std::string& below) {
    std::vector<float> inverse = PlainRope(theta_key, otherwise);
    const std::string old_key = Cat(below, "type");
    const std::string key = hf_ && !read_.Has(old_key) ? Cat(below, "rope_type") : old_key;
    const std::string type = read_.Text(key, "default");
    if (hf_ && read_.Text(Cat(below, "rope_type"), type) != type) {
      read_.Refuse(kInvalid, key, Cat("is ", Quoted(type), ", but rope_type is another"));
    }
    if (type == "linear") {
      const double factor = read_.Number(Cat(below, "factor"), 1e-6, kMostNumber);
      for (float& each : inverse) each = static_cast<float>(each / factor);
    } else if (hf_ && type == "llama3") {
      ScaleAsLlama3(below, &inverse);
    } else if (type != "default" && (hf_ || type != "none")) {
      read_.Refuse(kUnimplemented, key,
                   Cat("is ", Quoted(type), "; supported are ",
                       hf_ ? "default, linear, llama3" : "none, linear"));
    }
    return inverse;
  }

  // Source of the formula: `_compute_llama3_parameters` of transformers. Long waves are stretched
  // by `factor`, short ones stay, those between change gradually.
  void ScaleAsLlama3(const std::string& below, std::vector<float>* scaled) {
    const double factor = read_.Number(Cat(below, "factor"), 1e-6, kMostNumber);
    const double low = read_.Number(Cat(below, "low_freq_factor"), 1e-6, kMostNumber);
    const double high = read_.Number(Cat(below, "high_freq_factor"), 1e-6, kMostNumber);
    const auto trained = static_cast<double>(
        read_.Integer(Cat(below, "original_max_position_embeddings"), 1, kMostSize));
    if (high <= low) {
      read_.Refuse(kInvalid, Cat(below, "high_freq_factor"),
                   Cat("is ", high, "; it must be above low_freq_factor, ", low));
      return;
    }
    for (float& inverse : *scaled) {
      const double waves = trained * inverse / (2 * std::numbers::pi);
      const double kept = std::clamp((waves - low) / (high - low), 0.0, 1.0);
      inverse = static_cast<float>((1 - kept) * inverse / factor + kept * inverse);
    }
  }

  void ReadWindows() {
    spec_.windows.assign(spec_.layers, 0);
    if (spec_.family->windows == Windows::kNone) return;
    const std::string key = Key(Field::kWindow);
    if (spec_.family->windows == Windows::kAll) {  // where none is, GGUF has 0
      if (read_.Has(key)) {
        spec_.windows.assign(spec_.layers, read_.Integer(key, hf_ ? 1 : 0, kMostSize));
      }
      return;
    }
    if (spec_.family->windows == Windows::kInTurns) return ReadTurns();
    if (!hf_) return;  // a window of some layers has no key there
    const bool sliding = read_.Flag("use_sliding_window", false);
    const int64_t window = Size(Field::kWindow, 0);
    if (read_.Has("layer_types")) return ReadLayerTypes(sliding ? window : 0);
    if (!sliding) return;
    if (window == 0) {
      read_.Refuse(kInvalid, key, "is missing, but use_sliding_window is true");
      return;
    }
    const int64_t first = read_.Integer("max_window_layers", 0, kMostSize);
    for (int64_t i = first; i < spec_.layers; ++i) spec_.windows[i] = window;
  }

  // Each `period`-th layer sees all keys, the others a window of them.
  void ReadTurns() {
    const int64_t window = Size(Field::kWindow);
    int64_t period = spec_.family->period;
    if (spec_.family->two_ropes) period = Size(Field::kPeriod, period);
    if (hf_ && read_.Has("layer_types")) return ReadLayerTypes(window);
    for (int64_t i = 0; i < spec_.layers; ++i) {
      if ((i + 1) % period != 0) spec_.windows[i] = window;
    }
  }

  void ReadScores() {
    if (spec_.family->query_scalar) {
      const bool wide = spec_.layers == spec_.family->wide_layers;
      const double scalar =
          hf_ ? read_.Number("query_pre_attn_scalar", 1e-6, kMostNumber, 256.0)
              : static_cast<double>(wide ? spec_.width / spec_.heads : spec_.head);
      spec_.scale = 1 / std::sqrt(scalar);
    }
    if (!spec_.family->capped) return;
    spec_.score_cap = read_.Number(Key(Field::kScoreCap), 1e-6, kMostNumber);
    spec_.logit_cap = read_.Number(Key(Field::kLogitCap), 1e-6, kMostNumber);
  }

  void ReadLayerTypes(int64_t window) {
    constexpr std::string_view kKey = "layer_types";
    const std::vector<std::string> types = read_.Texts(kKey);
    if (static_cast<int64_t>(types.size()) != spec_.layers) {
      read_.Refuse(kInvalid, kKey,
                   Cat("has ", types.size(), " entries; there must be one for each of ",
                       spec_.layers, " layers"));
      return;
    }
    for (int64_t i = 0; i < spec_.layers; ++i) {
      if (types[i] == kFull) continue;
      if (types[i] != kSliding) {
        read_.Refuse(kUnimplemented, kKey,
                     Cat("has ", Quoted(types[i]), "; supported are ", kFull, " and ", kSliding));
        return;
      }
      if (window == 0) {
        read_.Refuse(kInvalid, kKey,
                     Cat("has ", kSliding, ", but use_sliding_window or ", Key(Field::kWindow),
                         " is not set"));
        return;
      }
      spec_.windows[i] = window;
    }
  }

  const bool hf_;
  const Keys& keys_;
  const std::vector<ImportRefusal>& refusals_;
  KeyReader read_;
  DecoderSpec spec_;
};

}  // namespace

std::optional<DecoderSpec> SpecOf(CheckpointFormat format, const Keys& keys,
                                  absl::Span<const std::string> ignore_keys,
                                  std::vector<ImportRefusal>* refusals) {
  std::vector<ImportRefusal> found;  // apart, since many may be there already
  SpecReader reader(format, keys, &found);
  reader.Read();
  reader.RefuseUnknown(ignore_keys);
  if (found.empty()) return reader.Take();
  for (ImportRefusal& refusal : found) AddRefusal(std::move(refusal), refusals);
  return std::nullopt;
}

absl::Status ScaleRope(absl::Span<const float> factors, DecoderSpec* spec) {
  if (factors.size() != spec->inverse.size()) {
    return Invalid("has ", factors.size(), " factors; there must be one for each of ",
                   spec->inverse.size(), " pairs of a head");
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!std::isfinite(factors[i]) || factors[i] <= 0) {
      return Invalid("has the factor ", factors[i], " for pair ", i,
                     "; it must be finite and positive");
    }
    spec->inverse[i] /= factors[i];
  }
  return absl::OkStatus();
}

}  // namespace athanor::checkpoint
