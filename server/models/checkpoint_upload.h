// An upload of a language model's checkpoint, in format "hf" (config.json and *.safetensors) or
// "gguf".
//
//   CheckpointUpload upload(&registry, &ledger, options, CheckpointFormat::kGguf);
//   // then as model_import.h says
//
// The files' heads are read as they arrive, so that tensors are hashed on arrival. Texts, and the
// head of a GGUF file, are kept beside the weights: they hold the tokenizer and the chat template.
// Used by one thread at a time.
#ifndef ATHANOR_SERVER_MODELS_CHECKPOINT_UPLOAD_H_
#define ATHANOR_SERVER_MODELS_CHECKPOINT_UPLOAD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/import.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/model_import.h"
#include "server/models/registry.h"

namespace athanor {

class CheckpointUpload final : public ModelImport {
 public:
  // The arguments must outlive the upload.
  CheckpointUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options,
                   checkpoint::CheckpointFormat format);

  // Reports whether a checkpoint of format "hf" has a file of this path.
  static bool IsFileOfHf(std::string_view path);

  // Also returns INVALID_ARGUMENT for a file that the format does not have, by its name (so that
  // no weights are sent in vain), for a missing one, for limits that are negative or too large, and
  // for more than 1,000 ignore_keys, or one of more than 1,024 bytes.
  absl::Status Begin(const v1::UploadHeader& header) override;
  absl::Status Take(const v1::FileChunk& chunk) override;
  absl::StatusOr<ImportedModel> Import(const std::function<bool()>& cancelled,
                                       std::vector<ImportRefusal>* refusals) override;

 private:
  struct Head {
    int64_t bytes = 0;
    std::vector<checkpoint::FileTensor> tensors;
  };
  bool IsWeights(size_t file) const;
  absl::Status CheckFiles(const v1::UploadHeader& header) const;
  absl::Status ReadIgnoreKeys(const v1::UploadHeader& header);
  absl::Status ReadLimits(const v1::UploadHeader& header);
  // Reads the head of the file that arrives, once all of it is there, and has its tensors hashed.
  // Leaves errors to the import.
  absl::Status ReadArriving();
  // Reads the head of a file whose first bytes are there, with memory reserved by the head's size.
  // `head` is OUT_OF_RANGE if it goes on behind them, or behind --max_graph_bytes of a GGUF file.
  // RESOURCE_EXHAUSTED: there is no memory.
  absl::Status ReadHead(std::string_view bytes, size_t file, absl::StatusOr<Head>* head);
  absl::StatusOr<Head> ParseHead(std::string_view bytes, size_t file) const;
  // Reserves memory for the import by the size of all heads. RESOURCE_EXHAUSTED names a head that
  // is too large.
  absl::Status ReserveMemory();
  absl::StatusOr<int64_t> HeadBytes(size_t file) const;
  // Lists the files that are kept beside the weights.
  std::vector<size_t> KeptFiles() const;
  int64_t KeptBytes(size_t file) const;
  // Lists the tensors of the version: parameters first, then the kept files.
  std::vector<UploadedTensor> TensorsOf(const checkpoint::ImportedCheckpoint& imported) const;

  const checkpoint::CheckpointFormat format_;
  std::string name_;
  checkpoint::ImportOptions given_;
  bool says_tokens_ = false;  // the header bounds the rows of a step
  size_t reading_ = 0;        // the file whose head is read next
  int64_t next_try_ = 0;      // bytes of it to wait for
  int64_t head_bytes_ = 0;    // of a GGUF file
  ServerLedger::Reservation memory_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_CHECKPOINT_UPLOAD_H_
