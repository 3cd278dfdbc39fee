// Tests uploads of ONNX models: what is kept and where, and what is refused without leaving
// anything.
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/onnx_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Messages = std::vector<v1::UploadModelRequest>;

std::vector<float> Numbers(size_t count, float first = 1) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

class OnnxUploadTest : public testing::Test {
 protected:
  int64_t FilesUnder(const std::string& folder) {
    int64_t files = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test_.options.state_dir + "/" + folder)) {
      files += entry.is_regular_file() ? 1 : 0;
    }
    return files;
  }
  void AwaitCalls() {
    // The call removes its files after its answer.
    while (test_.server->core().uploads() > 0) std::this_thread::yield();
    while (test_.server->core().active_calls() > 0) std::this_thread::yield();
  }
  void NothingIsKept() {
    grpc::ClientContext context;
    v1::ListModelsResponse listed;
    EXPECT_TRUE(test_.models->ListModels(&context, {}, &listed).ok());
    EXPECT_EQ(listed.models_size(), 0);
    AwaitCalls();
    for (const char* folder : {"tensors", "blobs", "tmp"}) EXPECT_EQ(FilesUnder(folder), 0);
    EXPECT_EQ(test_.server->core().ledger().used(), 0);
  }
  void Refused(const Messages& messages, grpc::StatusCode code, const std::string& named) {
    const grpc::Status status = test_.Send(messages);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(named));
    NothingIsKept();
  }
  void Invalid(const Messages& messages, const std::string& named) {
    Refused(messages, grpc::StatusCode::INVALID_ARGUMENT, named);
  }
  void Delete(const std::string& name, const std::string& version = "") {
    grpc::ClientContext context;
    v1::DeleteModelRequest request;
    request.set_name(name);
    request.set_version(version);
    v1::DeleteModelResponse reply;
    EXPECT_TRUE(test_.models->DeleteModel(&context, request, &reply).ok());
  }
  v1::UploadModelResponse Upload(const Messages& messages) {
    v1::UploadModelResponse reply;
    const grpc::Status status = test_.Send(messages, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (!reply.compile_job_id().empty()) test_.WaitForJob(reply.compile_job_id());
    return reply;
  }
  // Returns the outputs of a call with `x`, by name.
  std::map<std::string, std::string> Outputs(const std::string& name, std::vector<float> x) {
    inference::ModelInferResponse reply;
    const grpc::Status status = test_.Infer(FloatRequest(name, x), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, std::string> outputs;
    for (int i = 0; i < reply.outputs_size(); ++i) {
      outputs[reply.outputs(i).name()] = reply.raw_output_contents(i);
    }
    return outputs;
  }

  TestServer test_;
};

TEST_F(OnnxUploadTest, WeightsAreRangesOfTheirFilesAndSurviveARestart) {
  OnnxFiles model = OnnxModelOf({{"inside", Numbers(500)}, {"outside", Numbers(700, 9)}});
  MakeExternal(model.model.mutable_graph()->mutable_initializer(1), "dir/w.bin", 3, 2800);
  model.files = {{"dir/w.bin", "abc" + FloatBytes(Numbers(700, 9))}};
  const v1::UploadModelResponse reply = Upload(OnnxMessages("m", model, 1000));
  EXPECT_EQ(reply.version(), "1");
  EXPECT_EQ(reply.model().inputs(0).name(), "x");
  EXPECT_EQ(FilesUnder("blobs"), 2);
  EXPECT_EQ(FilesUnder("tensors"), 0);
  for (int start = 0; start < 2; ++start) {
    const auto outputs = Outputs("m", {4, 5});
    EXPECT_EQ(outputs.at("x"), FloatBytes({4, 5}));
    EXPECT_EQ(outputs.at("inside"), FloatBytes(Numbers(500)));
    EXPECT_EQ(outputs.at("outside"), FloatBytes(Numbers(700, 9)));
    if (start == 0) test_.Restart();
  }
  EXPECT_EQ(FilesUnder("blobs"), 2);
  Delete("m");
  NothingIsKept();
}

TEST_F(OnnxUploadTest, FilesOfEqualLayoutAndOtherTensorsAreTwo) {
  for (const int first : {0, 9}) {
    OnnxFiles model = OnnxModelOf({{"same", Numbers(700)}, {"w", Numbers(700, first)}});
    for (int i : {0, 1}) {
      MakeExternal(model.model.mutable_graph()->mutable_initializer(i), "w.bin", 2800 * i, 2800);
    }
    model.files = {{"w.bin", FloatBytes(Numbers(700)) + FloatBytes(Numbers(700, first))}};
    Upload(OnnxMessages(first == 0 ? "m" : "n", model, 999));
  }
  EXPECT_EQ(FilesUnder("blobs"), 2);
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(Outputs("m", {1}).at("w"), FloatBytes(Numbers(700, 0)));
    EXPECT_EQ(Outputs("n", {1}).at("w"), FloatBytes(Numbers(700, 9)));
    EXPECT_EQ(Outputs("n", {1}).at("same"), FloatBytes(Numbers(700)));
    if (start == 0) test_.Restart();
  }
}

