// Tests uploads of language models' checkpoints: what is kept and where, and what is refused
// without leaving anything.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/athanor/internal/stored.pb.h"
#include "server/models/encoder_model.h"
#include "server/testing/checkpoint_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Files = CheckpointFiles;
using Messages = std::vector<v1::UploadModelRequest>;

class CheckpointUploadTest : public testing::Test {
 protected:
  int64_t FilesUnder(const std::string& folder) {
    int64_t files = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test_.options.state_dir + "/" + folder)) {
      files += entry.is_regular_file() ? 1 : 0;
    }
    return files;
  }
  void NothingIsKept() {
    // A call removes its files after its answer.
    while (test_.server->core().uploads() > 0) std::this_thread::yield();
    while (test_.server->core().active_calls() > 0) std::this_thread::yield();
    EXPECT_EQ(test_.server->core().registry().versions().count(), 0);
    for (const char* folder : {"tensors", "blobs", "tmp"}) EXPECT_EQ(FilesUnder(folder), 0);
    EXPECT_EQ(test_.server->core().ledger().used(), 0);
  }
  void Invalid(const Messages& messages, const std::string& named) {
    const grpc::Status status = test_.Send(messages);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(named));
    NothingIsKept();
  }
  std::shared_ptr<ModelVersion> Upload(const Messages& messages) {
    v1::UploadModelResponse reply;
    const grpc::Status status = test_.Send(messages, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (!reply.compile_job_id().empty()) test_.WaitForJob(reply.compile_job_id());
    return Version();
  }
  std::shared_ptr<ModelVersion> Version() {
    return test_.server->core().registry().versions().Find("m", "").value();
  }
  // Returns the contents of the files that are kept beside the weights, by path.
  std::map<std::string, std::string> Kept(const ModelVersion& version) {
    std::map<std::string, std::string> kept;
    for (const FileRow& file : version.row().files) {
      const auto tensor = test_.server->core().registry().tensors().Map(file.hash).value();
      kept[file.path] = {static_cast<const char*>(tensor->data()),
                         static_cast<size_t>(tensor->bytes())};
    }
    return kept;
  }
  void Delete() {
    grpc::ClientContext context;
    v1::DeleteModelRequest request;
    request.set_name("m");
    v1::DeleteModelResponse reply;
    EXPECT_TRUE(test_.models->DeleteModel(&context, request, &reply).ok());
  }

  TestServer test_;
};

TEST_F(CheckpointUploadTest, TextsAreKeptBesideTheWeights) {
  const Files files = LlamaFiles();
  std::shared_ptr<ModelVersion> version = Upload(CheckpointMessagesOf("hf", files));
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(Kept(*version),
              (std::map<std::string, std::string>(files.begin(), files.begin() + 3)));
    internal::Generation generation;
    ASSERT_TRUE(generation.ParseFromString(version->row().generation));
    EXPECT_EQ(generation.family(), "llama");
    EXPECT_EQ(generation.layers(), 2);
    EXPECT_EQ(generation.vocabulary(), 48);
    EXPECT_EQ(generation.context(), 256);
    EXPECT_THAT(generation.end_tokens(), testing::ElementsAre(2));
    version.reset();  // no version outlives its server
    if (start == 0) test_.Restart();
    version = Version();
  }
  EXPECT_EQ(FilesUnder("blobs"), 6);  // whole files, in place
  EXPECT_EQ(FilesUnder("tensors"), 0);
  version.reset();
  Delete();
  NothingIsKept();
}

TEST_F(CheckpointUploadTest, OfAGgufFileTheHeadIsKept) {
  const std::string file = ReadLlama("model.gguf");
  const std::shared_ptr<ModelVersion> version = Upload(CheckpointMessagesOf("gguf", LlamaGguf()));
  const auto kept = Kept(*version);
  ASSERT_EQ(kept.size(), 1u);
  const std::string& head = kept.at("model.gguf");
  EXPECT_GT(head.size(), 0u);
  EXPECT_LT(head.size(), file.size());
  EXPECT_EQ(head, file.substr(0, head.size()));
  EXPECT_THAT(head, HasSubstr("general.architecture"));
  EXPECT_EQ(FilesUnder("blobs"), 1);
  EXPECT_EQ(FilesUnder("tensors"), 0);
}

