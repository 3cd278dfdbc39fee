// What a client has to know of an ONNX file before it sends it: its inputs, and the files beside it
// that hold its tensors. Found by walking the message over the tensors' bytes: the file is mapped,
// not read.
//
//   OnnxFile model = OnnxFile::Open("model.onnx").value();
//   model.bytes();  model.files();          // as UploadRequest takes them
//   ParseValue("axes=1,2", model);          // with the dtype that the input has
#ifndef ATHANOR_CLIENTS_CPP_ONNX_FILE_H_
#define ATHANOR_CLIENTS_CPP_ONNX_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/model.pb.h"

namespace athanor::client {

// Of a serialised ModelProto; of bytes that are none, what was found before the place where they
// go wrong: the server says where that is.
struct OnnxOutline {
  std::vector<std::string> locations;  // of external data, each once
  // Name, dtype as it travels, and shape, of inputs that have a tensor's type.
  std::vector<v1::ModelTensor> inputs;
};
OnnxOutline OutlineOf(absl::string_view model);

// A file mapped for reading.
class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED and so on name the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(absl::string_view bytes) : bytes_(bytes) {}
  absl::string_view bytes_;
};

class OnnxFile {
 public:
  struct Beside {
    std::string path;  // as the model names it
    std::unique_ptr<MappedFile> file;
  };

  // INVALID_ARGUMENT: external data outside the model's folder; what lies there is sent to no
  // server because a model says so. NOT_FOUND: external data that is not there.
  static absl::StatusOr<OnnxFile> Open(const std::string& path);

  absl::string_view bytes() const { return model_->bytes(); }
  const std::vector<Beside>& files() const { return files_; }
  // As far as a command line needs it: the name and the inputs.
  const v1::Model& model() const { return described_; }

 private:
  std::unique_ptr<MappedFile> model_;
  std::vector<Beside> files_;
  v1::Model described_;
};

// "axes=1,2" or any form of text_input.h, by the types of the model's inputs.
absl::StatusOr<v1::NamedLiteral> ParseValue(absl::string_view text, const OnnxFile& model);
// "batch=1:64", "batch=:64" (from 1), "seq=128", "total=past + seq".
absl::StatusOr<v1::DimGiven> ParseDim(const std::string& text);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_ONNX_FILE_H_
