// Tests uploads that fail: the code, what the message names, and that no data is kept.
#include <cerrno>
#include <filesystem>
#include <thread>

#include "absl/strings/escaping.h"
#include "deploy/bazel/libs/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Messages = std::vector<v1::UploadModelRequest>;

int64_t FilesUnder(const std::string& path) {
  int64_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  return files;
}

class UploadTest : public testing::Test {
 protected:
  // Sends the messages; expects the refusal and that no data of them is kept.
  void Refused(const Messages& messages, grpc::StatusCode code, const std::string& named) {
    const grpc::Status status = test_.Send(messages);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(named));
    grpc::ClientContext context;
    v1::ListModelsResponse listed;
    EXPECT_TRUE(test_.models->ListModels(&context, {}, &listed).ok());
    EXPECT_EQ(listed.models_size(), 0);
    // The call removes its files after its answer.
    while (test_.server->core().uploads() > 0) std::this_thread::yield();
    while (test_.server->core().active_calls() > 0) std::this_thread::yield();
    EXPECT_EQ(FilesUnder(test_.options.state_dir + "/tensors"), 0);
    EXPECT_EQ(FilesUnder(test_.options.state_dir + "/tmp"), 0);
    EXPECT_EQ(test_.server->core().ledger().used(), 0);
  }
  void Invalid(const Messages& messages, const std::string& named) {
    Refused(messages, grpc::StatusCode::INVALID_ARGUMENT, named);
  }
  // An upload of three chunks: messages 1, 2 and 3.
  Messages Valid() { return UploadMessages("m", model_, 8); }
  v1::UploadHeader* HeaderOf(Messages& messages) { return messages[0].mutable_header(); }
  void SetGraph(Messages& messages, const std::string& graph) {
    HeaderOf(messages)->set_graph(graph);
    HeaderOf(messages)->set_graph_sha256(Sha256Of(graph));
  }

  const TestModel model_ = ScaleModel({1, 2, 3, 4, 5, 6});
  const std::string hash_ = absl::BytesToHexString(model_.tensors.begin()->first);
  TestServer test_;
};

