// Files of a model on their way to the server: mapped, and only from the model's folder.
#ifndef ATHANOR_CLIENTS_CPP_INPUTS_MAPPED_FILE_H_
#define ATHANOR_CLIENTS_CPP_INPUTS_MAPPED_FILE_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor::client {

// A file mapped for reading.
class MappedFile {
 public:
  // Opens and maps a file. NOT_FOUND, PERMISSION_DENIED and other errors name the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(absl::string_view bytes) : bytes_(bytes) {}
  absl::string_view bytes_;
};

// Reports whether links lead from `location` out of the model's folder. If the model is itself a
// link, its target's folder is allowed too: caches of model hubs link the model and its data to one
// folder.
bool LinksElsewhere(const std::filesystem::path& model, const std::string& location);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_INPUTS_MAPPED_FILE_H_
