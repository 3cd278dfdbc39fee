// Reads what a client needs of an ONNX file before it sends it: the inputs, and the files beside it
// that hold tensors. Maps the file and skips over the tensors' bytes instead of reading them.
//
//   OnnxFile model = OnnxFile::Open("model.onnx").value();
//   model.bytes();  model.files();          // as UploadRequest takes them
//   ParseValue("axes=1,2", model);          // with the dtype that the input has
#ifndef ATHANOR_CLIENTS_CPP_INPUTS_ONNX_FILE_H_
#define ATHANOR_CLIENTS_CPP_INPUTS_ONNX_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/inputs/mapped_file.h"
#include "proto/athanor/v1/model.pb.h"

namespace athanor::client {

// Outline of a serialised ModelProto. If the bytes are malformed, holds what comes before the
// error; the server reports where the error is.
struct OnnxOutline {
  std::vector<std::string> locations;  // paths of external data, each once
  // Name, dtype as sent on the wire, and shape of each input of tensor type.
  std::vector<v1::ModelTensor> inputs;
};
OnnxOutline OutlineOf(absl::string_view model);

class OnnxFile {
 public:
  struct Beside {
    std::string path;  // the name by which the model refers to the file
    std::unique_ptr<MappedFile> file;
  };

  // INVALID_ARGUMENT: external data outside the model's folder; a model must not make the client
  // send other files. NOT_FOUND: missing external data.
  static absl::StatusOr<OnnxFile> Open(const std::string& path);

  absl::string_view bytes() const { return model_->bytes(); }
  const std::vector<Beside>& files() const { return files_; }
  // Returns the name and the inputs, which is all that a command line needs.
  const v1::Model& model() const { return described_; }

 private:
  std::unique_ptr<MappedFile> model_;
  std::vector<Beside> files_;
  v1::Model described_;
};

// Parses "axes=1,2" or any form of text_input.h, by the types of the model's inputs.
absl::StatusOr<v1::NamedLiteral> ParseValue(absl::string_view text, const OnnxFile& model);
// Parses "batch=1:64", "batch=:64" (from 1), "seq=128" or "total=past + seq".
absl::StatusOr<v1::DimGiven> ParseDim(const std::string& text);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_INPUTS_ONNX_FILE_H_
