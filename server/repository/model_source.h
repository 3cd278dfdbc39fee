// Finds the files of a version's folder that are its model, and their format.
//
//   ModelSource source = FindModel(listing.files, config.message).value();
//   source.format;   // "onnx": model.onnx, and what lies beside it
//
// A version's folder holds one of model.onnx (a file, or a folder with that file in it and its
// external data), model.athanor, model.gguf, or a checkpoint with its config.json, also in a folder
// "model"; or what default_model_filename names. Pure.
#ifndef ATHANOR_SERVER_REPOSITORY_MODEL_SOURCE_H_
#define ATHANOR_SERVER_REPOSITORY_MODEL_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/inference/model_config.pb.h"
#include "server/repository/folder.h"

namespace athanor {

struct ModelSource {
  std::string format;  // as UploadHeader has it
  std::string base;    // folder in the version's that paths are in; empty, or ends with a slash
  std::vector<FolderFile> files;  // paths in `base`; the model first of "onnx"
};

// INVALID_ARGUMENT: there is no model, or there are several, or not the one that the configuration
// names; says what there is and what would be right.
absl::StatusOr<ModelSource> FindModel(const std::vector<FolderFile>& files,
                                      const inference::ModelConfig& config);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_MODEL_SOURCE_H_
