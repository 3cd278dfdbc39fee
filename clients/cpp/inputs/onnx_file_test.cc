#include "clients/cpp/inputs/onnx_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void MakeExternal(const std::string& location, ::onnx::TensorProto* tensor) {
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"offset", "0"},
                                   std::pair<std::string, std::string>{"location", location}}) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
}

// Holds locations in an initialiser, a sub-graph's constant, a function and a sparse tensor.
::onnx::ModelProto TestModel() {
  ::onnx::ModelProto model;
  ::onnx::GraphProto* graph = model.mutable_graph();
  MakeExternal("w.bin", graph->add_initializer());
  graph->add_initializer()->set_raw_data(std::string(10'000, '\x6a'));
  MakeExternal("w.bin", graph->add_initializer());
  auto* inner = graph->add_node()->add_attribute()->mutable_g();
  MakeExternal("inner", inner->add_node()->add_attribute()->mutable_t());
  auto* hidden = inner->add_input();
  hidden->set_name("hidden");
  hidden->mutable_type()->mutable_tensor_type()->set_elem_type(1);
  MakeExternal("dir/values", graph->add_sparse_initializer()->mutable_values());
  MakeExternal("function", model.add_functions()->add_node()->add_attribute()->add_tensors());
  auto* axes = graph->add_input();
  axes->set_name("axes");
  axes->mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::INT64);
  axes->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(2);
  auto* q = graph->add_input();
  q->set_name("q");
  q->mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::INT4);
  q->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_param("n");
  graph->add_input()->set_name("untyped");
  return model;
}

TEST(OutlineTest, FindsInputsAndLocations) {
  const OnnxOutline outline = OutlineOf(TestModel().SerializeAsString());
  EXPECT_THAT(outline.locations,
              testing::UnorderedElementsAre("w.bin", "inner", "dir/values", "function"));
  ASSERT_EQ(outline.inputs.size(), 2u);
  EXPECT_EQ(outline.inputs[0].name(), "axes");
  EXPECT_EQ(outline.inputs[0].dtype(), "i64");
  EXPECT_THAT(outline.inputs[0].shape(), ElementsAre("2"));
  EXPECT_EQ(outline.inputs[1].dtype(), "i8");
  EXPECT_THAT(outline.inputs[1].shape(), ElementsAre("n"));
}

TEST(OutlineTest, EveryTypeOfAFileTravelsAsSomething) {
  const auto* types = ::onnx::TensorProto::DataType_descriptor();
  for (int i = 0; i < types->value_count(); ++i) {
    ::onnx::ModelProto model;
    auto* input = model.mutable_graph()->add_input();
    input->set_name("x");
    input->mutable_type()->mutable_tensor_type()->set_elem_type(types->value(i)->number());
    const std::string name(types->value(i)->name());
    const bool carried = name != "UNDEFINED" && name != "STRING" && name.find("COMPLEX") != 0;
    EXPECT_EQ(OutlineOf(model.SerializeAsString()).inputs.size(), carried ? 1u : 0u) << name;
  }
}

TEST(OutlineTest, EndsWhereTheBytesAreCutOff) {
  const std::string bytes = TestModel().SerializeAsString();
  for (size_t end = 0; end < bytes.size(); end += 7) OutlineOf(bytes.substr(0, end));
  EXPECT_TRUE(OutlineOf(std::string(100, '\xff')).locations.empty());
}

TEST(ParseDimTest, BoundsSizesAndExpressions) {
  EXPECT_EQ(ParseDim("b=2:64")->min(), 2);
  EXPECT_EQ(ParseDim("b=2:64")->max(), 64);
  EXPECT_FALSE(ParseDim("b=:64")->has_min());
  EXPECT_EQ(ParseDim("b=128")->equals(), "128");
  EXPECT_EQ(ParseDim("total=past + seq")->equals(), "past + seq");
  for (const char* wrong : {"b", "=1:2", "b=", "b=1:", "b=a:2", "b=1:2:3"}) {
    EXPECT_THAT(std::string(ParseDim(wrong).status().message()), HasSubstr("NAME=MIN:MAX"))
        << wrong;
  }
}

