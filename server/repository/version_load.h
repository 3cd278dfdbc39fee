// Loads one version of a model repository: its files go through an upload like any other's.
//
//   VersionFiles files = FindVersion(folder, "digits", 3, config, most).value();
//   std::string content = HashContent(folder, files, stop).value();
//   auto version = LoadVersion(folder, files, {content, files.stamp}, {&registry, &ledger,
//   options});
//
// May take minutes; `stop` is asked now and then, and true ends it with CANCELLED.
#ifndef ATHANOR_SERVER_REPOSITORY_VERSION_LOAD_H_
#define ATHANOR_SERVER_REPOSITORY_VERSION_LOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/registry.h"
#include "server/repository/folder.h"
#include "server/repository/model_config.h"
#include "server/repository/model_source.h"

namespace athanor {

// A model's configuration, and its text, which is part of what its versions are.
struct ModelSettings {
  std::string text;
  RepositoryConfig config;
};

struct VersionFiles {
  std::string model;
  int64_t version = 0;
  const ModelSettings* settings = nullptr;
  std::string stamp;   // of the files and of the configuration
  ModelSource source;  // paths are in `folder`
  std::string folder;  // "digits/3/", in the repository
};

// Lists a version's files and finds its model among them.
absl::StatusOr<VersionFiles> FindVersion(const RepositoryFolder& folder, const std::string& model,
                                         int64_t version, const ModelSettings& settings,
                                         int64_t most_files);

// Returns the stamp of a version as FindVersion does, whether or not its files hold a model.
absl::StatusOr<std::string> StampOfVersion(const RepositoryFolder& folder, const std::string& model,
                                           int64_t version, const ModelSettings& settings,
                                           int64_t most_files);

using StopLoading = std::function<bool()>;

// Returns the hash of the configuration and of all files of the model. FAILED_PRECONDITION: a file
// changed its size since it was listed.
absl::StatusOr<std::string> HashContent(const RepositoryFolder& folder, const VersionFiles& files,
                                        const StopLoading& stop);

struct LoadParts {
  Registry* registry;
  ServerLedger* ledger;
  const ServerOptions& options;
};

// Stores the version, in place of one of its number. Refuses what uploads refuse, and what the
// configuration says otherwise than the model; FAILED_PRECONDITION also if the files are others
// than those that were hashed.
absl::StatusOr<std::shared_ptr<ModelVersion>> LoadVersion(const RepositoryFolder& folder,
                                                          const VersionFiles& files,
                                                          const std::string& content,
                                                          const LoadParts& parts,
                                                          const StopLoading& stop);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_VERSION_LOAD_H_
