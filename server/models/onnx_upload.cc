#include "server/models/onnx_upload.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/frontend/attr_proto.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/frontend/onnx/model/wire.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/chunk_bytes.h"

namespace athanor {
namespace {

constexpr size_t kMaxPathBytes = 1024;
constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kMaxValueBytes = 64 << 10;  // of one input's value
constexpr int64_t kMaxValuesBytes = 1 << 20;  // of all values
constexpr unsigned kMaxHashThreads = 4;
// Peak memory of an import per byte of the message without its tensors. Measured: 171 MB for a
// message of 2.1 MB with 90,000 nodes of 24 bytes, the smallest possible.
constexpr int64_t kImportBytes = 80;

absl::Status CheckPath(const std::string& path) {
  const auto wrong = [&](std::string_view why) {
    return Invalid("header.files: path ", Quoted(path), " ", why,
                   "; it must be relative to the model's folder and stay in it");
  };
  if (path.size() > kMaxPathBytes) {
    return Invalid("header.files: a path of ", path.size(), " bytes; at most ", kMaxPathBytes,
                   " are allowed");
  }
  if (path.empty()) {
    return Invalid(
        "header.files: an empty path; that is the model's, which comes first and only "
        "where header.graph is empty");
  }
  if (path[0] == '/') return wrong("is absolute");
  if (path.find('\\') != std::string::npos) return wrong("has a backslash");
  if (path.find('\0') != std::string::npos) return wrong("has a zero byte");
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return wrong("leaves its folder");
  }
  return absl::OkStatus();
}

std::string FileText(const std::string& path) {
  return path.empty() ? std::string("the model's file") : Cat("file ", Quoted(path));
}

}  // namespace

// Reads from the mapped files.
class OnnxUpload::Reader final : public onnx::PayloadReader {
 public:
  explicit Reader(const std::vector<File>& files) : files_(files) {}
  absl::StatusOr<std::string_view> Bytes(const onnx::PayloadRef& ref) const override {
    return files_[ref.file].spool->view().substr(ref.offset, ref.bytes);
  }

 private:
  const std::vector<File>& files_;
};

OnnxUpload::OnnxUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options)
    : registry_(*registry), ledger_(*ledger), options_(options) {}

OnnxUpload::~OnnxUpload() = default;

absl::Status OnnxUpload::Begin(const v1::UploadHeader& header) {
  name_ = header.name();
  RETURN_IF_ERROR(ReadGiven(header));
  if (header.files_size() > options_.max_onnx_files) {
    return absl::ResourceExhaustedError(Cat("header.files: ", header.files_size(),
                                            " files; at most ", options_.max_onnx_files,
                                            " are taken (--max_onnx_files)"));
  }
  const bool inside = !header.graph().empty();
  if (inside) {
    RETURN_IF_ERROR(AddFile("", static_cast<int64_t>(header.graph().size())));
  } else if (header.files().empty() || !header.files(0).path().empty()) {
    return Invalid(
        "header.graph: empty; the model comes in it, or as the first of header.files, "
        "with an empty path");
  }
  absl::flat_hash_set<std::string> paths;
  for (const v1::UploadFile& file : header.files()) {
    if (inside || !files_.empty()) {
      RETURN_IF_ERROR(CheckPath(file.path()));
    }
    if (!paths.insert(file.path()).second) {
      return Invalid("header.files: path ", Quoted(file.path()), " is there twice");
    }
    RETURN_IF_ERROR(AddFile(file.path(), file.bytes()));
  }
  first_chunks_ = inside ? 1 : 0;
  if (inside) {
    RETURN_IF_ERROR(files_[0].spool->Append(header.graph()));
  }
  return EndFiles();
}

absl::Status OnnxUpload::AddFile(const std::string& path, int64_t bytes) {
  if (bytes < 0) return Invalid("header.files: ", FileText(path), " has ", bytes, " bytes");
  if (bytes > options_.max_onnx_bytes - bytes_) {
    return absl::ResourceExhaustedError(Cat(
        "header.files: with ", FileText(path), " of ", bytes, " bytes the model has more than the ",
        options_.max_onnx_bytes, " bytes that are taken (--max_onnx_bytes)"));
  }
  bytes_ += bytes;
  files_.push_back({path, registry_.tensors().store().BeginSpool(bytes)});
  return absl::OkStatus();
}

