#include "server/models/checkpoint_upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "compiler/frontend/checkpoint/files/gguf.h"
#include "compiler/frontend/checkpoint/files/safetensors.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/athanor/internal/stored.pb.h"

namespace athanor {
namespace {

using checkpoint::CheckpointFormat;

constexpr char kConfig[] = "config.json", kTekken[] = "tekken.json", kVocabulary[] = "vocab.txt",
               kTokenizerConfig[] = "tokenizer_config.json";
// The texts of format "hf". Clients send these and no others (clients/python/athanor/wire.py,
// clients/cpp/inputs/checkpoint_files.cc).
constexpr const char* kTexts[] = {kConfig,
                                  "generation_config.json",
                                  "model.safetensors.index.json",
                                  "tokenizer.json",
                                  "tokenizer.model",
                                  kTekken,
                                  kVocabulary,
                                  kTokenizerConfig,
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template.jinja",
                                  "modules.json",
                                  "config_sentence_transformers.json"};
// Peak memory of an import per byte of a head: a GGUF array of i8 becomes one of int64_t, and an
// empty string of a JSON text an object of about as much.
constexpr int64_t kImportBytes = 40;
constexpr int64_t kFirstLook = 1 << 20;  // bytes of a GGUF file that are read for its head first
constexpr int kMaxIgnoreKeys = 1000;
constexpr size_t kMaxIgnoreKeyBytes = 1024;
constexpr int64_t kMaxLimit = int64_t{1} << 24;  // of tokens, sequences and positions

bool IsSafetensors(std::string_view path) {
  // Files named consolidated* repeat the others.
  return path.ends_with(".safetensors") && !path.starts_with("consolidated") &&
         path.find('/') == std::string_view::npos;
}

// Reports whether it is a list of a tokenizer's ranks, which has no name of its own.
bool IsRanks(std::string_view path) {
  return path.ends_with(".tiktoken") && path.find('/') == std::string_view::npos;
}

// Reports whether only the tokenizer's reader reads it, and no import.
bool IsOnlyText(std::string_view path) {
  return (path.starts_with("tokenizer") && path != kTokenizerConfig) || path == kTekken ||
         path == kVocabulary || IsRanks(path);
}

// Reports whether it is a configuration of sentence-transformers: of its Transformer, which is
// named after a family, or of a module in a folder of its own.
bool IsModuleConfig(std::string_view path) {
  const size_t folder = path.find('/');
  if (folder != std::string_view::npos) return path.substr(folder + 1) == kConfig;
  return path.starts_with("sentence_") && path.ends_with("_config.json");
}

// Returns how many of a safetensors file's bytes its head has, as far as they are there: 8 bytes
// with the size of a text, and the text.
int64_t StatedHead(std::string_view bytes) {
  uint64_t text = 0;
  if (bytes.size() < sizeof text) return static_cast<int64_t>(bytes.size());
  std::memcpy(&text, bytes.data(), sizeof text);
  return static_cast<int64_t>(sizeof text + std::min<uint64_t>(text, bytes.size() - sizeof text));
}

std::string Serialised(const checkpoint::ImportedCheckpoint& imported,
                       const checkpoint::DecoderLimits& limits) {
  internal::Generation message;
  message.set_family(imported.family);
  message.set_layers(imported.layers);
  message.set_vocabulary(imported.vocabulary);
  message.set_context(imported.context);
  message.set_sequences(limits.sequences);
  message.set_width(imported.width);
  if (imported.width > 0) return message.SerializeAsString();
  message.set_tokens(limits.tokens);
  const checkpoint::GenerationDefaults& generation = imported.generation;
  message.mutable_end_tokens()->Assign(generation.end_tokens.begin(), generation.end_tokens.end());
  message.set_temperature(generation.temperature);
  message.set_top_k(generation.top_k);
  message.set_top_p(generation.top_p);
  message.set_min_p(generation.min_p);
  message.set_repetition_penalty(generation.repetition_penalty);
  return message.SerializeAsString();
}

}  // namespace

CheckpointUpload::CheckpointUpload(Registry* registry, ServerLedger* ledger,
                                   const ServerOptions& options, CheckpointFormat format)
    : ModelImport(registry, ledger, options,
                  {options.max_checkpoint_bytes, options.max_checkpoint_files,
                   "--max_checkpoint_bytes", "--max_checkpoint_files"}),
      format_(format) {}

absl::Status CheckpointUpload::Begin(const v1::UploadHeader& header) {
  name_ = header.name();
  RETURN_IF_ERROR(CheckFiles(header));
  RETURN_IF_ERROR(ReadLimits(header));
  RETURN_IF_ERROR(ReadIgnoreKeys(header));
  given_.form = checkpoint::DecoderForm::kPaged;
  given_.graph = GraphLimitsOf(options_);
  given_.max_head_bytes = options_.max_graph_bytes;
  RETURN_IF_ERROR(files_.Begin(header, /*unnamed=*/false));
  for (size_t f = 0; f < files_.size(); ++f) {
    if (!IsWeights(f)) files_.spool(f).ReadParts({{0, files_.spool(f).bytes(), DType::kU8}});
  }
  return absl::OkStatus();
}

bool CheckpointUpload::IsWeights(size_t file) const {
  return format_ == CheckpointFormat::kGguf || IsSafetensors(files_.path(file));
}

bool CheckpointUpload::IsFileOfHf(std::string_view path) {
  return absl::c_linear_search(kTexts, path) || IsRanks(path) || IsModuleConfig(path) ||
         IsSafetensors(path);
}

absl::Status CheckpointUpload::CheckFiles(const v1::UploadHeader& header) const {
  if (format_ == CheckpointFormat::kGguf) {
    if (header.files_size() == 1) return absl::OkStatus();
    return Invalid("header.files: ", header.files_size(),
                   " files; a checkpoint of format \"gguf\" is one (merge shards first)");
  }
  bool config = false, weights = false;
  for (const v1::UploadFile& file : header.files()) {
    config |= file.path() == kConfig;
    weights |= IsSafetensors(file.path());
    if (IsFileOfHf(file.path())) continue;
    return Invalid("header.files: ", Quoted(file.path()),
                   " is no file of a checkpoint of format \"hf\"; those are *.safetensors (but not "
                   "consolidated*), *.tiktoken, sentence_*_config.json, */config.json, ",
                   absl::StrJoin(kTexts, ", "));
  }
  if (!config) return Invalid("header.files: there is no config.json");
  if (!weights) return Invalid("header.files: there is no .safetensors file");
  return absl::OkStatus();
}

absl::Status CheckpointUpload::ReadIgnoreKeys(const v1::UploadHeader& header) {
  if (header.ignore_keys_size() > kMaxIgnoreKeys) {
    return Invalid("header.ignore_keys: ", header.ignore_keys_size(), " keys; at most ",
                   kMaxIgnoreKeys, " are taken");
  }
  for (const std::string& key : header.ignore_keys()) {
    if (key.size() > kMaxIgnoreKeyBytes) {
      return Invalid("header.ignore_keys: a key of ", key.size(), " bytes; at most ",
                     kMaxIgnoreKeyBytes, " are taken");
    }
    given_.ignore_keys.push_back(key);
  }
  return absl::OkStatus();
}

absl::Status CheckpointUpload::ReadLimits(const v1::UploadHeader& header) {
  const v1::DecoderLimits& limits = header.decoder();
  const struct {
    std::string_view name;
    int64_t said;
    int64_t* limit;
  } rows[] = {{"tokens", limits.tokens(), &given_.limits.tokens},
              {"sequences", limits.sequences(), &given_.limits.sequences},
              {"context", limits.context(), &given_.limits.context}};
  for (const auto& row : rows) {
    if (row.said < 0 || row.said > kMaxLimit) {
      return Invalid("header.decoder.", row.name, ": ", row.said, "; it must be in [0, ", kMaxLimit,
                     "]");
    }
    if (row.said > 0) *row.limit = row.said;
  }
  says_tokens_ = limits.tokens() > 0;
  return absl::OkStatus();
}

absl::Status CheckpointUpload::Take(const v1::FileChunk& chunk) {
  RETURN_IF_ERROR(files_.Take(chunk));
  return ReadArriving();
}

absl::Status CheckpointUpload::ReadArriving() {
  if (files_.complete() || reading_ > files_.arrived()) return absl::OkStatus();
  if (reading_ < files_.arrived()) {
    reading_ = files_.arrived();
    next_try_ = 0;
  }
  SpooledFile& spool = files_.spool(reading_);
  if (!IsWeights(reading_) || spool.written() == 0 || spool.written() < next_try_) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string_view bytes, spool.Arrived());
  const auto arrived = static_cast<int64_t>(bytes.size());
  absl::StatusOr<Head> head;
  RETURN_IF_ERROR(ReadHead(bytes, reading_, &head));
  if (absl::IsOutOfRange(head.status()) && arrived < options_.max_graph_bytes) {
    next_try_ = arrived + arrived / 4;  // all tries together read a few times the head
    return absl::OkStatus();
  }
  ++reading_;
  if (!head.ok()) return absl::OkStatus();
  head_bytes_ = head->bytes;
  std::vector<SpooledFile::Part> parts;
  for (const checkpoint::FileTensor& tensor : head->tensors) {
    parts.push_back({tensor.offset, tensor.bytes, checkpoint::StoredInfo(tensor.stored).dtype});
  }
  spool.ReadParts(std::move(parts));
  return absl::OkStatus();
}