TEST_F(OnnxUploadTest, TheModelMayBeAFile) {
  OnnxFiles model = OnnxModelOf({{"w", Numbers(500)}});
  model.model_as_file = true;
  Upload(OnnxMessages("m", model, 700));
  EXPECT_EQ(Outputs("m", {1}).at("w"), FloatBytes(Numbers(500)));
}

TEST_F(OnnxUploadTest, OfAFileThatIsMostlyUnusedTheTensorsAreKeptAlone) {
  OnnxFiles model = OnnxModelOf({{"w", Numbers(500)}});
  MakeExternal(model.model.mutable_graph()->mutable_initializer(0), "w.bin", 5000, 2000);
  model.files = {{"w.bin", std::string(5000, 'x') + FloatBytes(Numbers(500))}};
  Upload(OnnxMessages("m", model));
  EXPECT_EQ(FilesUnder("blobs"), 0);
  EXPECT_EQ(FilesUnder("tensors"), 1);
  EXPECT_EQ(Outputs("m", {1}).at("w"), FloatBytes(Numbers(500)));
}

TEST_F(OnnxUploadTest, WhatIsNoRangeOfBytesIsWrittenOut) {
  OnnxFiles model = OnnxModelOf({});
  ::onnx::GraphProto* graph = model.model.mutable_graph();
  ::onnx::TensorProto* typed = graph->add_initializer();
  typed->set_name("w");
  typed->set_data_type(::onnx::TensorProto::INT32);
  typed->add_dims(2000);
  std::vector<int32_t> values(2000);
  std::iota(values.begin(), values.end(), -1000);
  typed->mutable_int32_data()->Assign(values.begin(), values.end());
  *graph->add_output() = OnnxValue("w", ::onnx::TensorProto::INT32, {"2000"});
  Upload(OnnxMessages("m", model));
  EXPECT_EQ(FilesUnder("blobs"), 0);
  EXPECT_EQ(Outputs("m", {1}).at("w"),
            std::string(reinterpret_cast<const char*>(values.data()), 8000));
}

TEST_F(OnnxUploadTest, VersionsShareTensorsAndTheLastOneTakesTheFileAlong) {
  const Messages messages = OnnxMessages("m", OnnxModelOf({{"w", Numbers(500)}}));
  Upload(messages);
  EXPECT_EQ(Upload(messages).version(), "2");
  EXPECT_EQ(FilesUnder("blobs"), 1);
  // Another model with the same tensor has no file of its own.
  Upload(OnnxMessages("n", OnnxModelOf({{"v", Numbers(500)}})));
  EXPECT_EQ(FilesUnder("blobs"), 1);
  Delete("m");
  EXPECT_EQ(FilesUnder("blobs"), 1);
  test_.Restart();
  EXPECT_EQ(Outputs("n", {1}).at("v"), FloatBytes(Numbers(500)));
  Delete("n");
  NothingIsKept();
}

TEST_F(OnnxUploadTest, ADryRunAnswersAndKeepsNothing) {
  Messages messages = OnnxMessages("m", OnnxModelOf({{"w", Numbers(500)}}));
  messages[0].mutable_header()->set_dry_run(true);
  messages[0].mutable_header()->set_batch_dim("b");
  v1::UploadModelResponse reply;
  ASSERT_TRUE(test_.Send(messages, &reply).ok());
  EXPECT_EQ(reply.version(), "");
  EXPECT_EQ(reply.compile_job_id(), "");
  EXPECT_EQ(reply.batching().dim(), "b");
  ASSERT_EQ(reply.model().outputs_size(), 2);
  EXPECT_EQ(reply.model().outputs(1).shape(0), "500");
  EXPECT_EQ(reply.model().dims(0).max(), 64);
  NothingIsKept();
}