TEST_F(CheckpointUploadTest, PiecesOfAnySizeGiveTheSameVersion) {
  for (const auto& [format, files] :
       std::map<std::string, Files>{{"hf", LlamaFiles()}, {"gguf", LlamaGguf()}}) {
    std::vector<std::string> hashes;
    for (const size_t chunk : {97, 4'096, 1 << 20}) {
      const std::shared_ptr<ModelVersion> version =
          Upload(CheckpointMessagesOf(format, files, chunk));
      if (hashes.empty()) hashes = version->parameter_hashes();
      EXPECT_EQ(version->parameter_hashes(), hashes) << format << " " << chunk;
      Delete();
    }
  }
  NothingIsKept();
}

TEST_F(CheckpointUploadTest, VersionsShareTheirFiles) {
  Upload(CheckpointMessagesOf("hf", LlamaFiles()));
  Files files = LlamaFiles();
  files[1].second += " ";
  Upload(CheckpointMessagesOf("hf", files));
  EXPECT_EQ(FilesUnder("blobs"), 7);
  Delete();
  NothingIsKept();
}

TEST_F(CheckpointUploadTest, ADamagedTextIsNamed) {
  const Files files = LlamaFiles();
  Upload(CheckpointMessagesOf("hf", files));
  const FileRow text = Version()->row().files[0];
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(test_.options.state_dir + "/blobs")) {
    if (!entry.is_regular_file() || entry.file_size() != files[0].second.size()) continue;
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
    std::ofstream(entry.path(), std::ios::binary) << std::string(files[0].second.size(), 'x');
  }
  const absl::Status status = test_.server->core().registry().Verify(*Version());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("file \"config.json\""));
  EXPECT_FALSE(test_.server->core().registry().tensors().Map(text.hash).ok());
  Upload(CheckpointMessagesOf("hf", files));
  EXPECT_TRUE(test_.server->core().registry().Verify(*Version()).ok());
}

TEST_F(CheckpointUploadTest, AnEncoderIsOneAfterARestartToo) {
  for (const auto& [format, files] : std::map<std::string, Files>{
           {"hf", EncoderFiles()}, {"gguf", {{"model.gguf", ReadTiny("bert/model.gguf")}}}}) {
    std::shared_ptr<ModelVersion> version = Upload(CheckpointMessagesOf(format, files));
    for (int start = 0; start < 2; ++start) {
      ASSERT_NE(version->encoder(), nullptr) << format;
      EXPECT_EQ(version->encoder()->family, format == "hf" ? "xlm-roberta" : "bert");
      EXPECT_EQ(version->encoder()->width, 32);
      EXPECT_EQ(version->encoder()->vocabulary, 64);
      EXPECT_EQ(version->encoder()->context, format == "hf" ? 32 : 40);
      EXPECT_EQ(version->encoder()->tokenizer, nullptr);
      EXPECT_EQ(version->language_model(), nullptr);
      EXPECT_EQ(version->batching().dim, "B");
      EXPECT_NE(version->batching().shared, nullptr) << version->batching().reason;
      EXPECT_EQ(Kept(*version).size(), format == "hf" ? 4u : 1u);
      version.reset();
      if (start == 0) test_.Restart();
      version = Version();
    }
    version.reset();
    Delete();
    NothingIsKept();
  }
}

TEST_F(CheckpointUploadTest, AnEncoderHasLimitsOfItsOwn) {
  Messages messages = CheckpointMessagesOf("hf", EncoderFiles());
  v1::DecoderLimits* limits = messages[0].mutable_header()->mutable_decoder();
  limits->set_tokens(64);
  Invalid(messages, "header.decoder.tokens: of models that generate only; \"xlm-roberta\" is an");
  limits->clear_tokens();
  limits->set_context(33);
  Invalid(messages, "context=33 must be from 1 to 32");
  limits->set_context(20);
  limits->set_sequences(3);
  EXPECT_EQ(Upload(messages)->encoder()->context, 20);
  EXPECT_EQ(Version()->graph().dims[0].max, 3);
}

