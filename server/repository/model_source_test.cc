#include "server/repository/model_source.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ModelSource> Find(const std::vector<std::string>& paths,
                                 const std::string& default_file = "",
                                 const std::string& platform = "") {
  std::vector<FolderFile> files;
  for (const std::string& path : paths) files.push_back({path, 1});
  inference::ModelConfig config;
  config.set_default_model_filename(default_file);
  config.set_platform(platform);
  return FindModel(files, config);
}

std::vector<std::string> Shown(const std::vector<std::string>& paths,
                               const std::string& default_file = "") {
  const auto source = Find(paths, default_file);
  EXPECT_TRUE(source.ok()) << source.status();
  if (!source.ok()) return {};
  std::vector<std::string> shown = {source->format + ":" + source->base};
  for (const FolderFile& file : source->files) shown.push_back(file.path);
  return shown;
}

std::string ErrorOf(const std::vector<std::string>& paths, const std::string& default_file = "",
                    const std::string& platform = "") {
  return std::string(Find(paths, default_file, platform).status().message());
}

TEST(ModelSourceTest, FindsEachFormat) {
  EXPECT_THAT(Shown({"a.bin", "model.onnx", "z/w"}),
              ElementsAre("onnx:", "model.onnx", "a.bin", "z/w"));
  EXPECT_THAT(Shown({"model.onnx/a.bin", "model.onnx/model.onnx", "x"}),
              ElementsAre("onnx:model.onnx/", "model.onnx", "a.bin"));
  EXPECT_THAT(Shown({"README", "model.athanor"}), ElementsAre("athanor:", "model.athanor"));
  EXPECT_THAT(Shown({"model.gguf"}), ElementsAre("gguf:", "model.gguf"));
  EXPECT_THAT(Shown({"README.md", "config.json", "model.safetensors", "tokenizer.json"}),
              ElementsAre("hf:", "config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_THAT(Shown({"model/config.json", "model/model.safetensors"}),
              ElementsAre("hf:model/", "config.json", "model.safetensors"));
}

TEST(ModelSourceTest, TheConfigurationMayNameIt) {
  EXPECT_THAT(Shown({"a.onnx", "b.onnx"}, "b.onnx"), ElementsAre("onnx:", "b.onnx", "a.onnx"));
  EXPECT_THAT(Shown({"b.onnx/b.onnx", "b.onnx/w"}, "b.onnx"),
              ElementsAre("onnx:b.onnx/", "b.onnx", "w"));
  EXPECT_THAT(Shown({"m.athanor", "model.onnx"}, "m.athanor"),
              ElementsAre("athanor:", "m.athanor"));
  EXPECT_THAT(Shown({"bert/config.json", "bert/model.safetensors"}, "bert"),
              ElementsAre("hf:bert/", "config.json", "model.safetensors"));
}

TEST(ModelSourceTest, SaysWhatThereIsAndWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("there is no model.onnx"));
  EXPECT_THAT(ErrorOf({"saved_model.pb"}), HasSubstr("the folder has saved_model.pb"));
  EXPECT_THAT(ErrorOf({"model.athanor", "model.onnx"}),
              HasSubstr("there are model.onnx and model.athanor; keep one"));
  EXPECT_THAT(ErrorOf({"model.onnx"}, "other.onnx"), HasSubstr("there is no other.onnx"));
  EXPECT_THAT(ErrorOf({"model.pt"}, "model.pt"), HasSubstr("model.pt is no model"));
  EXPECT_THAT(ErrorOf({"model.onnx/weights"}), HasSubstr("has no model.onnx; it has weights"));
  EXPECT_THAT(ErrorOf({"model.gguf/x"}), HasSubstr("model.gguf is a folder"));
  EXPECT_THAT(ErrorOf({"model.athanor"}, "", "onnxruntime_onnx"),
              HasSubstr("says ONNX, but the model's format is athanor"));
}

}  // namespace
}  // namespace athanor
