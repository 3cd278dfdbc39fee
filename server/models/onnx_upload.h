// The files of an ONNX upload. They are spooled on arrival, imported when complete, and then
// published as tensors in place.
//
//   OnnxUpload files(&registry, &ledger, options);
//   files.Begin(header);  for each chunk: files.Take(chunk);
//   absl::StatusOr<OnnxUpload::Imported> model = files.Import(cancelled, &refusals);
//   registry.Add(row, version, files.Tensors().value());
//
// Never opens a file by a name in the model: all files are those announced in the header, stored
// under names chosen by the server. Weights are only in page cache: mapped, hashed in place, and
// named as ranges of the spooled file. The model's message is parsed as soon as it is complete, so
// that external data is hashed on arrival. Used by one thread at a time; the destructor removes
// everything not published.
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
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/frontend/onnx/model/model.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/registry.h"

namespace athanor {

class OnnxUpload {
 public:
  // The arguments must outlive the upload.
  OnnxUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options);
  ~OnnxUpload();

  // Begins the upload. Returns INVALID_ARGUMENT for a path that is empty (except the model's),
  // absolute, outside its folder or repeated; for negative sizes; for tensors given by hash; for a
  // dim or a value given twice, or a literal whose bytes do not fit. Returns RESOURCE_EXHAUSTED for
  // --max_onnx_bytes, --max_onnx_files, or a full disk.
  absl::Status Begin(const v1::UploadHeader& header);
  // Takes a chunk. Chunks must come file by file, in order. REQUIRES: Begin() was ok
  absl::Status Take(const v1::FileChunk& chunk);
  bool complete() const { return current_ == files_.size(); }
  // Returns "file \"w.bin\", offset 4096 of 8192" or "the commit".
  std::string Expected() const;

  struct Imported {
    ImportedGraph graph;  // its parameters have their hashes
    std::vector<std::string> notes;
  };
  // Parses, imports and hashes the model. May take seconds; polls `cancelled` from time to time.
  // REQUIRES: complete()
  absl::StatusOr<Imported> Import(const std::function<bool()>& cancelled,
                                  std::vector<ImportRefusal>* refusals);
  // Returns the parameters that the registry does not hold yet, synced, with memory reserved for
  // them. The parameters that it holds cannot be removed while the upload lives; the result points
  // into the upload. REQUIRES: Import() was ok
  absl::StatusOr<std::vector<HeldTensors::NewTensor>> Tensors();

 private:
  class Reader;
  struct File {
    std::string path;  // empty: the model
    std::unique_ptr<SpooledFile> spool;
  };
  absl::Status AddFile(const std::string& path, int64_t bytes);
  absl::Status ReadGiven(const v1::UploadHeader& header);
  // Finishes files that have all their bytes, including empty ones.
  absl::Status EndFiles();
  // Parses the model's message once its file is complete, and finds which parts of the other files
  // are tensors.
  absl::StatusOr<onnx::OnnxModel> ReadModel();
  absl::StatusOr<onnx::OnnxImported> ImportModel(const std::function<bool()>& cancelled,
                                                 std::vector<ImportRefusal>* refusals);
  absl::StatusOr<std::vector<std::string>> HashParameters(const std::function<bool()>& cancelled);
  // Returns the name of a file as a blob, made of its parameters' hashes and positions.
  std::string BlobName(size_t file) const;
  // Returns the contents of a tensor examined on arrival, null if it was not.
  const SpooledFile::Contents* ContentsOf(const onnx::StoredTensor& tensor) const;
  // Reports whether the tensor can stay in place, as a range of its file.
  bool IsRange(const onnx::StoredTensor& tensor) const;
  // Writes a tensor that is not a range of a file to a file of its own.
  absl::StatusOr<TensorWriter*> Write(const std::string& hash, const onnx::StoredTensor& tensor);

  Registry& registry_;
  ServerLedger& ledger_;
  const ServerOptions& options_;
  std::string name_;
  onnx::ImportOptions given_;
  std::vector<File> files_;  // the model is the first
  size_t current_ = 0;
  int64_t first_chunks_ = 0;          // the file whose chunks count as file 0
  int64_t bytes_ = 0;                 // of all files together
  ServerLedger::Reservation memory_;  // for the parts of the model that are parsed
  std::optional<absl::StatusOr<onnx::OnnxModel>> model_;
  std::unique_ptr<Reader> reader_;
  std::vector<onnx::StoredTensor> parameters_;
  std::vector<std::string> hashes_;  // by index in parameters_
  std::vector<std::string> seals_;   // by index in parameters_, from the same passes
  std::vector<std::unique_ptr<TensorWriter>> writers_;
  std::vector<HeldTensors::Pins> pins_;
};

// Returns the limits on uploaded graphs that the flags set.
GraphLimits GraphLimitsOf(const ServerOptions& options);

// Encodes refusals for trailing metadata: as many as fit into `bytes`, and the number left out.
v1::Refusals RefusalsToProto(absl::Span<const ImportRefusal> refusals, int64_t bytes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_ONNX_UPLOAD_H_