absl::Status OnnxUpload::ReadGiven(const v1::UploadHeader& header) {
  absl::flat_hash_set<std::string> names;
  for (const v1::DimGiven& dim : header.dims()) {
    if (!names.insert(dim.name()).second) {
      return Invalid("header.dims: dim ", Quoted(dim.name()), " is given twice");
    }
    onnx::DimGiven given{dim.name(), {}, {}, dim.equals()};
    if (dim.has_min()) given.min = dim.min();
    if (dim.has_max()) given.max = dim.max();
    if (!given.equals.empty() && (given.min.has_value() || given.max.has_value())) {
      return Invalid("header.dims: dim ", Quoted(dim.name()),
                     " has bounds and equals; give one of them");
    }
    given_.dims.push_back(std::move(given));
  }
  int64_t left = kMaxValuesBytes;
  MessageLimits limits;
  limits.graph.max_attr_bytes = kMaxValueBytes;
  for (const v1::NamedLiteral& value : header.values()) {
    v1::AttrValue message;
    *message.mutable_tensor() = value.value();
    absl::StatusOr<AttrValue> read = AttrFromProto("value", AttrType::kTensor, message, limits);
    const std::string what = Cat("header.values: of input ", Quoted(value.name()), ": ");
    if (!read.ok()) return Prefixed(what, read.status());
    Tensor tensor = std::get<Tensor>(*std::move(read));
    left -= static_cast<int64_t>(tensor.bytes.size());
    if (left < 0) return Invalid(what, "all values together have more than ", kMaxValuesBytes);
    if (!given_.values.emplace(value.name(), std::move(tensor)).second) {
      return Invalid(what, "given twice");
    }
  }
  if (header.has_random_seed()) given_.random_seed = header.random_seed();
  return absl::OkStatus();
}

std::string OnnxUpload::Expected() const {
  if (complete()) return "the commit";
  const File& file = files_[current_];
  return Cat(FileText(file.path), ", offset ", file.spool->written(), " of ", file.spool->bytes());
}

absl::Status OnnxUpload::Take(const v1::FileChunk& chunk) {
  const std::string got = Cat("chunk of file ", chunk.file(), " at offset ", chunk.offset());
  if (complete()) return Invalid(got, "; expected ", Expected());
  SpooledFile& spool = *files_[current_].spool;
  if (chunk.file() != static_cast<int64_t>(current_) - first_chunks_ ||
      chunk.offset() != spool.written()) {
    return Invalid(got, "; expected ", Expected(), " (file ",
                   static_cast<int64_t>(current_) - first_chunks_, ")");
  }
  absl::Status fits =
      CheckChunkBytes(got, static_cast<int64_t>(chunk.data().size()), options_.max_chunk_bytes,
                      {"file", spool.bytes(), spool.written()});
  if (!fits.ok()) return fits;
  RETURN_IF_ERROR(spool.Append(chunk.data()));
  return EndFiles();
}

absl::Status OnnxUpload::EndFiles() {
  for (; current_ < files_.size(); ++current_) {
    SpooledFile& spool = *files_[current_].spool;
    if (spool.written() < spool.bytes()) break;
    RETURN_IF_ERROR(spool.Finish());
    if (current_ == 0) model_ = ReadModel();  // errors in it are reported at the commit
  }
  return absl::OkStatus();
}

absl::StatusOr<onnx::OnnxModel> OnnxUpload::ReadModel() {
  onnx::LiftLimits lift;
  lift.max_message_bytes = options_.max_graph_bytes;
  ASSIGN_OR_RETURN(onnx::Lifted lifted, onnx::LiftPayloads(files_[0].spool->view(), lift));
  ASSIGN_OR_RETURN(
      memory_, ledger_.Reserve(HeldKind::kUploads, kImportBytes * int64_t(lifted.message.size()),
                               Cat("the import of model ", Quoted(name_))));
  onnx::FileTable table;
  for (const File& file : files_) table.files.push_back({file.path, file.spool->bytes()});
  given_.limits.graph = GraphLimitsOf(options_);
  given_.limits.max_copied_bytes = options_.max_graph_bytes;
  absl::StatusOr<onnx::OnnxModel> model =
      onnx::ParseOnnx(std::move(lifted), std::move(table), given_.limits.graph);
  if (!model.ok()) return model.status();
  std::vector<std::vector<SpooledFile::Part>> parts(files_.size());
  for (const ::onnx::TensorProto& initializer : model->proto.graph().initializer()) {
    const auto tensor = onnx::DescribeTensor(initializer, model->lifted, model->files);
    if (!tensor.ok() || !IsRange(*tensor) || tensor->payload->file == 0) continue;
    const DType dtype =
        tensor->form == onnx::PayloadForm::kPacked ? DType::kU8 : onnx::CarrierOf(tensor->elem);
    parts[tensor->payload->file].push_back(
        {tensor->payload->offset, tensor->payload->bytes, dtype});
  }
  for (size_t f = 1; f < files_.size(); ++f) files_[f].spool->ReadParts(std::move(parts[f]));
  return model;
}