absl::Status CheckpointUpload::ReadHead(std::string_view bytes, size_t file,
                                        absl::StatusOr<Head>* head) {
  const bool hf = format_ == CheckpointFormat::kHf;
  if (!hf) bytes = bytes.substr(0, options_.max_graph_bytes);
  const auto there = static_cast<int64_t>(bytes.size());
  int64_t looked = hf ? StatedHead(bytes) : kFirstLook;
  for (;; looked *= 4) {
    looked = std::min(looked, there);
    ASSIGN_OR_RETURN(const ServerLedger::Reservation memory,
                     ledger_.Reserve(HeldKind::kUploads,
                                     kImportBytes * std::min(looked, options_.max_graph_bytes),
                                     Cat("the head of a file of model ", Quoted(name_))));
    *head = ParseHead(bytes.substr(0, looked), file);
    if (!absl::IsOutOfRange(head->status()) || looked == there) return absl::OkStatus();
  }
}

absl::StatusOr<CheckpointUpload::Head> CheckpointUpload::ParseHead(std::string_view bytes,
                                                                   size_t file) const {
  Head head;
  const int64_t all = files_.spool(file).bytes();
  const int index = static_cast<int>(file);
  if (format_ == CheckpointFormat::kHf) {
    checkpoint::SafetensorsLimits limits;
    limits.max_head_bytes = options_.max_graph_bytes;
    ASSIGN_OR_RETURN(head.tensors, checkpoint::ReadSafetensors(bytes, index, all, limits));
    return head;
  }
  checkpoint::GgufLimits limits;
  limits.max_head_bytes = all;  // ReadHead ends `bytes` at the limit
  ASSIGN_OR_RETURN(checkpoint::Gguf gguf, checkpoint::ReadGguf(bytes, index, all, limits));
  head.bytes = gguf.head_bytes;
  head.tensors = std::move(gguf.tensors);
  return head;
}

