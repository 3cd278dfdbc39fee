#include "server/repository/version_load.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/models/upload.h"
#include "server/repository/bundle_file.h"
#include "server/repository/config_fit.h"

namespace athanor {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

absl::Status Changed(const std::string& path) {
  return absl::FailedPreconditionError(
      Cat(Quoted(path), " changed while it was read; it is loaded when it stays as it is"));
}

std::string Number(const std::string& path) { return Cat(path.size(), ":", path); }

// Begins the hash of what a version is.
void HashSettings(const VersionFiles& files, Sha256* hash) {
  hash->Update(Cat("athanor repository 1 ", Number(files.settings->text)));
}

void HashName(const VersionFiles& files, const FolderFile& file, Sha256* hash) {
  hash->Update(Cat(Number(files.source.base + file.path), " ", file.bytes, " "));
}

// Loads one version: reads its files in pieces, hashes them again, and hands them to an upload.
class Load {
 public:
  Load(const RepositoryFolder& folder, const VersionFiles& files, const LoadParts& parts,
       const StopLoading& stop)
      : folder_(folder),
        files_(files),
        config_(files.settings->config),
        parts_(parts),
        stop_(stop),
        piece_(std::min(kPieceBytes, parts.options.max_chunk_bytes)) {
    HashSettings(files_, &hash_);
  }

  absl::StatusOr<std::shared_ptr<ModelVersion>> Run(const std::string& content) {
    Upload upload(parts_.registry, parts_.ledger, parts_.options, stop_);
    upload.SetSource(files_.version, {content, files_.stamp});
    RETURN_IF_ERROR(files_.source.format == "athanor" ? SendBundle(&upload) : SendFiles(&upload));
    if (hash_.Finish() != content) return Changed(files_.folder);
    v1::UploadModelRequest commit;
    commit.mutable_commit();
    RETURN_IF_ERROR(upload.Take(commit));
    return upload.version();
  }

 private:
  using Take = absl::FunctionRef<absl::Status(int64_t offset, std::string piece)>;

  v1::UploadHeader Header() const {
    v1::UploadHeader header;
    header.set_name(files_.model);
    header.set_format(files_.source.format);
    header.set_search_budget(config_.search_budget);
    header.set_device(config_.device);
    return header;
  }

  absl::StatusOr<SourceFile> Open(const FolderFile& listed) const {
    const std::string path = files_.folder + files_.source.base + listed.path;
    ASSIGN_OR_RETURN(SourceFile file, folder_.OpenFile(path));
    if (file.bytes() != listed.bytes) return Changed(path);
    return file;
  }

  absl::Status ReadPieces(const SourceFile& file, int64_t offset, int64_t bytes, Take take) {
    for (int64_t at = 0; at < bytes; at += piece_) {
      if (stop_ && stop_()) return absl::CancelledError("the server is draining");
      ASSIGN_OR_RETURN(std::string piece, file.ReadAt(offset + at, std::min(piece_, bytes - at)));
      hash_.Update(piece);
      RETURN_IF_ERROR(take(at, std::move(piece)));
    }
    return absl::OkStatus();
  }

  absl::Status SendFiles(Upload* upload) {
    const bool onnx = files_.source.format == "onnx";
    v1::UploadModelRequest message;
    *message.mutable_header() = Header();
    for (const FolderFile& file : files_.source.files) {
      v1::UploadFile* sent = message.mutable_header()->add_files();
      const bool model = onnx && message.header().files_size() == 1;
      if (!model) sent->set_path(file.path);
      sent->set_bytes(file.bytes);
    }
    RETURN_IF_ERROR(upload->Take(message));
    for (size_t i = 0; i < files_.source.files.size(); ++i) {
      RETURN_IF_ERROR(SendFile(static_cast<int32_t>(i), upload));
    }
    ASSIGN_OR_RETURN(const v1::Model outline, upload->Outline());
    ASSIGN_OR_RETURN(const FittedConfig fitted, FitConfig(config_, outline, files_.source.format));
    return upload->Give(fitted.dims, fitted.batch_dim);
  }

  absl::Status SendFile(int32_t index, Upload* upload) {
    const FolderFile& listed = files_.source.files[index];
    HashName(files_, listed, &hash_);
    ASSIGN_OR_RETURN(const SourceFile file, Open(listed));
    return ReadPieces(file, 0, file.bytes(), [&](int64_t offset, std::string piece) {
      v1::UploadModelRequest message;
      v1::FileChunk* chunk = message.mutable_file();
      chunk->set_file(index);
      chunk->set_offset(offset);
      chunk->set_data(std::move(piece));
      return upload->Take(message);
    });
  }