TEST_F(OnnxUploadTest, DimsWithoutBoundsAreAskedFor) {
  Messages messages = OnnxMessages("m", OnnxModelOf({}));
  messages[0].mutable_header()->clear_dims();
  Invalid(messages, "\"b\"");
  *messages[0].mutable_header()->add_dims() =
      OnnxMessages("m", OnnxModelOf({}))[0].header().dims(0);
  *messages[0].mutable_header()->add_dims() = messages[0].header().dims(0);
  Invalid(messages, "header.dims: dim \"b\" is given twice");
  messages[0].mutable_header()->mutable_dims()->RemoveLast();
  messages[0].mutable_header()->mutable_dims(0)->set_equals("3");
  Invalid(messages, "has bounds and equals");
}

TEST_F(OnnxUploadTest, BucketsAreChosenWhereNoneAreGiven) {
  Messages messages = OnnxMessages("m", OnnxModelOf({}));
  const auto ranges = [&] {
    v1::UploadModelResponse reply = Upload(messages);
    std::vector<int64_t> ends;
    const v1::Model model = test_.Get("m");
    for (const v1::BucketState& bucket : model.buckets()) {
      ends.push_back(bucket.bucket(0).max());
    }
    return ends;
  };
  EXPECT_THAT(ranges(), ElementsAre(1, 4, 16, 64));
  v1::DimBuckets* given = messages[0].mutable_header()->add_buckets();
  given->set_dim("b");
  given->add_ranges()->set_min(1);
  given->mutable_ranges(0)->set_max(64);
  EXPECT_THAT(ranges(), ElementsAre());
}

