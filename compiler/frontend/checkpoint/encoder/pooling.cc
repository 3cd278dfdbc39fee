// Reads what SentenceTransformer of sentence-transformers 6.2 reads, and refuses what it would
// compute otherwise.
#include "compiler/frontend/checkpoint/encoder/pooling.h"

#include <utility>

#include "compiler/frontend/checkpoint/files/format.h"
#include "compiler/frontend/checkpoint/files/inert.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/ir/value/message.h"

namespace athanor::checkpoint::encoder {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr std::string_view kModules = "modules.json", kTokenizer = "tokenizer_config.json",
                           kSentence = "config_sentence_transformers.json";

struct KindRow {
  std::string_view name;  // of `pooling_mode`
  std::string_view flag;
  PoolingKind kind;
};
constexpr KindRow kKinds[] = {
    {"mean", "pooling_mode_mean_tokens", PoolingKind::kMean},
    {"cls", "pooling_mode_cls_token", PoolingKind::kFirst},
    {"lasttoken", "pooling_mode_lasttoken", PoolingKind::kLast},
    {"max", "pooling_mode_max_tokens", PoolingKind::kMax},
};
constexpr std::string_view kOtherFlags[] = {"pooling_mode_mean_sqrt_len_tokens",
                                            "pooling_mode_weightedmean_tokens"};

// Lists values of the Transformer's and Normalize's configurations that encoders of texts have.
constexpr InertRow kInert[] = {
    {CheckpointFormat::kHf, "modality_config.message.format", ""},
    {CheckpointFormat::kHf, "modality_config.text.method", "forward"},
    {CheckpointFormat::kHf, "modality_config.text.method_output_name", "last_hidden_state"},
    {CheckpointFormat::kHf, "module_input_name", "sentence_embedding"},
    {CheckpointFormat::kHf, "module_output_name", "sentence_embedding", "normalize"},
    {CheckpointFormat::kHf, "module_output_name", "token_embeddings"},
    {CheckpointFormat::kHf, "transformer_task", "feature-extraction"},
    {CheckpointFormat::kHf, "unpad_inputs", ""},
};

// Reads the keys of one file and names it in refusals.
class FileKeys {
 public:
  FileKeys(std::string_view path, Keys keys, std::vector<ImportRefusal>* refusals)
      : path_(path), keys_(std::move(keys)), refusals_(*refusals), read_(keys_, &found_) {}
  ~FileKeys() {
    for (ImportRefusal& refusal : found_) {
      refusal.node = refusal.node.empty() ? path_ : Cat(path_, ": ", refusal.node);
      AddRefusal(std::move(refusal), &refusals_);
    }
  }
  FileKeys(const FileKeys&) = delete;
  FileKeys& operator=(const FileKeys&) = delete;

  KeyReader& read() { return read_; }
  // `module` is "normalize" or "".
  void RefuseUnread(absl::Span<const std::string> ignore_keys, std::string_view module) {
    const auto inert = [&](std::string_view key) {
      return InertValuesIn(kInert, {CheckpointFormat::kHf, module, ""}, key);
    };
    RefuseOthers(keys_, ignore_keys, inert, &read_);
  }

 private:
  const std::string path_;
  const Keys keys_;
  std::vector<ImportRefusal>& refusals_;
  std::vector<ImportRefusal> found_;
  KeyReader read_;
};

// "sentence_transformers.models.Pooling" -> "Pooling"
std::string_view ClassOf(std::string_view type) {
  return type.substr(type.rfind('.') + 1);  // all of it where there is no dot
}

bool IsSentenceConfig(std::string_view path) {
  return path.starts_with("sentence_") && path.ends_with("_config.json");
}

class PoolingReader {
 public:
  PoolingReader(absl::Span<const CheckpointFile> files, absl::Span<const std::string> ignore_keys,
                std::vector<ImportRefusal>* refusals)
      : files_(files), ignore_keys_(ignore_keys), refusals_(*refusals) {}

  Pooling Read() {
    if (const CheckpointFile* modules = FindFile(files_, kModules)) {
      ReadModules(*modules);
    } else {
      pooling_.notes.emplace_back(
          "there is no modules.json: an embedding is the mean of its tokens' rows, as in "
          "sentence-transformers");
      for (const CheckpointFile& file : files_) {
        if (!file.path.ends_with("_Pooling/config.json")) continue;
        Refuse(kInvalid, file.path, "is there, but no modules.json, which would name it");
      }
    }
    ReadLength();
    ReadPrompts();
    return std::move(pooling_);
  }

