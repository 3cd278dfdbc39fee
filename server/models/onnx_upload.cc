#include "server/models/onnx_upload.h"

#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "compiler/frontend/attr_proto.h"
#include "compiler/frontend/onnx/model/wire.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int64_t kMaxValueBytes = 64 << 10;  // of one input's value
constexpr int64_t kMaxValuesBytes = 1 << 20;  // of all values
// Peak memory of an import per byte of the message without its tensors. Measured: 171 MB for a
// message of 2.1 MB with 90,000 nodes of 24 bytes, the smallest possible.
constexpr int64_t kImportBytes = 80;

// Reports whether the tensor is stored as a range of its file.
bool IsRange(const onnx::StoredTensor& tensor) {
  return tensor.payload.has_value() && tensor.form != onnx::PayloadForm::kVarints &&
         tensor.payload->bytes > 0;
}

// Describes a value as the file states it. A size without a name gets the one that the import gives
// an input's (compiler/frontend/onnx/model/dims.h).
void Describe(const ::onnx::ValueInfoProto& value, v1::ModelTensor* tensor) {
  tensor->set_name(value.name());
  const ::onnx::TypeProto::Tensor& type = value.type().tensor_type();
  const auto elem = onnx::ElemOf(type.elem_type());
  if (elem.has_value()) tensor->set_dtype(std::string(DTypeName(onnx::CarrierOf(*elem))));
  for (int axis = 0; axis < type.shape().dim_size(); ++axis) {
    const ::onnx::TensorShapeProto::Dimension& dim = type.shape().dim(axis);
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      tensor->add_shape(Cat(dim.dim_value()));
    } else {
      const bool named = absl::c_any_of(dim.dim_param(), absl::ascii_isalnum);
      tensor->add_shape(named ? dim.dim_param() : Cat(value.name(), "_", axis));
    }
  }
}

}  // namespace

// Reads from the mapped files.
class OnnxUpload::Reader final : public onnx::PayloadReader {
 public:
  explicit Reader(const FilesUpload& files) : files_(files) {}
  absl::StatusOr<std::string_view> Bytes(const onnx::PayloadRef& ref) const override {
    return files_.view(ref.file).substr(ref.offset, ref.bytes);
  }

 private:
  const FilesUpload& files_;
};

OnnxUpload::OnnxUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options)
    : ModelImport(registry, ledger, options,
                  {options.max_onnx_bytes, options.max_onnx_files, "--max_onnx_bytes",
                   "--max_onnx_files"}) {}

OnnxUpload::~OnnxUpload() = default;

absl::Status OnnxUpload::Begin(const v1::UploadHeader& header) {
  name_ = header.name();
  RETURN_IF_ERROR(ReadGiven(header));
  RETURN_IF_ERROR(files_.Begin(header, /*unnamed=*/true));
  ReadModel();
  return absl::OkStatus();
}

absl::Status OnnxUpload::Take(const v1::FileChunk& chunk) {
  RETURN_IF_ERROR(files_.Take(chunk));
  ReadModel();
  return absl::OkStatus();
}

absl::Status OnnxUpload::Give(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims) {
  absl::flat_hash_set<std::string> names;
  for (const v1::DimGiven& dim : dims) {
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
  return absl::OkStatus();
}

absl::Status OnnxUpload::ReadGiven(const v1::UploadHeader& header) {
  RETURN_IF_ERROR(Give(header.dims()));
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

void OnnxUpload::ReadModel() {
  // Errors in it are reported at the commit.
  if (!model_.has_value() && files_.arrived() > 0) model_ = ParseModel();
}

absl::StatusOr<onnx::OnnxModel> OnnxUpload::ParseModel() {
  onnx::LiftLimits lift;
  lift.max_message_bytes = options_.max_graph_bytes;
  ASSIGN_OR_RETURN(onnx::Lifted lifted, onnx::LiftPayloads(files_.view(0), lift));
  ASSIGN_OR_RETURN(
      memory_, ledger_.Reserve(HeldKind::kUploads, kImportBytes * int64_t(lifted.message.size()),
                               Cat("the import of model ", Quoted(name_))));
  onnx::FileTable table;
  for (size_t f = 0; f < files_.size(); ++f) {
    table.files.push_back({files_.path(f), files_.spool(f).bytes()});
  }
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
  for (size_t f = 1; f < files_.size(); ++f) files_.spool(f).ReadParts(std::move(parts[f]));
  return model;
}

absl::StatusOr<v1::Model> OnnxUpload::Outline() const {
  if (!model_->ok()) return model_->status();
  const ::onnx::GraphProto& graph = (*model_)->proto.graph();
  absl::flat_hash_set<std::string_view> initialised;
  for (const ::onnx::TensorProto& tensor : graph.initializer()) initialised.insert(tensor.name());
  v1::Model outline;
  for (const ::onnx::ValueInfoProto& input : graph.input()) {
    if (!initialised.contains(input.name())) Describe(input, outline.add_inputs());
  }
  for (const ::onnx::ValueInfoProto& output : graph.output()) {
    Describe(output, outline.add_outputs());
  }
  return outline;
}

absl::StatusOr<onnx::OnnxImported> OnnxUpload::ImportModel(const std::function<bool()>& cancelled,
                                                           std::vector<ImportRefusal>* refusals) {
  if (!model_->ok()) return model_->status();
  given_.cancelled = cancelled;
  reader_ = std::make_unique<Reader>(files_);
  return onnx::ImportOnnx(**model_, *reader_, given_, refusals);
}

absl::StatusOr<ImportedModel> OnnxUpload::Import(const std::function<bool()>& cancelled,
                                                 std::vector<ImportRefusal>* refusals) {
  ASSIGN_OR_RETURN(onnx::OnnxImported imported, ImportModel(cancelled, refusals));
  model_.reset();
  parameters_ = std::move(imported.parameters);
  std::vector<UploadedTensor> tensors;
  for (const onnx::StoredTensor& parameter : parameters_) {
    UploadedTensor& tensor = tensors.emplace_back();
    tensor.what = Cat("parameter ", Quoted(parameter.name));
    tensor.bytes = parameter.stored_bytes();
    if (IsRange(parameter)) {
      tensor.place = {static_cast<size_t>(parameter.payload->file), parameter.payload->offset};
    }
    // Bools have to be checked one by one.
    if (tensor.place.has_value() && parameter.elem != onnx::Elem::kBool) continue;
    tensor.read = [this, &parameter](UploadedTensor::Take take) {
      return onnx::ForEachPiece(parameter, *reader_, FilesUpload::kPieceBytes, take);
    };
  }
  ASSIGN_OR_RETURN(std::vector<std::string> hashes, files_.Hash(std::move(tensors), cancelled));
  return ImportedModel{{std::move(imported.graph), std::move(hashes),
                        std::move(imported.input_elements), std::move(imported.output_elements)},
                       std::move(imported.notes)};
}

}  // namespace athanor
