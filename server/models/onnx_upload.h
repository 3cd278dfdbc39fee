// The files of an ONNX upload on their way in: spooled, imported when all are there, and then
// published as tensors where they lie.
//
//   OnnxUpload files(&registry, &ledger, options);
//   files.Begin(header);  for each chunk: files.Take(chunk);
//   absl::StatusOr<OnnxUpload::Imported> model = files.Import(cancelled, &refusals);
//   registry.Add(row, version, files.Tensors().value());
//
// Nothing is opened by a name that a model states: files are those the header announced, under
// names of this server's. Weights are in page cache only: mapped, hashed in place, and named as
// ranges of the spooled file. The model's message is read as soon as it is there, so that external
// data is hashed while it comes. Used by one thread at a time; its destructor removes what was not
// published.
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
  // The arguments outlive the upload.
  OnnxUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options);
  ~OnnxUpload();

  // INVALID_ARGUMENT: a path that is empty (but the model's), absolute, leaves its folder or is
  // there twice; negative sizes; tensors by hash; a dim or a value given twice, or a literal whose
  // bytes do not fit. RESOURCE_EXHAUSTED: --max_onnx_bytes, --max_onnx_files, no room on the disk.
  absl::Status Begin(const v1::UploadHeader& header);
  // Chunks come file by file, each from its start. REQUIRES: Begin() was ok
  absl::Status Take(const v1::FileChunk& chunk);
  bool complete() const { return current_ == files_.size(); }
  // "file \"w.bin\", offset 4096 of 8192" or "the commit".
  std::string Expected() const;

  struct Imported {
    ImportedGraph graph;  // its parameters have their hashes
    std::vector<std::string> notes;
  };
  // Lifts, parses, imports and hashes. May take seconds; `cancelled` is asked now and then.
  // REQUIRES: complete()
  absl::StatusOr<Imported> Import(const std::function<bool()>& cancelled,
                                  std::vector<onnx::Refusal>* refusals);
  // Parameters that are not held yet, synced, with memory reserved for them; the others may not go
  // as long as the upload lives. What they point to lives as long as the upload. REQUIRES: Import()
  // was ok
  absl::StatusOr<std::vector<Registry::NewTensor>> Tensors();

 private:
  class Reader;
  struct File {
    std::string path;  // empty: the model
    std::unique_ptr<SpooledFile> spool;
  };
  absl::Status AddFile(const std::string& path, int64_t bytes);
  absl::Status ReadGiven(const v1::UploadHeader& header);
  // Ends files that have all their bytes, empty ones too.
  absl::Status EndFiles();
  // Once the model's file is there: its message, and which parts of the other files are tensors.
  absl::StatusOr<onnx::OnnxModel> ReadModel();
  absl::StatusOr<onnx::OnnxImported> ImportModel(const std::function<bool()>& cancelled,
                                                 std::vector<onnx::Refusal>* refusals);
  absl::StatusOr<std::vector<std::string>> HashParameters(const std::function<bool()>& cancelled);
  // Of its parameters, wherever they lie in it.
  std::string BlobName(size_t file) const;
  // Whether it may stay where it lies in its file.
  // What was seen of it as it came; null: nothing.
  const SpooledFile::Contents* ContentsOf(const onnx::StoredTensor& tensor) const;
  bool IsRange(const onnx::StoredTensor& tensor) const;
  // A file of its own for a tensor that is no range.
  absl::StatusOr<TensorWriter*> Write(const std::string& hash, const onnx::StoredTensor& tensor);

  Registry& registry_;
  ServerLedger& ledger_;
  const ServerOptions& options_;
  std::string name_;
  onnx::ImportOptions given_;
  std::vector<File> files_;  // the model first
  size_t current_ = 0;
  int64_t first_chunks_ = 0;          // the file that chunks number 0
  int64_t bytes_ = 0;                 // of all files
  ServerLedger::Reservation memory_;  // of what is read of the model
  std::optional<absl::StatusOr<onnx::OnnxModel>> model_;
  std::unique_ptr<Reader> reader_;
  std::vector<onnx::StoredTensor> parameters_;
  std::vector<std::string> hashes_;  // of parameters_
  std::vector<std::string> seals_;   // of parameters_, from the same passes
  std::vector<std::unique_ptr<TensorWriter>> writers_;
  std::vector<Registry::Pins> pins_;
};

// What a graph from outside may hold, as the flags say.
GraphLimits GraphLimitsOf(const ServerOptions& options);

// As trailing metadata carries them: as many as fit into `bytes`, and how many are left out.
v1::Refusals RefusalsToProto(absl::Span<const onnx::Refusal> refusals, int64_t bytes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_ONNX_UPLOAD_H_