absl::StatusOr<onnx::OnnxImported> OnnxUpload::ImportModel(const std::function<bool()>& cancelled,
                                                           std::vector<ImportRefusal>* refusals) {
  if (!model_->ok()) return model_->status();
  given_.cancelled = cancelled;
  reader_ = std::make_unique<Reader>(files_);
  return onnx::ImportOnnx(**model_, *reader_, given_, refusals);
}

absl::StatusOr<OnnxUpload::Imported> OnnxUpload::Import(const std::function<bool()>& cancelled,
                                                        std::vector<ImportRefusal>* refusals) {
  ASSIGN_OR_RETURN(onnx::OnnxImported imported, ImportModel(cancelled, refusals));
  model_.reset();
  parameters_ = std::move(imported.parameters);
  seals_.resize(parameters_.size());
  ASSIGN_OR_RETURN(hashes_, HashParameters(cancelled));
  return Imported{{std::move(imported.graph), hashes_, std::move(imported.input_elements),
                   std::move(imported.output_elements)},
                  std::move(imported.notes)};
}

absl::StatusOr<std::vector<std::string>> OnnxUpload::HashParameters(
    const std::function<bool()>& cancelled) {
  std::vector<absl::StatusOr<std::string>> found(parameters_.size(), "");
  std::vector<size_t> left;  // tensors not hashed on arrival
  int64_t bytes = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const onnx::StoredTensor& tensor = parameters_[i];
    // Bools have to be checked one by one.
    if (const SpooledFile::Contents* contents = ContentsOf(tensor);
        contents != nullptr && tensor.elem != onnx::Elem::kBool) {
      found[i] = contents->hash;
      seals_[i] = contents->seal;
    }
    if (!found[i]->empty()) continue;
    left.push_back(i);
    bytes += tensor.stored_bytes();
  }
  // Starts with the largest, so that no thread is left with a large one at the end.
  std::sort(left.begin(), left.end(), [&](size_t a, size_t b) {
    return parameters_[a].stored_bytes() > parameters_[b].stored_bytes();
  });
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&](bool asks) {
    for (size_t at = next++; at < left.size() && !stop; at = next++) {
      const size_t i = left[at];
      Sha256 sha256;
      const auto take = [&](std::string_view piece) {
        if (asks && cancelled && cancelled()) stop = true;
        if (stop) return absl::CancelledError("the upload was cancelled");
        sha256.Update({piece.data(), piece.size()});
        return absl::OkStatus();
      };
      const absl::Status s = onnx::ForEachPiece(parameters_[i], *reader_, kPieceBytes, take);
      seals_[i] = sha256.With(kSealSuffix);
      found[i] = s.ok() ? absl::StatusOr<std::string>(sha256.Finish()) : s;
      if (!s.ok()) stop = true;
    }
  };
  const unsigned most = std::min(kMaxHashThreads, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  while (bytes > kPieceBytes && helpers.size() + 1 < std::min<size_t>(most, left.size())) {
    helpers.emplace_back(work, /*asks=*/false);
  }
  work(/*asks=*/true);
  for (std::thread& helper : helpers) helper.join();
  std::vector<std::string> hashes;
  absl::Status cut;  // status of a tensor that was skipped because another one failed
  for (absl::StatusOr<std::string>& hash : found) {
    if (!hash.ok() && !absl::IsCancelled(hash.status())) return hash.status();
    if (!hash.ok()) cut = hash.status();
    if (hash.ok()) hashes.push_back(*std::move(hash));
  }
  if (!cut.ok()) return cut;
  return hashes;
}

std::string OnnxUpload::BlobName(size_t file) const {
  std::set<std::string> ranges;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const onnx::StoredTensor& tensor = parameters_[i];
    if (!IsRange(tensor) || static_cast<size_t>(tensor.payload->file) != file) continue;
    ranges.insert(Cat(tensor.payload->offset, "+", tensor.payload->bytes, "=",
                      absl::BytesToHexString(hashes_[i])));
  }
  return Sha256Of(Cat(files_[file].spool->bytes(), " bytes: ", absl::StrJoin(ranges, " ")));
}

bool OnnxUpload::IsRange(const onnx::StoredTensor& tensor) const {
  return tensor.payload.has_value() && tensor.form != onnx::PayloadForm::kVarints &&
         tensor.payload->bytes > 0;
}