TEST_F(CheckpointUploadTest, FilesOfNoCheckpointAreRefusedByNameAtOnce) {
  for (const char* name :
       {"pytorch_model.bin", "model.pt", "model.onnx", "consolidated.safetensors",
        "original/a.safetensors", "README.md", "a/b/config.json", "a/modules.json", ""}) {
    Files files = LlamaFiles();
    files.emplace_back(name, "x");
    Messages messages = CheckpointMessagesOf("hf", files);
    messages.resize(1);  // before any byte
    Invalid(messages, std::string("header.files: \"") + name + "\" is no file of a checkpoint");
  }
  Invalid(CheckpointMessagesOf("hf", {{"a.safetensors", "x"}}), "there is no config.json");
  Invalid(CheckpointMessagesOf("hf", {{"config.json", "x"}}), "there is no .safetensors file");
  Invalid(CheckpointMessagesOf("hf", {}), "there is no config.json");
  Invalid(CheckpointMessagesOf("gguf", {}), "0 files; a checkpoint of format \"gguf\" is one");
  Invalid(CheckpointMessagesOf("gguf", {{"a", "x"}, {"b", "x"}}), "2 files");
  Invalid(CheckpointMessagesOf("gguf", {{"../a.gguf", "x"}}), "leaves its folder");
  Invalid(CheckpointMessagesOf("safetensors", {}),
          "there are: \"athanor\", \"onnx\", \"hf\", \"gguf\"");
}

TEST_F(CheckpointUploadTest, WhatBelongsToAnotherFormat) {
  const auto with = [](const auto& change) {
    Messages messages = CheckpointMessagesOf("gguf", LlamaGguf());
    change(messages[0].mutable_header());
    return messages;
  };
  using Header = v1::UploadHeader*;
  Invalid(with([](Header h) { h->set_graph("g"); }), "header.graph: of formats \"athanor\"");
  Invalid(with([](Header h) { h->add_dims(); }), "header.dims: of format \"onnx\" only");
  Invalid(with([](Header h) { h->add_tensors(); }), "header.tensors: of format \"athanor\" only");
  Messages ours = UploadMessages("m", ReluModel());
  ours[0].mutable_header()->add_ignore_keys("k");
  Invalid(ours, "header.ignore_keys: of formats \"hf\" and \"gguf\" only");
  ours[0].mutable_header()->clear_ignore_keys();
  ours[0].mutable_header()->mutable_decoder();
  Invalid(ours, "header.decoder: of formats \"hf\" and \"gguf\" only");
}

// Sums in another order would give a sequence other bits after a swap of plans.
TEST_F(CheckpointUploadTest, SearchesMayNotChangeBits) {
  Messages messages = CheckpointMessagesOf("gguf", LlamaGguf());
  messages[0].mutable_header()->set_approximate(true);
  Invalid(messages, "header.approximate: the model has states");
  messages[0].mutable_header()->set_approximate(false);
  Upload(messages);
  v1::StartCompileRequest asked;
  asked.set_model("m");
  asked.set_search_budget("0");
  v1::CompileJob job;
  const auto start = [&](bool approximate) {
    asked.set_approximate(approximate);
    grpc::ClientContext context;
    return test_.compile->StartCompile(&context, asked, &job);
  };
  const grpc::Status refused = start(true);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("approximate: the model has states"));
  const grpc::Status taken = start(false);
  ASSERT_TRUE(taken.ok()) << taken.error_message();
  EXPECT_EQ(test_.WaitForJob(job.id()).phase(), v1::CompileJob::DONE);
}