absl::StatusOr<int64_t> CheckpointUpload::HeadBytes(size_t file) const {
  const std::string_view bytes = files_.view(file);
  int64_t head = static_cast<int64_t>(bytes.size());
  if (format_ == CheckpointFormat::kGguf) {
    head = head_bytes_;
  } else if (IsWeights(file)) {
    head = StatedHead(bytes);
  } else if (IsOnlyText(files_.path(file))) {
    head = 0;
  }
  if (head <= options_.max_graph_bytes) return head;
  return absl::ResourceExhaustedError(Cat("file ", Quoted(files_.path(file)), ": a head of ", head,
                                          " bytes; at most ", options_.max_graph_bytes,
                                          " are taken (--max_graph_bytes)"));
}

absl::Status CheckpointUpload::ReserveMemory() {
  // The head of a file that came in one piece, or is wrong, was not read yet.
  if (format_ == CheckpointFormat::kGguf && head_bytes_ == 0) {
    absl::StatusOr<Head> head;
    RETURN_IF_ERROR(ReadHead(files_.view(0), 0, &head));
    if (absl::IsOutOfRange(head.status())) {
      head = absl::ResourceExhaustedError(
          Cat("its head has more than ", options_.max_graph_bytes, " bytes (--max_graph_bytes)"));
    }
    if (!head.ok()) return Prefixed(Cat("file ", Quoted(files_.path(0)), ": "), head.status());
    head_bytes_ = head->bytes;
  }
  int64_t bytes = 0;
  for (size_t f = 0; f < files_.size(); ++f) {
    ASSIGN_OR_RETURN(const int64_t head, HeadBytes(f));
    bytes += head;
  }
  ASSIGN_OR_RETURN(memory_, ledger_.Reserve(HeldKind::kUploads, kImportBytes * bytes,
                                            Cat("the import of model ", Quoted(name_))));
  return absl::OkStatus();
}