  absl::Status SendBundle(Upload* upload) {
    const FolderFile& listed = files_.source.files.front();
    HashName(files_, listed, &hash_);
    ASSIGN_OR_RETURN(const SourceFile file, Open(listed));
    ASSIGN_OR_RETURN(const BundleHead head,
                     ReadBundle(file, {parts_.options.max_graph_bytes, parts_.options.max_nodes}));
    v1::UploadModelRequest message;
    *message.mutable_header() = Header();
    message.mutable_header()->set_graph(head.graph);
    message.mutable_header()->set_graph_sha256(Sha256Of(head.graph));
    std::set<std::string> sent;
    for (const BundleTensor& tensor : head.tensors) {
      if (!sent.insert(tensor.hash).second) continue;
      v1::TensorInfo* info = message.mutable_header()->add_tensors();
      info->set_hash(tensor.hash);
      info->set_bytes(tensor.bytes);
    }
    ASSIGN_OR_RETURN(const std::string batch_dim, BatchDimOf(message));
    message.mutable_header()->set_batch_dim(batch_dim);
    RETURN_IF_ERROR(upload->Take(message));
    const int64_t tensors_at = head.tensors.empty() ? file.bytes() : head.tensors.front().offset;
    // The head is part of what was hashed.
    RETURN_IF_ERROR(ReadPieces(file, 0, tensors_at,
                               [](int64_t, const std::string&) { return absl::OkStatus(); }));
    sent.clear();
    for (const BundleTensor& tensor : head.tensors) {
      const bool again = !sent.insert(tensor.hash).second;
      RETURN_IF_ERROR(SendTensor(file, tensor, again ? nullptr : upload));
    }
    return absl::OkStatus();
  }

  // Reads a tensor, and sends it unless `upload` is null.
  absl::Status SendTensor(const SourceFile& file, const BundleTensor& tensor, Upload* upload) {
    return ReadPieces(file, tensor.offset, tensor.bytes, [&](int64_t offset, std::string piece) {
      if (upload == nullptr) return absl::OkStatus();
      v1::UploadModelRequest message;
      v1::TensorChunk* chunk = message.mutable_chunk();
      chunk->set_hash(tensor.hash);
      chunk->set_offset(offset);
      chunk->set_data(std::move(piece));
      return upload->Take(message);
    });
  }

  // Holds the configuration against the graph of the header, before its tensors are sent.
  absl::StatusOr<std::string> BatchDimOf(v1::UploadModelRequest message) const {
    Upload probe(parts_.registry, parts_.ledger, parts_.options, stop_);
    message.mutable_header()->set_dry_run(true);
    RETURN_IF_ERROR(probe.Take(message));
    ASSIGN_OR_RETURN(const v1::Model outline, probe.Outline());
    ASSIGN_OR_RETURN(FittedConfig fitted, FitConfig(config_, outline, files_.source.format));
    return std::move(fitted.batch_dim);
  }

  const RepositoryFolder& folder_;
  const VersionFiles& files_;
  const RepositoryConfig& config_;
  const LoadParts& parts_;
  const StopLoading& stop_;
  const int64_t piece_;
  Sha256 hash_;
};

std::string FolderOf(const std::string& model, int64_t version) { return Cat(model, "/", version); }

std::string StampOf(const FolderListing& listing, const ModelSettings& settings) {
  return Sha256Of(Cat(Number(settings.text), listing.stamp));
}

}  // namespace

absl::StatusOr<std::string> StampOfVersion(const RepositoryFolder& folder, const std::string& model,
                                           int64_t version, const ModelSettings& settings,
                                           int64_t most_files) {
  ASSIGN_OR_RETURN(const FolderListing listing, folder.Files(FolderOf(model, version), most_files));
  return StampOf(listing, settings);
}

absl::StatusOr<VersionFiles> FindVersion(const RepositoryFolder& folder, const std::string& model,
                                         int64_t version, const ModelSettings& settings,
                                         int64_t most_files) {
  VersionFiles files{.model = model, .version = version, .settings = &settings};
  ASSIGN_OR_RETURN(const FolderListing listing, folder.Files(FolderOf(model, version), most_files));
  files.folder = FolderOf(model, version) + "/";
  files.stamp = StampOf(listing, settings);
  ASSIGN_OR_RETURN(files.source, FindModel(listing.files, settings.config.message));
  return files;
}

absl::StatusOr<std::string> HashContent(const RepositoryFolder& folder, const VersionFiles& files,
                                        const StopLoading& stop) {
  Sha256 hash;
  HashSettings(files, &hash);
  for (const FolderFile& listed : files.source.files) {
    HashName(files, listed, &hash);
    const std::string path = files.folder + files.source.base + listed.path;
    ASSIGN_OR_RETURN(const SourceFile file, folder.OpenFile(path));
    if (file.bytes() != listed.bytes) return Changed(path);
    for (int64_t at = 0; at < file.bytes(); at += kPieceBytes) {
      if (stop && stop()) return absl::CancelledError("the server is draining");
      ASSIGN_OR_RETURN(const std::string piece,
                       file.ReadAt(at, std::min(kPieceBytes, file.bytes() - at)));
      hash.Update(piece);
    }
  }
  return hash.Finish();
}

absl::StatusOr<std::shared_ptr<ModelVersion>> LoadVersion(const RepositoryFolder& folder,
                                                          const VersionFiles& files,
                                                          const std::string& content,
                                                          const LoadParts& parts,
                                                          const StopLoading& stop) {
  return Load(folder, files, parts, stop).Run(content);
}

}  // namespace athanor