TEST_F(UploadTest, ValidMessagesAreTaken) {
  v1::UploadModelResponse reply;
  ASSERT_TRUE(test_.Send(Valid(), &reply).ok());
  EXPECT_EQ(reply.name(), "m");
  EXPECT_EQ(reply.version(), "1");
  test_.WaitForJob(reply.compile_job_id());
  EXPECT_THAT(test_.Infer("m", {1, 1, 1, 1, 1, 1}), testing::ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(UploadTest, ADeviceThatTheServerHasNot) {
  for (const char* device : {"cuda:1", "auto", "CPU", "cpu,cpu"}) {
    Messages messages = Valid();
    HeaderOf(messages)->set_device(device);
    Invalid(messages, std::string("header.device: this server has no \"") + device +
                          "\"; it has cpu (--device)");
  }
  Messages messages = Valid();
  HeaderOf(messages)->set_device("cpu");
  EXPECT_TRUE(test_.Send(messages).ok());
}

TEST_F(UploadTest, CutOffBetweenChunks) {
  Messages messages = Valid();
  messages.resize(3);
  Invalid(messages, "tensor " + hash_ + ", offset 16 of 24");
}

TEST_F(UploadTest, CutOffBeforeTheCommit) {
  Messages messages = Valid();
  messages.pop_back();
  Invalid(messages, "expected the commit");
}

TEST_F(UploadTest, NoMessageAtAll) { Invalid({}, "expected the header"); }

TEST_F(UploadTest, RepeatedChunk) {
  Messages messages = Valid();
  messages.insert(messages.begin() + 2, messages[1]);
  Invalid(messages, "at offset 0; expected tensor " + hash_ + ", offset 8 of 24");
}

TEST_F(UploadTest, ReorderedChunks) {
  Messages messages = Valid();
  std::swap(messages[1], messages[2]);
  Invalid(messages, "at offset 8; expected tensor " + hash_ + ", offset 0 of 24");
}

TEST_F(UploadTest, MissingChunk) {
  Messages messages = Valid();
  messages.erase(messages.begin() + 2);
  Invalid(messages, "at offset 16; expected tensor " + hash_ + ", offset 8 of 24");
}

TEST_F(UploadTest, ChunkOfAnotherTensor) {
  Messages messages = Valid();
  messages[1].mutable_chunk()->set_hash(std::string(32, 'x'));
  Invalid(messages, "expected tensor " + hash_);
}

TEST_F(UploadTest, ExcessBytes) {
  Messages messages = Valid();
  messages[3].mutable_chunk()->set_data("123456789");
  Invalid(messages, "9 bytes; only 8 are left of the tensor's 24");
}

TEST_F(UploadTest, ChunkAfterTheLast) {
  Messages messages = Valid();
  messages.insert(messages.begin() + 4, messages[3]);
  Invalid(messages, "expected the commit");
}

TEST_F(UploadTest, EmptyChunk) {
  Messages messages = Valid();
  messages[1].mutable_chunk()->clear_data();
  Invalid(messages, "holds no bytes");
}

TEST_F(UploadTest, WrongBytes) {
  Messages messages = Valid();
  (*messages[2].mutable_chunk()->mutable_data())[0] ^= 1;
  Invalid(messages, "tensor " + hash_ + ": the bytes received have SHA-256");
}

TEST_F(UploadTest, CommitTooEarly) {
  Messages messages = Valid();
  messages.erase(messages.begin() + 3);
  Invalid(messages, "commit before the end; expected tensor " + hash_ + ", offset 16 of 24");
}

TEST_F(UploadTest, ChunkBeforeTheHeader) {
  Messages messages = Valid();
  messages.erase(messages.begin());
  Invalid(messages, "a chunk before the header");
}

TEST_F(UploadTest, SecondHeader) {
  Messages messages = Valid();
  messages.insert(messages.begin() + 1, messages[0]);
  Invalid(messages, "a second header");
}

TEST_F(UploadTest, MessageWithoutAKind) {
  Messages messages = Valid();
  messages[1].Clear();
  Invalid(messages, "without a kind");
}

TEST_F(UploadTest, WrongGraphChecksum) {
  Messages messages = Valid();
  HeaderOf(messages)->set_graph_sha256(std::string(32, '\1'));
  Invalid(messages, "header.graph_sha256");
  HeaderOf(messages)->set_graph_sha256("short");
  Invalid(messages, "5 bytes; a SHA-256 has 32");
}

TEST_F(UploadTest, WrongName) {
  Messages messages = Valid();
  HeaderOf(messages)->set_name("");
  Invalid(messages, "header.name");
  HeaderOf(messages)->set_name(std::string(300, 'n'));
  Invalid(messages, "header.name: 300 bytes");
  HeaderOf(messages)->set_name("a\nb");
  Invalid(messages, "control character");
}

TEST_F(UploadTest, FormatsThatAreNotRead) {
  Messages messages = Valid();
  HeaderOf(messages)->set_format("pickle");
  Invalid(messages, "\"pickle\"");
}

TEST_F(UploadTest, WrongBudgetAndBuckets) {
  Messages messages = Valid();
  HeaderOf(messages)->set_search_budget("soon");
  Invalid(messages, "header.search_budget: \"soon\"");
  HeaderOf(messages)->set_search_budget("721h");
  Invalid(messages,
          "header.search_budget: \"721h\" is not a search budget: 721h is more than 720h");
  HeaderOf(messages)->set_search_budget("30s");
  HeaderOf(messages)->add_disable_rules("Algebra");
  Invalid(messages, "header.disable_rules: \"Algebra\" is neither a rule nor a family");
  HeaderOf(messages)->clear_disable_rules();
  HeaderOf(messages)->add_buckets()->set_dim("b");
  Invalid(messages, "header.buckets: dim \"b\"");
  Messages relu = UploadMessages("m", ReluModel());
  auto* range = HeaderOf(relu)->add_buckets();
  range->set_dim("b");
  range->add_ranges()->set_max(65);
  Invalid(relu, "range [0, 65] is not inside the dim's bounds [1, 64]");
  range->mutable_ranges(0)->set_min(1);
  range->mutable_ranges(0)->set_max(8);
  auto* second = range->add_ranges();
  second->set_min(16);
  second->set_max(64);
  Invalid(relu, "header.buckets: dim \"b\": sizes [9, 15] are in no range");
  second->set_min(8);
  Invalid(relu, "header.buckets: dim \"b\": ranges [1, 8] and [8, 64] overlap");
}

TEST_F(UploadTest, ABatchDimThatTheGraphDoesNotHave) {
  Messages messages = Valid();
  HeaderOf(messages)->set_batch_dim("b");
  Invalid(messages, "header.batch_dim: \"b\" is no dim of the graph; it has none");
  Messages relu = UploadMessages("m", ReluModel());
  HeaderOf(relu)->set_batch_dim("rows");
  Invalid(relu, "header.batch_dim: \"rows\" is no dim of the graph; its dims: \"b\"");
}

TEST_F(UploadTest, TensorListThatDoesNotFitTheGraph) {
  Messages messages = Valid();
  HeaderOf(messages)->mutable_tensors(0)->set_bytes(20);
  Invalid(messages, "announced with 20 bytes; its parameter has 24");
  HeaderOf(messages)->mutable_tensors(0)->set_bytes(-4);
  Invalid(messages, "announced with -4 bytes");
  messages = Valid();
  *HeaderOf(messages)->add_tensors() = HeaderOf(messages)->tensors(0);
  Invalid(messages, "listed twice");
  HeaderOf(messages)->mutable_tensors(1)->set_hash(std::string(32, 'x'));
  Invalid(messages, "no parameter of the graph has it");
  HeaderOf(messages)->mutable_tensors(1)->set_hash("x");
  Invalid(messages, "1 bytes; a SHA-256 has 32");
}

TEST_F(UploadTest, TensorNeitherHeldNorSent) {
  Messages messages = Valid();
  HeaderOf(messages)->clear_tensors();
  Refused({messages[0], messages.back()}, grpc::StatusCode::FAILED_PRECONDITION, hash_);
}

TEST_F(UploadTest, BytesThatAreNoGraph) {
  Messages messages = Valid();
  SetGraph(messages, "\x0a\x50 cut off");
  Invalid(messages, "athanor.v1.Graph");
}

TEST_F(UploadTest, GraphsTheFrontendRefuses) {
  Messages messages = Valid();
  v1::Graph graph = model_.graph;
  graph.mutable_outputs(0)->set_node("absent");
  SetGraph(messages, graph.SerializeAsString());
  Invalid(messages, "absent");
  graph = model_.graph;
  for (auto& node : *graph.mutable_nodes()) {
    if (node.op() == "Mul") node.set_op("Frobnicate");
  }
  SetGraph(messages, graph.SerializeAsString());
  Refused(messages, grpc::StatusCode::UNIMPLEMENTED, "Frobnicate");
}

TEST(UploadLimitsTest, EachLimitHasItsMessage) {
  ServerOptions options;
  options.max_chunk_bytes = 16;
  options.max_nodes = 3;
  options.max_tensor_bytes = 64;
  TestServer test(options);
  grpc::Status status = test.Send(UploadMessages("m", ScaleModel({1, 2, 3, 4, 5, 6}), 24));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_chunk_bytes"));
  status = test.Send(UploadMessages("m", ScaleModel(std::vector<float>(17)), 16));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.error_message(), HasSubstr("64"));

  ServerOptions small;
  small.max_graph_bytes = 16;
  TestServer other(small);
  status = other.Send(UploadMessages("m", ReluModel()));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_graph_bytes"));

  ServerOptions nodes;
  nodes.max_nodes = 1;
  TestServer third(nodes);
  status = third.Send(UploadMessages("m", ReluModel()));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.error_message(), HasSubstr("nodes"));
}

