// Imports of uploaded files as graphs, whatever their format.
//
//   std::unique_ptr<ModelImport> import = std::make_unique<OnnxUpload>(...);
//   import->Begin(header);  for each chunk: import->Take(chunk);
//   absl::StatusOr<ImportedModel> model = import->Import(cancelled, &refusals);
//   registry.Add(row, version, import->Tensors().value());
//
// Used by one thread at a time; the destructor removes everything not published.
#ifndef ATHANOR_SERVER_MODELS_MODEL_IMPORT_H_
#define ATHANOR_SERVER_MODELS_MODEL_IMPORT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/refusal.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/base/options.h"
#include "server/models/files_upload.h"
#include "server/storage/registry_db.h"

namespace athanor {

// A file that a version keeps beside its weights, whole or in part.
struct KeptFile {
  FileRow row;
  std::string_view bytes = {};  // valid while the import lives
};

struct ImportedModel {
  ImportedGraph graph;  // its parameters have their hashes
  std::vector<std::string> notes;
  std::vector<KeptFile> files = {};
  std::string generation = {};  // a serialised internal.Generation, of a language model
  std::string batch_dim = {};   // along which calls share a run unless the header names another
};

class ModelImport {
 public:
  virtual ~ModelImport() = default;

  // Begins the upload. Refuses what FilesUpload::Begin does, and fields of the header that the
  // format does not have or that contradict each other.
  virtual absl::Status Begin(const v1::UploadHeader& header) = 0;
  // Takes a chunk of a file. REQUIRES: Begin() was ok
  virtual absl::Status Take(const v1::FileChunk& chunk) = 0;
  // Returns inputs and outputs as the files state them; without any where they do not tell.
  // REQUIRES: complete()
  virtual absl::StatusOr<v1::Model> Outline() const { return v1::Model(); }
  // Takes what is given of dims, which Begin's header had not. FAILED_PRECONDITION: the format has
  // none.
  virtual absl::Status Give(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims);
  // Parses, imports and hashes the model. May take seconds; polls `cancelled` from time to time.
  // REQUIRES: complete()
  virtual absl::StatusOr<ImportedModel> Import(const std::function<bool()>& cancelled,
                                               std::vector<ImportRefusal>* refusals) = 0;

  bool complete() const { return files_.complete(); }
  std::string Expected() const { return files_.Expected(); }
  // See FilesUpload::Tensors. REQUIRES: Import() was ok
  absl::StatusOr<std::vector<HeldTensors::NewTensor>> Tensors() { return files_.Tensors(); }

 protected:
  // The arguments must outlive the import.
  ModelImport(Registry* registry, ServerLedger* ledger, const ServerOptions& options,
              FilesUpload::Limits limits)
      : ledger_(*ledger), options_(options), files_(registry, ledger, options, limits) {}

  ServerLedger& ledger_;
  const ServerOptions& options_;
  FilesUpload files_;
};

// Returns the limits on uploaded graphs that the flags set.
GraphLimits GraphLimitsOf(const ServerOptions& options);

// Says who made the graph of a version of this format: the server makes those of checkpoints.
GraphMaker GraphMakerOf(std::string_view format);

// Encodes refusals for trailing metadata: as many as fit into `bytes`, and the number left out.
v1::Refusals RefusalsToProto(absl::Span<const ImportRefusal> refusals, int64_t bytes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_MODEL_IMPORT_H_