TEST_F(CheckpointUploadTest, LimitsAreWithinBounds) {
  using Limits = v1::DecoderLimits;
  for (const auto& [name, set] :
       std::map<std::string, void (Limits::*)(int64_t)>{{"tokens", &Limits::set_tokens},
                                                        {"sequences", &Limits::set_sequences},
                                                        {"context", &Limits::set_context}}) {
    for (const int64_t wrong : {int64_t{-1}, (int64_t{1} << 24) + 1, int64_t{1} << 62}) {
      Messages messages = CheckpointMessagesOf("gguf", LlamaGguf());
      (messages[0].mutable_header()->mutable_decoder()->*set)(wrong);
      Invalid(messages, "header.decoder." + name + ": " + std::to_string(wrong));
    }
  }
  Messages messages = CheckpointMessagesOf("gguf", LlamaGguf());
  messages[0].mutable_header()->mutable_decoder()->set_tokens(1);
  messages[0].mutable_header()->mutable_decoder()->set_context(16);
  messages[0].mutable_header()->mutable_decoder()->set_sequences(3);
  Upload(messages);
  test_.Restart();
  internal::Generation generation;
  ASSERT_TRUE(generation.ParseFromString(Version()->row().generation));
  EXPECT_EQ(generation.tokens(), 1);
  EXPECT_EQ(generation.sequences(), 3);
  EXPECT_EQ(generation.context(), 16);
}

TEST_F(CheckpointUploadTest, IgnoreKeysAreBounded) {
  Messages messages = CheckpointMessagesOf("gguf", LlamaGguf());
  v1::UploadHeader* header = messages[0].mutable_header();
  for (int i = 0; i < 1000; ++i) header->add_ignore_keys("k" + std::to_string(i));
  header->set_ignore_keys(0, std::string(1024, 'k'));
  Upload(messages);
  Delete();
  header->add_ignore_keys("k");
  Invalid(messages, "header.ignore_keys: 1001 keys; at most 1000");
  header->mutable_ignore_keys()->RemoveLast();
  header->set_ignore_keys(0, std::string(1025, 'k'));
  Invalid(messages, "header.ignore_keys: a key of 1025 bytes; at most 1024");
}

// The head is looked for in beginnings of the file that grow.
TEST_F(CheckpointUploadTest, HeadsOfAnySizeAreFound) {
  std::string head = ReadLlama("model.gguf");
  uint64_t keys = 0;
  std::memcpy(&keys, head.data() + 16, sizeof keys);
  ++keys;
  std::memcpy(head.data() + 16, &keys, sizeof keys);
  const std::string name = "general.long";
  const uint64_t name_bytes = name.size(), bytes = (3 << 20) / 32 * 32 - 12 - name_bytes - 8;
  const uint32_t type = 8;  // a text
  const auto raw = [](const auto& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const std::string key = raw(name_bytes) + name + raw(type) + raw(bytes) + std::string(bytes, 'x');
  ASSERT_EQ(key.size() % 32, 0u);  // tensors keep their alignment
  head.insert(24, key);
  for (const size_t chunk : {100'000, 8 << 20}) {
    const std::shared_ptr<ModelVersion> version =
        Upload(CheckpointMessagesOf("gguf", {{"model.gguf", head}}, chunk));
    EXPECT_GT(Kept(*version).at("model.gguf").size(), key.size());
    Delete();
  }
  NothingIsKept();
}

TEST_F(CheckpointUploadTest, AnEmptyFileOfWeightsIsRefused) {
  Files files = LlamaFiles();
  files[4].second.clear();
  Invalid(CheckpointMessagesOf("hf", files), "model-00002-of-00003.safetensors");
}

TEST_F(CheckpointUploadTest, HeadsAreBounded) {
  TestServer test({.max_graph_bytes = 500});
  for (const auto& [format, files] :
       std::map<std::string, Files>{{"hf", LlamaFiles()}, {"gguf", LlamaGguf()}}) {
    const grpc::Status status = test.Send(CheckpointMessagesOf(format, files));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("--max_graph_bytes"));
  }
}

}  // namespace
}  // namespace athanor