 private:
  void Refuse(absl::StatusCode code, std::string_view node, std::string reason) {
    ImportRefusal refusal;
    refusal.code = code;
    refusal.node = node;
    refusal.reason = std::move(reason);
    AddRefusal(std::move(refusal), &refusals_);
  }

  std::optional<Keys> ReadKeys(const CheckpointFile& file) {
    absl::StatusOr<Keys> keys = KeysOfJson(file.bytes);
    if (keys.ok()) return *std::move(keys);
    Refuse(keys.status().code(), file.path, std::string(keys.status().message()));
    return std::nullopt;
  }

  void ReadModules(const CheckpointFile& file) {
    absl::StatusOr<std::vector<Keys>> modules = KeysOfJsonList(file.bytes);
    if (!modules.ok()) {
      Refuse(modules.status().code(), kModules, std::string(modules.status().message()));
      return;
    }
    std::vector<std::string> classes;
    for (Keys& module : *modules) {
      FileKeys keys(kModules, std::move(module), &refusals_);
      const std::string type = keys.read().Text("type", "");
      const std::string path = keys.read().Text("path", "");
      classes.emplace_back(ClassOf(type));
      if (classes.size() > 3) break;
      if (classes.back() == "Transformer" && !path.empty()) {
        keys.read().Refuse(kUnimplemented, "path",
                           Cat("is ", Quoted(path),
                               " of the Transformer; supported is \"\", the "
                               "checkpoint's own folder: upload that one"));
      }
      if (classes.back() == "Pooling") ReadPoolingConfig(Cat(path, "/config.json"), &keys.read());
      if (classes.back() == "Normalize") ReadNormalize(Cat(path, "/config.json"));
    }
    const std::vector<std::string> plain = {"Transformer", "Pooling"};
    std::vector<std::string> whole = plain;
    whole.emplace_back("Normalize");
    pooling_.normalised = classes == whole;
    if (pooling_.normalised || classes == plain) return;
    std::string text;
    for (const std::string& name : classes) text += Cat(text.empty() ? "" : ", ", Quoted(name));
    Refuse(kUnimplemented, kModules,
           Cat("has the modules ", text,
               "; supported are Transformer, Pooling and perhaps Normalize, in this order"));
  }

  void ReadPoolingConfig(const std::string& path, KeyReader* module) {
    const CheckpointFile* file = FindFile(files_, path);
    if (file == nullptr) {
      module->Refuse(kInvalid, "path", Cat("names ", Quoted(path), ", which is missing"));
      return;
    }
    std::optional<Keys> read = ReadKeys(*file);
    if (!read) return;
    FileKeys keys(path, *std::move(read), &refusals_);
    ReadKind(&keys.read());
    for (std::string_view width : {"word_embedding_dimension", "embedding_dimension"}) {
      if (keys.read().Has(width)) pooling_.width = keys.read().Integer(width, 1, kMostSize);
    }
    keys.read().Flag("include_prompt", true);  // no prompt is added here
    keys.RefuseUnread(ignore_keys_, "");
  }

  // The file is there where newer versions wrote it.
  void ReadNormalize(const std::string& path) {
    const CheckpointFile* file = FindFile(files_, path);
    std::optional<Keys> read = file == nullptr ? std::nullopt : ReadKeys(*file);
    if (read) FileKeys(path, *std::move(read), &refusals_).RefuseUnread(ignore_keys_, "normalize");
  }

  // `pooling_mode` names the kind, perhaps as a list; older files have a flag for each.
  void ReadKind(KeyReader* read) {
    constexpr std::string_view kMode = "pooling_mode";
    std::vector<const KindRow*> said;
    const std::string mode = read->Listed(kMode);
    for (const KindRow& row : kKinds) {
      const bool flag = read->Flag(row.flag, false);
      if (read->Has(kMode) ? row.name == mode : flag) said.push_back(&row);
    }
    for (std::string_view other : kOtherFlags) {
      if (!read->Flag(other, false)) continue;
      read->Refuse(kUnimplemented, other,
                   "is true; supported are pooling_mode_mean_tokens, pooling_mode_cls_token, "
                   "pooling_mode_max_tokens and pooling_mode_lasttoken");
      return;
    }
    if (said.size() == 1) {
      pooling_.kind = said[0]->kind;
    } else if (read->Has(kMode)) {
      read->Refuse(kUnimplemented, kMode,
                   Cat("is ", Quoted(mode), "; supported are mean, cls, max and lasttoken"));
    } else if (said.empty()) {
      pooling_.kind = PoolingKind::kMean;  // as the class has it
    } else {
      read->Refuse(kUnimplemented, said[1]->flag,
                   Cat("is true, and ", said[0]->flag, " too; supported is one of them"));
    }
  }

