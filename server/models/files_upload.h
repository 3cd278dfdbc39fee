// The files of an upload. They are spooled on arrival, mapped when complete, and their tensors are
// published in place.
//
//   FilesUpload files(&registry, &ledger, options, limits);
//   files.Begin(header, /*unnamed=*/false);  for each chunk: files.Take(chunk);
//   files.view(0);                          // all bytes of the first, once complete
//   hashes = files.Hash(tensors, cancelled).value();
//   registry.Add(row, version, files.Tensors().value());
//
// Never opens a file by a name that the client gave: all files are those announced in the header,
// stored under names chosen by the server. Tensors are only in page cache: mapped, hashed in place,
// and named as ranges of the spooled file. Used by one thread at a time; the destructor removes
// everything not published.
#ifndef ATHANOR_SERVER_MODELS_FILES_UPLOAD_H_
#define ATHANOR_SERVER_MODELS_FILES_UPLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/registry.h"

namespace athanor {

// A tensor of an upload: bytes of a file as they lie there, or made of them.
struct UploadedTensor {
  std::string what;   // "parameter \"w\""
  int64_t bytes = 0;  // stored for it
  struct Place {
    size_t file = 0;
    int64_t offset = 0;
  };
  std::optional<Place> place;  // of a tensor that is a range of a file
  // Gives its bytes in pieces, where they lie nowhere or have to be checked.
  using Take = absl::FunctionRef<absl::Status(std::string_view)>;
  std::function<absl::Status(Take)> read;
};

class FilesUpload {
 public:
  struct Limits {
    int64_t bytes = 0, files = 0;
    std::string_view bytes_flag, files_flag;  // which set them: "--max_onnx_bytes"
  };
  static constexpr int64_t kPieceBytes = 1 << 20;

  // The arguments must outlive the upload.
  FilesUpload(Registry* registry, ServerLedger* ledger, const ServerOptions& options, Limits limits)
      : registry_(*registry), ledger_(*ledger), options_(options), limits_(limits) {}

  // Begins the upload. `unnamed`: the model itself has an empty path, and is header.graph or the
  // first of header.files. Returns INVALID_ARGUMENT for a path that is empty (except the model's),
  // absolute, outside its folder or repeated, and for negative sizes; RESOURCE_EXHAUSTED for a
  // limit or a full disk.
  absl::Status Begin(const v1::UploadHeader& header, bool unnamed);
  // Takes a chunk. Chunks must come file by file, in order. REQUIRES: Begin() was ok
  absl::Status Take(const v1::FileChunk& chunk);
  bool complete() const { return current_ == files_.size(); }
  // Returns "file \"w.bin\", offset 4096 of 8192" or "the commit".
  std::string Expected() const;

  size_t size() const { return files_.size(); }
  size_t arrived() const { return current_; }  // the files before this one are complete
  const std::string& path(size_t file) const { return files_[file].path; }
  SpooledFile& spool(size_t file) { return *files_[file].spool; }
  const SpooledFile& spool(size_t file) const { return *files_[file].spool; }
  // REQUIRES: file < arrived()
  std::string_view view(size_t file) const { return files_[file].spool->view(); }

  // Sets the tensors, and returns their hashes: those found on arrival, others found now. May take
  // seconds; polls `cancelled` from time to time. REQUIRES: complete()
  absl::StatusOr<std::vector<std::string>> Hash(std::vector<UploadedTensor> tensors,
                                                const std::function<bool()>& cancelled);
  // Returns the tensors that the registry does not hold yet, synced, with memory reserved for them.
  // Those that it holds cannot be removed while the upload lives; the result points into the
  // upload. REQUIRES: Hash() was ok
  absl::StatusOr<std::vector<HeldTensors::NewTensor>> Tensors();

 private:
  struct File {
    std::string path;  // empty: the model
    std::unique_ptr<SpooledFile> spool;
  };
  absl::Status AddFile(const std::string& path, int64_t bytes);
  // Finishes files that have all their bytes, including empty ones.
  absl::Status EndFiles();
  // Hashes one tensor in pieces, which `look` is shown.
  absl::StatusOr<std::string> HashOne(size_t tensor, UploadedTensor::Take look);
  absl::Status ForEachPiece(const UploadedTensor& tensor, UploadedTensor::Take take) const;
  // Returns the name of a file as a blob, made of its tensors' hashes and positions.
  std::string BlobName(size_t file) const;
  // Returns the contents of a tensor examined on arrival, null if it was not.
  const SpooledFile::Contents* ContentsOf(const UploadedTensor& tensor) const;
  // Pins the tensors that the registry holds, and returns the others.
  std::vector<size_t> NotHeld();
  // Names and syncs the files that are kept for tensors among `added`.
  absl::StatusOr<std::vector<bool>> KeepFiles(const std::vector<size_t>& added);
  // Writes a tensor to a file of its own.
  absl::StatusOr<TensorWriter*> Write(size_t tensor);

  Registry& registry_;
  ServerLedger& ledger_;
  const ServerOptions& options_;
  const Limits limits_;
  std::string name_;
  std::vector<File> files_;
  size_t current_ = 0;
  int64_t first_chunks_ = 0;  // the file whose chunks count as file 0
  int64_t bytes_ = 0;         // of all files together
  std::vector<UploadedTensor> tensors_;
  std::vector<std::string> hashes_;  // by index in tensors_
  std::vector<std::string> seals_;   // by index in tensors_, from the same passes
  std::vector<std::unique_ptr<TensorWriter>> writers_;
  std::vector<HeldTensors::Pins> pins_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_FILES_UPLOAD_H_