class OnnxFileTest : public testing::Test {
 protected:
  OnnxFileTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/dir");
  }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  const std::string folder_ = testing::TempDir() + "/onnx_file_test";
};

TEST_F(OnnxFileTest, OpensWhatLiesBeside) {
  Write("m.onnx", TestModel().SerializeAsString());
  EXPECT_EQ(OnnxFile::Open(folder_ + "/m.onnx").status().code(), absl::StatusCode::kNotFound);
  for (const char* name : {"w.bin", "inner", "dir/values", "function"}) Write(name, name);
  const auto opened = OnnxFile::Open(folder_ + "/m.onnx");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->bytes(), TestModel().SerializeAsString());
  ASSERT_EQ(opened->files().size(), 4u);
  for (const auto& file : opened->files()) EXPECT_EQ(file.file->bytes(), file.path);
  const auto axes = ParseValue("axes=1,-1", *opened);
  ASSERT_TRUE(axes.ok()) << axes.status();
  EXPECT_EQ(axes->value().dtype(), "i64");
  EXPECT_THAT(axes->value().shape(), ElementsAre(2));
  EXPECT_EQ(axes->value().data().size(), 16u);
  EXPECT_THAT(std::string(ParseValue("axis=1", *opened).status().message()),
              HasSubstr("has no input \"axis\"; it takes axes i64[2]"));
}

TEST_F(OnnxFileTest, NothingOutsideItsFolderIsOpened) {
  for (const std::string location : {"/etc/passwd", "../w.bin", "dir/../../w", "a\\b", ""}) {
    ::onnx::ModelProto model;
    MakeExternal(location, model.mutable_graph()->add_initializer());
    Write("m.onnx", model.SerializeAsString());
    const absl::Status status = OnnxFile::Open(folder_ + "/m.onnx").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << location;
    EXPECT_THAT(std::string(status.message()), HasSubstr("outside the model's folder"));
  }
}

TEST_F(OnnxFileTest, AnEmptyFileIsNoModel) {
  Write("empty.onnx", "");
  EXPECT_THAT(std::string(OnnxFile::Open(folder_ + "/empty.onnx").status().message()),
              HasSubstr("empty.onnx: the file is empty"));
}

TEST_F(OnnxFileTest, LinksLeadNowhereElse) {
  namespace fs = std::filesystem;
  ::onnx::ModelProto model;
  MakeExternal("w.bin", model.mutable_graph()->add_initializer());
  fs::create_directories(folder_ + "/blobs");
  fs::create_directories(folder_ + "/snapshot");
  fs::create_directories(folder_ + "/other");
  for (const char* name : {"blobs/1", "snapshot/m.onnx"}) Write(name, model.SerializeAsString());
  for (const char* name : {"blobs/2", "other/secret", "snapshot/inside"}) Write(name, name);
  const auto open = [&](const std::string& w, const std::string& m) {
    fs::remove(folder_ + "/snapshot/w.bin");
    fs::create_symlink(w, folder_ + "/snapshot/w.bin");
    fs::remove(folder_ + "/snapshot/linked.onnx");
    fs::create_symlink("../blobs/1", folder_ + "/snapshot/linked.onnx");
    return OnnxFile::Open(folder_ + "/snapshot/" + m).status();
  };
  const absl::Status outside = open("../other/secret", "m.onnx");
  EXPECT_EQ(outside.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(outside.message()), HasSubstr("outside the model's folder"));
  EXPECT_FALSE(open("/etc/passwd", "m.onnx").ok());
  EXPECT_TRUE(open("inside", "m.onnx").ok());
  // The cache of a model hub links both.
  EXPECT_TRUE(open("../blobs/2", "linked.onnx").ok());
  EXPECT_FALSE(open("../blobs/2", "m.onnx").ok());
  EXPECT_FALSE(open("../other/secret", "linked.onnx").ok());
  EXPECT_EQ(open("nowhere", "m.onnx").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace athanor::client