std::vector<size_t> CheckpointUpload::KeptFiles() const {
  std::vector<size_t> kept;
  for (size_t f = 0; f < files_.size(); ++f) {
    if (format_ == CheckpointFormat::kGguf || !IsWeights(f)) kept.push_back(f);
  }
  return kept;
}

int64_t CheckpointUpload::KeptBytes(size_t file) const {
  return format_ == CheckpointFormat::kGguf ? head_bytes_ : files_.spool(file).bytes();
}

std::vector<UploadedTensor> CheckpointUpload::TensorsOf(
    const checkpoint::ImportedCheckpoint& imported) const {
  std::vector<UploadedTensor> tensors;
  const auto add = [&](std::string_view kind, std::string_view name, size_t file, int64_t offset,
                       int64_t bytes) {
    UploadedTensor& tensor = tensors.emplace_back();
    tensor.what = Cat(kind, " ", Quoted(name));
    tensor.bytes = bytes;
    if (bytes > 0) tensor.place = {file, offset};
  };
  for (const checkpoint::FileTensor& parameter : imported.parameters) {
    add("parameter", parameter.name, static_cast<size_t>(parameter.file), parameter.offset,
        parameter.bytes);
  }
  for (size_t f : KeptFiles()) {
    add("file", files_.path(f), f, 0, KeptBytes(f));
  }
  return tensors;
}

absl::StatusOr<ImportedModel> CheckpointUpload::Import(const std::function<bool()>& cancelled,
                                                       std::vector<ImportRefusal>* refusals) {
  RETURN_IF_ERROR(ReserveMemory());
  std::vector<checkpoint::CheckpointFile> files;
  for (size_t f = 0; f < files_.size(); ++f) files.push_back({files_.path(f), files_.view(f)});
  ASSIGN_OR_RETURN(checkpoint::ImportedCheckpoint imported,
                   checkpoint::ImportCheckpoint(format_, files, given_, refusals));
  if (imported.width > 0 && says_tokens_) {
    return Invalid("header.decoder.tokens: of models that generate only; ", Quoted(imported.family),
                   " is an encoder, whose inputs `context` bounds, and their number `sequences`");
  }
  ASSIGN_OR_RETURN(std::vector<std::string> hashes, files_.Hash(TensorsOf(imported), cancelled));
  ImportedModel model;
  size_t next = imported.parameters.size();
  for (size_t f : KeptFiles()) {
    model.files.push_back(
        {{files_.path(f), hashes[next++]}, files_.view(f).substr(0, KeptBytes(f))});
  }
  hashes.resize(imported.parameters.size());
  model.generation = Serialised(imported, given_.limits);
  model.batch_dim = std::move(imported.batch_dim);
  model.notes = std::move(imported.notes);
  model.graph.graph = std::move(imported.graph);
  model.graph.parameter_hashes = std::move(hashes);
  return model;
}

}  // namespace athanor
