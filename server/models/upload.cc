#include "server/models/upload.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/chunk_bytes.h"
#include "server/base/search_policy.h"
#include "server/models/checkpoint_upload.h"
#include "server/models/onnx_upload.h"
#include "server/models/version_batching.h"

namespace athanor {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr int64_t kDefaultBuckets = 8;  // default for ONNX models without buckets

absl::Status CheckModelName(const std::string& name) {
  if (name.empty()) return Invalid("header.name: empty; a model needs a name");
  if (name.size() > kMaxNameBytes) {
    return Invalid("header.name: ", name.size(), " bytes; at most ", kMaxNameBytes, " are allowed");
  }
  for (unsigned char c : name) {
    if (c < ' ' || c == 0x7f) {
      return Invalid("header.name: ", Quoted(name), " holds a control character");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHash(std::string_view what, const std::string& hash) {
  if (hash.size() == kSha256Bytes) return absl::OkStatus();
  return Invalid(what, ": ", hash.size(), " bytes; a SHA-256 has ", kSha256Bytes);
}

absl::Status CheckBatchDim(const std::string& name, const Graph& graph) {
  if (name.empty()) return absl::OkStatus();
  std::vector<std::string> dims;
  for (const Dim& dim : graph.dims) {
    if (dim.name == name) return absl::OkStatus();
    dims.push_back(Quoted(dim.name));
  }
  return Invalid("header.batch_dim: ", Quoted(name), " is no dim of the graph; ",
                 dims.empty() ? "it has none" : Cat("its dims: ", absl::StrJoin(dims, ", ")));
}

}  // namespace

absl::Status CheckSearchBudget(std::string_view what, const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  return Prefixed(Cat(what, ": "), ParseSearchBudget(text).status());
}

absl::Status CheckRuleNames(std::string_view what,
                            const google::protobuf::RepeatedPtrField<std::string>& names) {
  for (const std::string& name : names) {
    // Names are stored separated by commas.
    absl::Status s = name.find(',') == std::string::npos && !name.empty()
                         ? ParseRuleNames(name).status()
                         : Invalid(Quoted(name), " is no name of a rule or a family of rules");
    if (!s.ok()) return Prefixed(Cat(what, ": "), s);
  }
  return absl::OkStatus();
}

absl::Status CheckBuckets(std::string_view what, const BucketGrid::Ranges& buckets,
                          const Graph& graph, int64_t max_buckets) {
  return Prefixed(Cat(what, ": "), BucketGrid::Create(graph, buckets, max_buckets).status());
}

absl::Status CheckApproximate(std::string_view what, bool approximate, const Graph& graph) {
  if (!approximate || graph.StateIds().empty()) return absl::OkStatus();
  return Invalid(what,
                 ": the model has states, whose plans must all sum in one order; leave it out");
}

absl::Status Upload::Take(const v1::UploadModelRequest& message) {
  using Kind = v1::UploadModelRequest;
  if (message.kind_case() == Kind::KIND_NOT_SET) {
    return Invalid("upload message without a kind; expected ", Expected());
  }
  if (message.kind_case() == Kind::kHeader) {
    if (has_header_) return Invalid("a second header; expected ", Expected());
    return TakeHeader(message.header());
  }
  if (!has_header_) {
    return Invalid(message.has_commit() ? "a commit" : "a chunk", " before the header");
  }
  if (message.has_commit()) return Commit();
  if (message.has_file() && import_ != nullptr) return import_->Take(message.file());
  if (message.has_chunk() && import_ == nullptr) return TakeChunk(message.chunk());
  return Invalid(message.has_file() ? "a piece of a file" : "a chunk of a tensor",
                 " in an upload of format ", Quoted(row_.format), "; expected ", Expected());
}

std::string Upload::Expected() const {
  if (!has_header_) return "the header";
  if (import_ != nullptr) return import_->Expected();
  if (current_ == tensors_.size()) return "the commit";
  const TensorWriter& writer = *tensors_[current_].writer;
  return Cat("tensor ", absl::BytesToHexString(writer.hash()), ", offset ", writer.written(),
             " of ", writer.bytes());
}

absl::StatusOr<v1::Model> Upload::Outline() const {
  if (import_ != nullptr) return import_->Outline();
  return pending_->Interface();
}

absl::Status Upload::Give(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims,
                          const std::string& batch_dim) {
  row_.batch_dim = batch_dim;
  return import_->Give(dims);
}

absl::Status Upload::CutOff() const {
  return Invalid("upload", row_.name.empty() ? "" : Cat(" of model ", Quoted(row_.name)),
                 " ended before its commit; expected ", Expected());
}

absl::Status Upload::TakeHeader(const v1::UploadHeader& header) {
  RETURN_IF_ERROR(CheckHeader(header));
  ASSIGN_OR_RETURN(buffers_,
                   ledger_->Reserve(HeldKind::kUploads,
                                    options_.max_chunk_bytes + 2 * int64_t(header.graph().size()),
                                    "upload of model " + Quoted(header.name())));
  FillRow(header);
  if (header.format() == "onnx") {
    import_ = std::make_unique<OnnxUpload>(registry_, ledger_, options_);
  } else if (header.format() != "athanor") {
    import_ = std::make_unique<CheckpointUpload>(registry_, ledger_, options_,
                                                 header.format() == "hf"
                                                     ? checkpoint::CheckpointFormat::kHf
                                                     : checkpoint::CheckpointFormat::kGguf);
  }
  if (import_ != nullptr) {
    has_header_ = true;
    return import_->Begin(header);
  }
  RETURN_IF_ERROR(ReadGraph(header));
  RETURN_IF_ERROR(ReadParameters());
  RETURN_IF_ERROR(CheckTensors(header));
  RETURN_IF_ERROR(BeginTensors(header));
  has_header_ = true;
  return EndTensors();
}

absl::Status Upload::CheckHeader(const v1::UploadHeader& header) const {
  RETURN_IF_ERROR(CheckModelName(header.name()));
  RETURN_IF_ERROR(CheckFormat(header));
  const bool athanor = header.format() == "athanor";
  // Of files, --max_onnx_bytes and --max_checkpoint_bytes limit the model as a whole,
  // --max_graph_bytes its parts that are no tensors.
  if (athanor && static_cast<int64_t>(header.graph().size()) > options_.max_graph_bytes) {
    return absl::ResourceExhaustedError(Cat("header.graph: ", header.graph().size(),
                                            " bytes; at most ", options_.max_graph_bytes,
                                            " are taken (--max_graph_bytes)"));
  }
  if (athanor || !header.graph().empty() || !header.graph_sha256().empty()) {
    RETURN_IF_ERROR(CheckHash("header.graph_sha256", header.graph_sha256()));
    const std::string found = Sha256Of(header.graph());
    if (found != header.graph_sha256()) {
      return Invalid("header.graph_sha256: ", absl::BytesToHexString(header.graph_sha256()),
                     ", but the graph's bytes have ", absl::BytesToHexString(found));
    }
  }
  const std::vector<std::string> devices = DevicesOf(options_);
  if (!header.device().empty() && !absl::c_linear_search(devices, header.device())) {
    return Invalid("header.device: this server has no ", Quoted(header.device()), "; it has ",
                   absl::StrJoin(devices, ", "), " (--device)");
  }
  RETURN_IF_ERROR(CheckRuleNames("header.disable_rules", header.disable_rules()));
  return CheckSearchBudget("header.search_budget", header.search_budget());
}

absl::Status Upload::CheckFormat(const v1::UploadHeader& header) const {
  constexpr absl::string_view kFormats[] = {"athanor", "onnx", "hf", "gguf"};
  const std::string& format = header.format();
  if (!absl::c_linear_search(kFormats, format)) {
    return Invalid("header.format: ", Quoted(format), "; there are: \"",
                   absl::StrJoin(kFormats, "\", \""), "\"");
  }
  const bool athanor = format == "athanor", onnx = format == "onnx";
  const bool checkpoint = !athanor && !onnx;
  const struct {
    std::string_view field;
    bool given, taken;
    std::string_view formats;
  } rows[] = {
      {"graph", !header.graph().empty(), !checkpoint, "s \"athanor\" and \"onnx\""},
      {"tensors", !header.tensors().empty(), athanor, " \"athanor\""},
      {"files", !header.files().empty(), !athanor, "s \"onnx\", \"hf\" and \"gguf\""},
      {"dims", !header.dims().empty(), onnx, " \"onnx\""},
      {"values", !header.values().empty(), onnx, " \"onnx\""},
      {"random_seed", header.has_random_seed(), onnx, " \"onnx\""},
      {"ignore_keys", !header.ignore_keys().empty(), checkpoint, "s \"hf\" and \"gguf\""},
      {"decoder", header.has_decoder(), checkpoint, "s \"hf\" and \"gguf\""},
  };
  for (const auto& row : rows) {
    if (!row.given || row.taken) continue;
    return Invalid("header.", row.field, ": of format", row.formats, " only");
  }
  return absl::OkStatus();
}

void Upload::FillRow(const v1::UploadHeader& header) {
  row_.name = header.name();
  row_.format = header.format();
  row_.search_budget = header.search_budget();
  row_.disable_rules = absl::StrJoin(header.disable_rules(), ",");
  row_.approximate = header.approximate();
  row_.deterministic = header.deterministic();
  row_.batch_dim = header.batch_dim();
  v1::Model notes;
  notes.set_device(header.device());
  row_.notes = notes.SerializeAsString();
  row_.device = header.device().empty() ? DevicesOf(options_).front() : header.device();
  buckets_ = header.buckets();
  dry_run_ = header.dry_run();
}

absl::Status Upload::ReadGraph(const v1::UploadHeader& header) {
  ASSIGN_OR_RETURN(ImportedGraph graph, ImportGraph(header.graph(), GraphLimitsOf(options_),
                                                    static_cast<int>(options_.max_nesting)));
  row_.graph = header.graph();
  return MakeVersion(std::move(graph), buckets_);
}

absl::Status Upload::ReadImported() {
  ASSIGN_OR_RETURN(ImportedModel imported, import_->Import(cancelled_, &refusals_));
  row_.graph = GraphToProto(imported.graph).SerializeAsString();
  // Parses the graph as the next start will, to refuse now what that would refuse.
  absl::StatusOr<ImportedGraph> stored =
      ImportGraph(row_.graph, GraphLimitsOf(options_), static_cast<int>(options_.max_nesting),
                  GraphMakerOf(row_.format));
  if (!stored.ok()) return Prefixed("as it would be stored: ", stored.status());
  ImportedGraph& graph = *stored;
  v1::Model notes;
  notes.ParseFromString(row_.notes);
  notes.mutable_notes()->Assign(imported.notes.begin(), imported.notes.end());
  row_.notes = notes.SerializeAsString();
  std::vector<TextFile> files;
  for (const KeptFile& file : imported.files) {
    const auto bytes = static_cast<int64_t>(file.bytes.size());
    if (parameters_.emplace(file.row.hash, bytes).second) {
      row_.tensors.push_back({file.row.hash, bytes});
    }
    row_.files.push_back(file.row);
    files.push_back({file.row.path, file.bytes});
  }
  row_.generation = std::move(imported.generation);
  if (row_.batch_dim.empty()) row_.batch_dim = std::move(imported.batch_dim);
  const int64_t most = std::min(kDefaultBuckets, options_.max_buckets);
  BucketGrid::Ranges buckets = buckets_;
  if (buckets.empty()) {
    const bool decoder = row_.format != "onnx" && !graph.graph.StateIds().empty();
    buckets = decoder ? DecoderRanges(graph.graph, most) : DefaultRanges(graph.graph, most);
  }
  RETURN_IF_ERROR(MakeVersion(std::move(graph), buckets));
  RETURN_IF_ERROR(ReadParameters());
  if (LanguageModels::Encodes(*pending_)) {
    ASSIGN_OR_RETURN(auto encoder, LanguageModels::ReadEncoder(*pending_, files));
    pending_->SetEncoder(std::move(encoder));
  }
  if (!LanguageModels::Generates(*pending_)) return absl::OkStatus();
  int64_t bytes = 0;  // that the ledger does not count yet
  for (const TensorRow& tensor : row_.tensors) {
    if (registry_->tensors().Bytes(tensor.hash) < 0) bytes += tensor.bytes;
  }
  ASSIGN_OR_RETURN(hosted_, registry_->language_models().Read(*pending_, files, bytes));
  return absl::OkStatus();
}

absl::Status Upload::MakeVersion(ImportedGraph graph, const BucketGrid::Ranges& buckets) {
  v1::UploadHeader stored;
  *stored.mutable_buckets() = buckets;
  row_.buckets = stored.SerializeAsString();
  absl::Status s = CheckBuckets("header.buckets", buckets, graph.graph, options_.max_buckets);
  if (s.ok()) s = CheckApproximate("header.approximate", row_.approximate, graph.graph);
  if (s.ok()) s = CheckBatchDim(row_.batch_dim, graph.graph);
  if (!s.ok()) return s;
  VersionRow row = row_;
  row.deterministic |= options_.deterministic;  // applies while the flag is set, and is not stored
  ASSIGN_OR_RETURN(pending_,
                   ModelVersion::Create(std::move(row), std::move(graph), BatchLimitsOf(options_)));
  return absl::OkStatus();
}

absl::Status Upload::ReadParameters() {
  const Graph& graph = pending_->graph();
  const std::vector<NodeId> ids = graph.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    const Node& node = graph.node(ids[i]);
    int64_t bytes = DTypeBytes(node.type.dtype);
    for (const Expr& size : node.type.shape) {
      const std::optional<int64_t> n = size.constant();
      if (!n.has_value() || __builtin_mul_overflow(bytes, *n, &bytes)) {
        return Invalid("parameter ", Quoted(node.name), ": its shape must be of fixed sizes");
      }
    }
    const std::string& hash = pending_->parameter_hashes()[i];
    auto [it, added] = parameters_.emplace(hash, bytes);
    if (!added && it->second != bytes) {
      return Invalid("parameter ", Quoted(node.name), ": has ", bytes,
                     " bytes, but shares the hash ", absl::BytesToHexString(hash), " with one of ",
                     it->second, " bytes");
    }
    if (added) row_.tensors.push_back({hash, bytes});
  }
  return absl::OkStatus();
}

absl::Status Upload::CheckTensors(const v1::UploadHeader& header) {
  absl::flat_hash_set<std::string> sent;
  for (const v1::TensorInfo& tensor : header.tensors()) {
    RETURN_IF_ERROR(CheckHash("header.tensors.hash", tensor.hash()));
    const std::string what = "header.tensors: tensor " + absl::BytesToHexString(tensor.hash());
    auto parameter = parameters_.find(tensor.hash());
    if (parameter == parameters_.end()) return Invalid(what, ": no parameter of the graph has it");
    if (!sent.insert(tensor.hash()).second) return Invalid(what, ": listed twice");
    if (tensor.bytes() != parameter->second) {
      return Invalid(what, ": announced with ", tensor.bytes(), " bytes; its parameter has ",
                     parameter->second);
    }
    if (tensor.bytes() > options_.max_tensor_bytes) {
      return absl::ResourceExhaustedError(Cat(what, ": ", tensor.bytes(), " bytes; at most ",
                                              options_.max_tensor_bytes,
                                              " are taken (--max_tensor_bytes)"));
    }
  }
  std::vector<std::string> held;
  for (const TensorRow& tensor : row_.tensors) {
    if (!sent.contains(tensor.hash)) held.push_back(tensor.hash);
  }
  RETURN_IF_ERROR(CheckProofs(header, held));
  ASSIGN_OR_RETURN(pins_, registry_->tensors().Pin(held));
  for (const std::string& hash : held) {
    const int64_t bytes = registry_->tensors().Bytes(hash);
    if (bytes == parameters_[hash]) continue;
    if (bytes < 0) return HeldTensors::NeitherSentNorProved(hash);  // found damaged since
    return Invalid("tensor ", absl::BytesToHexString(hash), ": held with ", bytes,
                   " bytes; its parameter has ", parameters_[hash]);
  }
  return absl::OkStatus();
}

absl::Status Upload::CheckProofs(const v1::UploadHeader& header,
                                 absl::Span<const std::string> hashes) {
  const bool good = registry_->challenges().Take(header.nonce(), Challenges::Clock::now());
  absl::flat_hash_map<std::string, std::string> proofs;
  for (const v1::TensorProof& proof : header.proofs()) proofs[proof.hash()] = proof.proof();
  for (const std::string& hash : hashes) {
    if (!registry_->tensors().Proves(header.nonce(), hash, proofs[hash]) || !good) {
      return HeldTensors::NeitherSentNorProved(hash);
    }
  }
  return absl::OkStatus();
}

absl::Status Upload::BeginTensors(const v1::UploadHeader& header) {
  for (const v1::TensorInfo& info : header.tensors()) {
    Tensor tensor;
    ASSIGN_OR_RETURN(tensor.reservation,
                     ledger_->Reserve(HeldKind::kParameters, info.bytes(),
                                      Cat("model ", Quoted(header.name()), ", tensor ",
                                          absl::BytesToHexString(info.hash()))));
    tensor.writer = registry_->tensors().store().Begin(info.hash(), info.bytes());
    tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status Upload::CheckChunk(const v1::TensorChunk& chunk) const {
  const std::string got =
      Cat("chunk of tensor ", absl::BytesToHexString(chunk.hash()), " at offset ", chunk.offset());
  if (current_ == tensors_.size()) return Invalid(got, "; expected ", Expected());
  const TensorWriter& writer = *tensors_[current_].writer;
  if (chunk.hash() != writer.hash() || chunk.offset() != writer.written()) {
    return Invalid(got, "; expected ", Expected());
  }
  return CheckChunkBytes(got, static_cast<int64_t>(chunk.data().size()), options_.max_chunk_bytes,
                         {"tensor", writer.bytes(), writer.written()});
}

absl::Status Upload::TakeChunk(const v1::TensorChunk& chunk) {
  RETURN_IF_ERROR(CheckChunk(chunk));
  RETURN_IF_ERROR(tensors_[current_].writer->Append(chunk.data()));
  return EndTensors();
}

absl::Status Upload::EndTensors() {
  for (; current_ < tensors_.size(); ++current_) {
    TensorWriter& writer = *tensors_[current_].writer;
    if (writer.written() < writer.bytes()) break;
    RETURN_IF_ERROR(writer.Verify());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HeldTensors::NewTensor>> Upload::NewTensors() {
  if (import_ != nullptr) return import_->Tensors();
  std::vector<HeldTensors::NewTensor> published;
  for (Tensor& tensor : tensors_) {
    if (auto held = registry_->tensors().Pin({tensor.writer->hash()}); held.ok()) {
      tensor.held = *std::move(held);
      continue;
    }
    RETURN_IF_ERROR(tensor.writer->Sync());
    published.push_back({.hash = tensor.writer->hash(),
                         .reservation = std::move(tensor.reservation),
                         .writer = tensor.writer.get(),
                         .seal = tensor.writer->seal()});
  }
  return published;
}

absl::Status Upload::Commit() {
  if (current_ < tensors_.size() || (import_ != nullptr && !import_->complete())) {
    return Invalid("commit before the end; expected ", Expected());
  }
  if (import_ != nullptr) {
    RETURN_IF_ERROR(ReadImported());
  }
  if (dry_run_) {
    version_ = pending_;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(auto tensors, NewTensors());
  absl::Status added = registry_->Add(row_, pending_, std::move(tensors), std::move(hosted_));
  if (!added.ok()) return added;
  version_ = pending_;
  return absl::OkStatus();
}

}  // namespace athanor