  // Reads the most tokens of an input.
  void ReadLength() {
    bool said = false;
    const CheckpointFile* first = nullptr;
    for (const CheckpointFile& file : files_) {
      if (!IsSentenceConfig(file.path)) continue;
      if (first != nullptr) {
        Refuse(kInvalid, file.path, Cat("is there beside ", Quoted(first->path), "; right is one"));
        continue;
      }
      first = &file;
      std::optional<Keys> read = ReadKeys(file);
      if (!read) continue;
      FileKeys keys(file.path, *std::move(read), &refusals_);
      if (keys.read().Flag("do_lower_case", false)) {
        keys.read().Refuse(kUnimplemented, "do_lower_case", "is true; supported is false");
      }
      if (keys.read().Has("max_seq_length")) {
        said = true;
        pooling_.most_tokens = keys.read().Integer("max_seq_length", 1, kMostSize);
      }
      keys.RefuseUnread(ignore_keys_, "");
    }
    const CheckpointFile* tokenizer = FindFile(files_, kTokenizer);
    if (said || tokenizer == nullptr) return;
    std::optional<Keys> read = ReadKeys(*tokenizer);
    if (!read) return;
    FileKeys keys(kTokenizer, *std::move(read), &refusals_);
    // transformers writes 1e30 where nothing bounds it.
    constexpr std::string_view kLength = "model_max_length";
    if (!keys.read().Has(kLength)) return;
    const double most = keys.read().Number(kLength, 1, 1e300);
    if (most < static_cast<double>(kMostSize)) pooling_.most_tokens = static_cast<int64_t>(most);
  }

  void ReadPrompts() {
    const CheckpointFile* file = FindFile(files_, kSentence);
    if (file == nullptr) return;
    std::optional<Keys> read = ReadKeys(*file);
    if (!read) return;
    FileKeys keys(file->path, *std::move(read), &refusals_);
    const std::string prompt = keys.read().Text("default_prompt_name", "");
    if (prompt.empty()) return;
    pooling_.notes.push_back(Cat("sentence-transformers puts the prompt ", Quoted(prompt),
                                 " ahead of each text; the server does not"));
  }

  const absl::Span<const CheckpointFile> files_;
  const absl::Span<const std::string> ignore_keys_;
  std::vector<ImportRefusal>& refusals_;
  Pooling pooling_;
};

}  // namespace

std::optional<Pooling> ReadPooling(absl::Span<const CheckpointFile> files,
                                   absl::Span<const std::string> ignore_keys,
                                   std::vector<ImportRefusal>* refusals) {
  std::vector<ImportRefusal> found;  // apart, since many may be there already
  Pooling pooling = PoolingReader(files, ignore_keys, &found).Read();
  if (found.empty()) return pooling;
  for (ImportRefusal& refusal : found) AddRefusal(std::move(refusal), refusals);
  return std::nullopt;
}

Pooling ReadGgufPooling(std::string_view key, KeyReader* read) {
  Pooling pooling;
  pooling.normalised = true;
  pooling.notes.emplace_back(
      "embeddings have the length 1, as llama.cpp's server makes them; no key of a GGUF file says");
  if (!read->Has(key)) {
    pooling.notes.push_back(
        Cat("there is no ", key, ": an embedding is the mean of its tokens' rows"));
    return pooling;
  }
  // 0 is none, 4 ranks pairs of texts.
  const int64_t type = read->Integer(key, 0, 100);
  constexpr PoolingKind kByType[] = {PoolingKind::kMean, PoolingKind::kFirst, PoolingKind::kLast};
  if (type < 1 || type > 3) {
    read->Refuse(kUnimplemented, key,
                 Cat("is ", type, "; supported are 1 (mean), 2 (cls) and 3 (last)"));
    return pooling;
  }
  pooling.kind = kByType[type - 1];
  return pooling;
}

}  // namespace athanor::checkpoint::encoder
