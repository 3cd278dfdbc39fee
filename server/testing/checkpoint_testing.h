// A tiny llama of tests/tokens as its authors would upload it, and what transformers makes of it;
// and a tiny encoder.
// A test that uses it has //tests/tokens:tiny among its data.
//
//   test.Send(CheckpointMessagesOf("hf", LlamaFiles()));
#ifndef ATHANOR_SERVER_TESTING_CHECKPOINT_TESTING_H_
#define ATHANOR_SERVER_TESTING_CHECKPOINT_TESTING_H_

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/athanor/v1/model.pb.h"

namespace athanor {

using CheckpointFiles = std::vector<std::pair<std::string, std::string>>;  // path and bytes

inline std::string ReadTiny(const std::string& name) {
  std::ifstream file("tests/tokens/testdata/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}
inline std::string ReadLlama(const std::string& name) { return ReadTiny("llama/" + name); }

// `ids` of a prompt, and the 64 tokens `greedy` that follow, by `gaps` to the second.
inline nlohmann::json LlamaGolden() { return nlohmann::json::parse(ReadLlama("golden.json")); }

inline CheckpointFiles LlamaFiles() {
  CheckpointFiles files;
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json",
                           "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                           "model-00003-of-00003.safetensors"}) {
    files.emplace_back(name, ReadLlama(name));
  }
  return files;
}

// An encoder with all files but a tokenizer.
inline CheckpointFiles EncoderFiles() {
  CheckpointFiles files;
  for (const char* name : {"config.json", "modules.json", "sentence_bert_config.json",
                           "1_Pooling/config.json", "model.safetensors"}) {
    files.emplace_back(name, ReadTiny(std::string("xlm_roberta/") + name));
  }
  return files;
}

inline CheckpointFiles LlamaGguf() { return {{"model.gguf", ReadLlama("model.gguf")}}; }

// Returns the messages of an upload as model "m", without a search.
inline std::vector<v1::UploadModelRequest> CheckpointMessagesOf(const std::string& format,
                                                                const CheckpointFiles& files,
                                                                size_t chunk = 1 << 20) {
  std::vector<v1::UploadModelRequest> messages(1);
  v1::UploadHeader* header = messages[0].mutable_header();
  header->set_name("m");
  header->set_format(format);
  header->set_search_budget("0");
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

#endif  // ATHANOR_SERVER_TESTING_CHECKPOINT_TESTING_H_
