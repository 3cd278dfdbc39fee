#include "clients/cpp/inputs/checkpoint_files.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointFilesTest : public testing::Test {
 protected:
  CheckpointFilesTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void Write(const std::string& name) { Write(name, name); }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  void WriteIndex(const std::string& shard) {
    Write("model.safetensors.index.json", R"({"weight_map": {"w": )" + shard + "}}");
  }
  std::vector<std::string> Paths() {
    const auto files = CheckpointFiles(folder_);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> paths;
    for (const CheckpointFile& file : *files) paths.push_back(file.path);
    return paths;
  }
  std::string Error() { return std::string(CheckpointFiles(folder_).status().message()); }

  const std::string folder_ = testing::TempDir() + "/checkpoint_files_test";
};

TEST_F(CheckpointFilesTest, TakesWhatTheServerWants) {
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tekken.json", "any.tiktoken",
        "README.md", "pytorch_model.bin", "consolidated.safetensors", "other.safetensors"}) {
    Write(name);
  }
  EXPECT_THAT(Paths(), ElementsAre("config.json", "tokenizer.json", "tekken.json", "any.tiktoken",
                                   "model.safetensors"));
  EXPECT_EQ(CheckpointFiles(folder_).value()[1].file->bytes(), "tokenizer.json");
}

TEST_F(CheckpointFilesTest, ShardsAreThoseOfTheIndex) {
  for (const char* name :
       {"config.json", "a.safetensors", "b.safetensors", "consolidated.00.safetensors"}) {
    Write(name);
  }
  EXPECT_THAT(Paths(), ElementsAre("config.json", "a.safetensors", "b.safetensors"));
  WriteIndex(R"("b.safetensors")");
  EXPECT_THAT(Paths(), ElementsAre("config.json", "model.safetensors.index.json", "b.safetensors"));
  WriteIndex(R"("missing.safetensors")");
  EXPECT_EQ(CheckpointFiles(folder_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(), HasSubstr("missing.safetensors"));
  for (const char* wrong : {R"("../b")", R"("/b")", R"("c\\b")", R"("..")", R"("")", "3"}) {
    WriteIndex(wrong);
    EXPECT_THAT(Error(), HasSubstr("the shard of \"w\" is no name of a file")) << wrong;
  }
  Write("model.safetensors.index.json", "[");
  EXPECT_THAT(Error(), HasSubstr("no index of shards"));
}

TEST_F(CheckpointFilesTest, ModulesOfSentenceTransformersHaveFolders) {
  for (const char* name : {"config.json", "model.safetensors", "vocab.txt",
                           "config_sentence_transformers.json", "sentence_bert_config.json"}) {
    Write(name);
  }
  fs::create_directories(folder_ + "/1_Pooling");
  fs::create_directories(folder_ + "/2_Dense");
  for (const char* name : {"1_Pooling/config.json", "2_Dense/config.json",
                           "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"}) {
    Write(name);
  }
  Write("modules.json", R"([{"idx": 0, "path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"},
                            {"path": "3_Normalize"}, {"path": "1_Pooling"}])");
  EXPECT_THAT(Paths(),
              ElementsAre("config.json", "vocab.txt", "modules.json",
                          "config_sentence_transformers.json", "sentence_bert_config.json",
                          "model.safetensors", "1_Pooling/config.json", "2_Dense/config.json"));
  for (const char* wrong : {"..", ".", "a/b", "/etc", "a\\\\b", "a\\u0000b"}) {
    Write("modules.json", std::string(R"([{"path": ")") + wrong + R"("}])");
    EXPECT_THAT(Error(), HasSubstr("is no name of a folder beside it")) << wrong;
  }
  for (const char* wrong : {"{}", "[3]", R"([{"path": 3}])", "["}) {
    Write("modules.json", wrong);
    EXPECT_THAT(Error(), HasSubstr("modules.json: no list of modules")) << wrong;
  }
}

TEST_F(CheckpointFilesTest, FoldersWithoutACheckpoint) {
  Write("model.safetensors");
  EXPECT_EQ(CheckpointFiles(folder_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(), HasSubstr("config.json"));
  fs::rename(folder_ + "/model.safetensors", folder_ + "/pytorch_model.bin");
  Write("config.json");
  EXPECT_THAT(Error(), HasSubstr("no .safetensors file"));
}

TEST_F(CheckpointFilesTest, LinksLeadNowhereElse) {
  const std::string other = folder_ + "_other";
  fs::create_directories(other);
  std::ofstream(other + "/secret") << "s";
  Write("config.json");
  fs::create_symlink(other + "/secret", folder_ + "/model.safetensors");
  EXPECT_THAT(Error(), HasSubstr("\"model.safetensors\" is a link out of the folder"));
  fs::rename(folder_ + "/config.json", other + "/config.json");
  fs::create_symlink(other + "/config.json", folder_ + "/config.json");
  EXPECT_THAT(Paths(), ElementsAre("config.json", "model.safetensors"));
}

TEST_F(CheckpointFilesTest, AGgufFileIsSentAlone) {
  Write("w.gguf");
  const auto files = CheckpointFiles(folder_ + "/w.gguf");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ((*files)[0].path, "w.gguf");
  EXPECT_EQ((*files)[0].file->bytes(), "w.gguf");
}

}  // namespace
}  // namespace athanor::client