const SpooledFile::Contents* OnnxUpload::ContentsOf(const onnx::StoredTensor& tensor) const {
  if (!IsRange(tensor)) return nullptr;
  return files_[tensor.payload->file].spool->ContentsOf(tensor.payload->offset,
                                                        tensor.payload->bytes);
}

absl::StatusOr<TensorWriter*> OnnxUpload::Write(const std::string& hash,
                                                const onnx::StoredTensor& tensor) {
  auto writer = registry_.tensors().store().Begin(hash, tensor.stored_bytes());
  absl::Status s = onnx::ForEachPiece(tensor, *reader_, kPieceBytes, [&](std::string_view piece) {
    return writer->Append({piece.data(), piece.size()});
  });
  if (s.ok()) s = writer->Verify();
  if (s.ok()) s = writer->Sync();
  if (!s.ok()) return s;
  return writers_.emplace_back(std::move(writer)).get();
}

absl::StatusOr<std::vector<HeldTensors::NewTensor>> OnnxUpload::Tensors() {
  std::vector<size_t> added;  // positions in parameters_
  std::vector<int64_t> ranges(files_.size());
  absl::flat_hash_set<std::string> seen;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!seen.insert(hashes_[i]).second) continue;
    auto held = registry_.tensors().Pin({hashes_[i]});
    if (held.ok()) {
      pins_.push_back(*std::move(held));
      continue;
    }
    added.push_back(i);
    if (IsRange(parameters_[i])) {
      ranges[parameters_[i].payload->file] += parameters_[i].payload->bytes;
    }
  }
  // A file is kept as a whole while any of its tensors is used, so keep it only if tensors are most
  // of it.
  std::vector<bool> kept(files_.size());
  for (size_t f = 0; f < files_.size(); ++f) {
    kept[f] = ranges[f] > 0 && ranges[f] >= files_[f].spool->bytes() / 2;
    if (!kept[f]) continue;
    files_[f].spool->SetName(BlobName(f));
    RETURN_IF_ERROR(files_[f].spool->Sync());
  }
  std::vector<HeldTensors::NewTensor> tensors;
  for (size_t i : added) {
    const onnx::StoredTensor& parameter = parameters_[i];
    ASSIGN_OR_RETURN(
        auto reservation,
        ledger_.Reserve(HeldKind::kParameters, parameter.stored_bytes(),
                        Cat("model ", Quoted(name_), ", parameter ", Quoted(parameter.name))));
    HeldTensors::NewTensor& tensor = tensors.emplace_back();
    tensor.hash = hashes_[i];
    tensor.seal = seals_[i];
    tensor.reservation = std::move(reservation);
    if (const SpooledFile::Contents* contents = ContentsOf(parameter); contents != nullptr) {
      tensor.magnitude.emplace(contents->dtype, contents->magnitude);
    }
    if (IsRange(parameter) && kept[parameter.payload->file]) {
      tensor.blob = files_[parameter.payload->file].spool.get();
      tensor.offset = parameter.payload->offset;
      continue;
    }
    ASSIGN_OR_RETURN(tensor.writer, Write(hashes_[i], parameter));
  }
  return tensors;
}

GraphLimits GraphLimitsOf(const ServerOptions& options) {
  GraphLimits limits;
  limits.max_nodes = options.max_nodes;
  limits.max_rank = static_cast<int>(options.max_rank);
  limits.max_dims = options.max_dims;
  limits.max_name_bytes = options.max_name_bytes;
  limits.max_tensor_bytes = options.max_tensor_bytes;
  limits.max_attr_bytes = options.max_attr_bytes;
  limits.max_expr_size = options.max_expr_size;
  return limits;
}

v1::Refusals RefusalsToProto(absl::Span<const ImportRefusal> refusals, int64_t bytes) {
  v1::Refusals message;
  constexpr int64_t kOverhead = 16;  // tag and length of an item, and `others`
  int64_t used = kOverhead;
  for (const ImportRefusal& refusal : refusals) {
    v1::Refusals::Refusal item;
    item.set_code(static_cast<int32_t>(refusal.code));
    item.set_node(refusal.node);
    item.set_domain(refusal.domain);
    item.set_op(refusal.op);
    item.set_version(refusal.version);
    item.set_reason(refusal.reason);
    for (const std::string& input : refusal.inputs) item.add_inputs(input);
    used += static_cast<int64_t>(item.ByteSizeLong()) + kOverhead;
    if (used > bytes) {
      message.set_others(static_cast<int64_t>(refusals.size()) - message.refusals_size());
      return message;
    }
    *message.add_refusals() = std::move(item);
  }
  return message;
}

}  // namespace athanor