// Each start parses stored graphs again, under limits that the importer does not have.
TEST(OnnxStoredTest, WhatARestartWouldNotReadIsNotTaken) {
  OnnxFiles model = OnnxModelOf({});
  *model.model.mutable_graph()->add_input() = OnnxValue("z", ::onnx::TensorProto::FLOAT, {"n"});
  const auto messages = [&](const std::string& size) {
    Messages made = OnnxMessages("m", model);
    v1::DimGiven* n = made[0].mutable_header()->add_dims();
    n->set_name("n");
    n->set_equals(size);
    return made;
  };
  TestServer test({.max_nesting = 1});
  EXPECT_TRUE(test.Send(messages("b // 3 + 1")).ok());
  const grpc::Status deep = test.Send(messages("max(b // 3, 7) // 5"));
  EXPECT_EQ(deep.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(deep.error_message(), HasSubstr("--max_nesting"));
}

TEST_F(OnnxUploadTest, AGivenValueIsTheOnlyOneTaken) {
  Messages messages = OnnxMessages("m", OnnxModelOf({}));
  v1::UploadHeader* header = messages[0].mutable_header();
  header->clear_dims();
  v1::DimGiven* b = header->add_dims();
  b->set_name("b");
  b->set_equals("2");
  v1::NamedLiteral* value = header->add_values();
  value->set_name("x");
  value->mutable_value()->set_dtype("f32");
  value->mutable_value()->add_shape(2);
  value->mutable_value()->set_data(FloatBytes({1, 2}));
  Upload(messages);
  EXPECT_TRUE(test_.Get("m").inputs(0).fixed());
  EXPECT_EQ(Outputs("m", {1, 2}).at("x"), FloatBytes({1, 2}));
  const grpc::Status other = test_.Infer(FloatRequest("m", {1, 3}));
  EXPECT_EQ(other.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(other.error_message(),
              HasSubstr("is [1.0, 3.0]; this version was uploaded with values"));
  test_.Restart();
  EXPECT_FALSE(test_.Infer(FloatRequest("m", {1, 3})).ok());
}

TEST_F(OnnxUploadTest, PiecesComeInOrder) {
  OnnxFiles model = OnnxModelOf({});
  model.files = {{"a", "0123456789"}, {"empty", ""}, {"b", "01234"}};
  const Messages right = OnnxMessages("m", model, 4);
  Messages messages = right;
  messages.erase(messages.begin() + 2);
  Invalid(messages, "chunk of file 0 at offset 8; expected file \"a\", offset 4 of 10");
  messages = right;
  messages[4].mutable_file()->set_file(1);
  Invalid(messages, "chunk of file 1 at offset 0; expected file \"b\", offset 0 of 5 (file 2)");
  messages = right;
  messages[1].mutable_file()->set_data("");
  Invalid(messages, "holds no bytes");
  messages = right;
  messages[3].mutable_file()->set_data("89x");
  Invalid(messages, "3 bytes; only 2 are left of the file's 10");
  messages = right;
  messages.erase(messages.end() - 2);
  Invalid(messages, "commit before the end; expected file \"b\", offset 4 of 5");
  messages = right;
  messages.insert(messages.end() - 1, right[5]);
  Invalid(messages, "chunk of file 2 at offset 4; expected the commit");
  messages = right;
  messages[1].mutable_chunk()->set_data("x");
  Invalid(messages, "a chunk of a tensor in an upload of format \"onnx\"");
  messages = right;
  messages.resize(2);
  Invalid(messages, "ended before its commit; expected file \"a\", offset 4 of 10");
}

TEST_F(OnnxUploadTest, PathsStayInTheirFolder) {
  for (const auto& [path, why] :
       std::map<std::string, std::string>{{"/etc/passwd", "is absolute"},
                                          {"../w", "leaves its folder"},
                                          {"a/../../w", "leaves its folder"},
                                          {"a\\b", "has a backslash"},
                                          {"", "an empty path"},
                                          {std::string(1025, 'p'), "a path of 1025 bytes"}}) {
    OnnxFiles model = OnnxModelOf({});
    model.files = {{path, "x"}};
    Invalid(OnnxMessages("m", model), why);
  }
  OnnxFiles twice = OnnxModelOf({});
  twice.files = {{"w", "x"}, {"w", "x"}};
  Invalid(OnnxMessages("m", twice), "path \"w\" is there twice");
  Messages none = OnnxMessages("m", OnnxModelOf({}));
  none[0].mutable_header()->clear_graph();
  none[0].mutable_header()->clear_graph_sha256();
  Invalid(none, "header.graph: empty");
}

TEST_F(OnnxUploadTest, WhatBelongsToAnotherFormat) {
  Messages messages = OnnxMessages("m", OnnxModelOf({}));
  messages[0].mutable_header()->add_tensors()->set_hash(std::string(32, 'h'));
  Invalid(messages, "header.tensors: of format \"athanor\" only");
  Messages ours = UploadMessages("m", ReluModel());
  ours[0].mutable_header()->set_random_seed(0);
  Invalid(ours, "header.random_seed: of format \"onnx\" only");
  Messages file = UploadMessages("m", ReluModel());
  file.insert(file.begin() + 1, v1::UploadModelRequest());
  file[1].mutable_file()->set_data("x");
  Invalid(file, "a piece of a file in an upload of format \"athanor\"");
}

TEST_F(OnnxUploadTest, EveryRefusalTravelsToWhoAsks) {
  OnnxFiles model = OnnxModelOf({});
  for (int i = 0; i < 3; ++i) {
    ::onnx::NodeProto* node = model.model.mutable_graph()->add_node();
    node->set_name("n" + std::to_string(i));
    node->set_op_type("NoSuchOp" + std::to_string(i));
    node->add_input("x");
    node->add_output("y" + std::to_string(i));
  }
  const Messages messages = OnnxMessages("m", model);
  const auto refusals = [&](const std::string& bytes) {
    grpc::ClientContext context;
    if (!bytes.empty()) context.AddMetadata("athanor-max-refusal-bytes", bytes);
    v1::UploadModelResponse reply;
    auto writer = test_.models->UploadModel(&context, &reply);
    for (const auto& message : messages) writer->Write(message);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.error_message(), HasSubstr("NoSuchOp2"));
    v1::Refusals found;
    const auto it = context.GetServerTrailingMetadata().find("athanor-refusals-bin");
    if (it == context.GetServerTrailingMetadata().end()) {
      found.set_others(-1);
    } else {
      EXPECT_TRUE(found.ParseFromArray(it->second.data(), static_cast<int>(it->second.size())));
    }
    return found;
  };
  const v1::Refusals all = refusals("4096");
  ASSERT_EQ(all.refusals_size(), 3);
  EXPECT_EQ(all.refusals(0).node(), "n0");
  EXPECT_EQ(all.refusals(2).op(), "NoSuchOp2");
  EXPECT_EQ(all.others(), 0);
  EXPECT_EQ(refusals("20").others(), 3);
  EXPECT_EQ(refusals("").others(), -1);
  EXPECT_EQ(refusals("many").others(), -1);
  NothingIsKept();
}

}  // namespace
}  // namespace athanor