TEST(UploadLimitsTest, MemoryLimitRefusesBeforeTheBytesCome) {
  ServerOptions options;
  options.memory_limit = 1 << 20;
  options.max_chunk_bytes = 1 << 10;
  TestServer test(options);
  Messages messages = UploadMessages("m", ScaleModel(std::vector<float>(1 << 19)), 1 << 10);
  const grpc::Status status = test.Send({messages[0]});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("2097152 bytes for parameters"));
  EXPECT_THAT(status.error_message(), HasSubstr("1048576 bytes (--memory_limit)"));
  test.Upload("m", ScaleModel({1}));
}

TEST(UploadLimitsTest, TooManyModels) {
  ServerOptions options;
  options.max_models = 1;
  TestServer test(options);
  test.Upload("a", ReluModel());
  const grpc::Status status = test.Send(UploadMessages("b", ReluModel()));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_models"));
}

TEST(UploadLimitsTest, AnUploadThatFallsSilentIsGivenUp) {
  ServerOptions options;
  options.upload_idle_ms = 50;
  TestServer test(options);
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = test.models->UploadModel(&context, &reply);
  writer->Write(UploadMessages("m", ScaleModel({1, 2, 3}))[0]);
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("offset 0 of 12"));
}

TEST(UploadLimitsTest, UploadsAtOnceAreBounded) {
  ServerOptions options;
  options.max_uploads = 1;
  TestServer test(options);
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = test.models->UploadModel(&context, &reply);
  writer->Write(UploadMessages("m", ScaleModel({1, 2, 3}))[0]);
  while (test.server->core().uploads() == 0) std::this_thread::yield();
  const grpc::Status status = test.Send(UploadMessages("m", ReluModel()));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_uploads"));
  context.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// An answered upload no longer counts, even while it is being cleaned up.
TEST(UploadLimitsTest, OneAfterTheOtherIsNeverOneTooMany) {
  ServerOptions options;
  options.max_uploads = 1;
  TestServer test(options);
  for (int i = 0; i < 100; ++i) {
    const grpc::Status status = test.Send(UploadMessages("m", ScaleModel({1, 2, 3})));
    ASSERT_TRUE(status.ok()) << i << ": " << status.error_message();
  }
}

// A disk that can be made to fail at any time.
class BrokenDisk final : public Disk {
 public:
  int error = 0;
  absl::StatusOr<int> Create(const std::string& path) override {
    if (error == EROFS) return DiskError(error, "create", path);
    return Disk::Create(path);
  }
  absl::Status Write(int fd, absl::string_view bytes, const std::string& path) override {
    if (error == ENOSPC) return DiskError(error, "write", path);
    return Disk::Write(fd, bytes, path);
  }
};

TEST(UploadDiskTest, FullDiskIsNamedAndTheServerServesOn) {
  BrokenDisk disk;
  TestServer test({}, &disk);
  test.Upload("old", ScaleModel({2}));
  disk.error = ENOSPC;
  const grpc::Status status = test.Send(UploadMessages("new", ScaleModel({3})));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr(test.options.state_dir + "/tmp"));
  EXPECT_THAT(status.error_message(), HasSubstr("No space left on device"));
  EXPECT_THAT(test.Infer("old", {4}), testing::ElementsAre(8));
  disk.error = 0;
  test.Upload("new", ScaleModel({3}));
}

