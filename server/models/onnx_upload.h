// An upload in ONNX format: the model's message, and files of external data.
//
//   OnnxUpload upload(&registry, &ledger, options);   // then as model_import.h says
//
// The model's message is parsed as soon as it is complete, so that external data is hashed on
// arrival. Used by one thread at a time.
#ifndef ATHANOR_SERVER_MODELS_ONNX_UPLOAD_H_
#define ATHANOR_SERVER_MODELS_ONNX_UPLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/frontend/onnx/model/model.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/model_import.h"
#include "server/models/registry.h"

namespace athanor {

class OnnxUpload final : public ModelImport {
 public:
  // The arguments must outlive the upload.
  OnnxUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options);
  ~OnnxUpload() override;

  // Also returns INVALID_ARGUMENT for a dim or a value given twice, and for a literal whose bytes
  // do not fit.
  absl::Status Begin(const v1::UploadHeader& header) override;
  absl::Status Take(const v1::FileChunk& chunk) override;
  absl::StatusOr<v1::Model> Outline() const override;
  // Returns INVALID_ARGUMENT for a dim given twice, or with bounds and equals.
  absl::Status Give(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims) override;
  absl::StatusOr<ImportedModel> Import(const std::function<bool()>& cancelled,
                                       std::vector<ImportRefusal>* refusals) override;

 private:
  class Reader;
  absl::Status ReadGiven(const v1::UploadHeader& header);
  // Parses the model's message once its file is complete.
  void ReadModel();
  // Also finds which parts of the other files are tensors.
  absl::StatusOr<onnx::OnnxModel> ParseModel();
  absl::StatusOr<onnx::OnnxImported> ImportModel(const std::function<bool()>& cancelled,
                                                 std::vector<ImportRefusal>* refusals);

  std::string name_;
  onnx::ImportOptions given_;
  ServerLedger::Reservation memory_;  // for the parts of the model that are parsed
  std::optional<absl::StatusOr<onnx::OnnxModel>> model_;
  std::unique_ptr<Reader> reader_;
  std::vector<onnx::StoredTensor> parameters_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_ONNX_UPLOAD_H_
