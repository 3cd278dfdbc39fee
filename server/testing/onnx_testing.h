// ONNX models and their uploads for tests. The models have no nodes: their outputs are inputs and
// initialisers, so they test how models are uploaded, not what ops mean.
//
//   OnnxFiles files = OnnxModelOf({{"w", {1, 2, 3}}});
//   test.Send(OnnxMessages("m", files));
#ifndef ATHANOR_SERVER_TESTING_ONNX_TESTING_H_
#define ATHANOR_SERVER_TESTING_ONNX_TESTING_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "deploy/bazel/libs/sha256.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor {

struct OnnxFiles {
  ::onnx::ModelProto model;
  std::vector<std::pair<std::string, std::string>> files = {};  // path and bytes
  bool model_as_file = false;                                   // else the model is in the header
};

inline std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline ::onnx::ValueInfoProto OnnxValue(const std::string& name, int elem,
                                        const std::vector<std::string>& shape) {
  ::onnx::ValueInfoProto value;
  value.set_name(name);
  value.mutable_type()->mutable_tensor_type()->set_elem_type(elem);
  auto* dims = value.mutable_type()->mutable_tensor_type()->mutable_shape();
  for (const std::string& size : shape) {
    if (size[0] >= '0' && size[0] <= '9') {
      dims->add_dim()->set_dim_value(std::stoll(size));
    } else {
      dims->add_dim()->set_dim_param(size);
    }
  }
  return value;
}

// Returns a model with f32 input x [b], output x, and an output for each of `weights`, f32 [n],
// stored raw in the model.
inline OnnxFiles OnnxModelOf(const std::map<std::string, std::vector<float>>& weights) {
  OnnxFiles made;
  made.model.set_ir_version(9);
  made.model.add_opset_import()->set_version(17);
  ::onnx::GraphProto* graph = made.model.mutable_graph();
  graph->set_name("g");
  *graph->add_input() = OnnxValue("x", ::onnx::TensorProto::FLOAT, {"b"});
  *graph->add_output() = OnnxValue("x", ::onnx::TensorProto::FLOAT, {"b"});
  for (const auto& [name, values] : weights) {
    ::onnx::TensorProto* tensor = graph->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(::onnx::TensorProto::FLOAT);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    tensor->set_raw_data(FloatBytes(values));
    *graph->add_output() =
        OnnxValue(name, ::onnx::TensorProto::FLOAT, {std::to_string(values.size())});
  }
  return made;
}

// Makes the tensor's data external: `length` bytes of `path` from `offset` on.
inline void MakeExternal(::onnx::TensorProto* tensor, const std::string& path, int64_t offset,
                         int64_t length) {
  tensor->clear_raw_data();
  tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
  const auto add = [&](const std::string& key, const std::string& value) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", path);
  add("offset", std::to_string(offset));
  add("length", std::to_string(length));
}

// Returns the header, file chunks of at most `chunk` bytes, and the commit; dim b is in [1, 64].
inline std::vector<v1::UploadModelRequest> OnnxMessages(const std::string& name,
                                                        const OnnxFiles& model,
                                                        size_t chunk = 1 << 20) {
  std::vector<v1::UploadModelRequest> messages(1);
  v1::UploadHeader* header = messages[0].mutable_header();
  header->set_name(name);
  header->set_format("onnx");
  std::vector<std::pair<std::string, std::string>> files = model.files;
  if (model.model_as_file) {
    files.insert(files.begin(), {"", model.model.SerializeAsString()});
  } else {
    header->set_graph(model.model.SerializeAsString());
    header->set_graph_sha256(Sha256Of(header->graph()));
  }
  v1::DimGiven* b = header->add_dims();
  b->set_name("b");
  b->set_min(1);
  b->set_max(64);
  for (size_t f = 0; f < files.size(); ++f) {
    const auto& [path, bytes] = files[f];
    v1::UploadFile* file = messages[0].mutable_header()->add_files();
    file->set_path(path);
    file->set_bytes(static_cast<int64_t>(bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += chunk) {
      v1::FileChunk* piece = messages.emplace_back().mutable_file();
      piece->set_file(static_cast<int32_t>(f));
      piece->set_offset(static_cast<int64_t>(at));
      piece->set_data(bytes.substr(at, chunk));
    }
  }
  messages.emplace_back().mutable_commit();
  return messages;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_ONNX_TESTING_H_