TEST(UploadDiskTest, ReadOnlyDiskIsNamedAndTheServerServesOn) {
  BrokenDisk disk;
  TestServer test({}, &disk);
  test.Upload("old", ScaleModel({2}));
  disk.error = EROFS;
  const grpc::Status status = test.Send(UploadMessages("new", ScaleModel({3})));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("Read-only file system"));
  EXPECT_THAT(test.Infer("old", {4}), testing::ElementsAre(8));
}

TEST(UploadDiskTest, FullAndReadOnlyRegistryAreNamed) {
  TestServer test;
  test.Upload("old", ScaleModel({2}));
  RegistryDb& db = test.server->core().registry().db();
  ASSERT_TRUE(db.Execute("PRAGMA max_page_count=1").ok());
  TestModel big = ReluModel();
  big.graph.set_name(std::string(900, 'n'));
  grpc::Status status;
  for (int i = 0; i < 50 && status.ok(); ++i) status = test.Send(UploadMessages("new", big));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr(test.options.state_dir + "/registry.db"));
  ASSERT_TRUE(db.Execute("PRAGMA max_page_count=1000000").ok());
  ASSERT_TRUE(db.Execute("PRAGMA query_only=1").ok());
  status = test.Send(UploadMessages("new", ScaleModel({3})));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("registry.db"));
  EXPECT_THAT(test.Infer("old", {4}), testing::ElementsAre(8));
}

}  // namespace
}  // namespace athanor
