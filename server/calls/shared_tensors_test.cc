#include "server/calls/shared_tensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shared_memory/shared_object_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

class SharedTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(regions_.Register(user_, {"r", object_.key(), 0, 64}).ok());
    for (int i = 0; i < 64; ++i) object_.data()[i] = static_cast<char>('A' + i % 26);
  }
  // Adds an input of bytes.
  inference::ModelInferRequest::InferInputTensor& Input(const std::string& name, int64_t size) {
    auto& input = *request_.add_inputs();
    input.set_name(name);
    input.set_datatype("UINT8");
    input.add_shape(size);
    return input;
  }
  template <typename Tensor>
  void Share(int64_t offset, int64_t bytes, Tensor* tensor, const std::string& region = "r") {
    auto& parameters = *tensor->mutable_parameters();
    parameters["shared_memory_region"].set_string_param(region);
    parameters["shared_memory_byte_size"].set_int64_param(bytes);
    if (offset != 0) parameters["shared_memory_offset"].set_int64_param(offset);
  }
  absl::Status Read() {
    SharedTensors shared;
    absl::Status read = shared.Take(regions_, user_, &request_);
    if (read.ok()) read = shared.ReadInputs(&ledger_, &request_);
    return read;
  }
  void ExpectRefused(const std::string& text, Code code = Code::kInvalidArgument) {
    const absl::Status refused = Read();
    EXPECT_EQ(refused.code(), code) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(text));
    request_.Clear();
  }

  SharedObject object_{"tensors", 64};
  SharedRegions regions_{"*", 4};
  ServerLedger ledger_{1000};
  const SharedUser user_{.owner = "", .local = true};
  inference::ModelInferRequest request_;
};

TEST_F(SharedTensorsTest, InputsTakeTheirPlacesAmongThoseThatWereSent) {
  Input("a", 2);
  Share(0, 3, &Input("b", 3));
  Input("c", 1);
  Share(24, 4, &Input("d", 4));
  request_.add_raw_input_contents("aa");
  request_.add_raw_input_contents("c");
  SharedTensors shared;
  ASSERT_TRUE(shared.Take(regions_, user_, &request_).ok());
  EXPECT_EQ(shared.input_bytes(), 7);
  const absl::Status read = shared.ReadInputs(&ledger_, &request_);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_THAT(request_.raw_input_contents(), ElementsAre("aa", "ABC", "c", "YZAB"));
  EXPECT_TRUE(shared.ReadInputs(&ledger_, &request_).ok());
  EXPECT_THAT(request_.raw_input_contents(), ElementsAre("aa", "ABC", "c", "YZAB"));
  for (const auto& input : request_.inputs()) EXPECT_TRUE(input.parameters().empty());
  EXPECT_EQ(ledger_.used(HeldKind::kRequests), 7);
  shared = {};
  EXPECT_EQ(ledger_.used(HeldKind::kRequests), 0);
}

TEST_F(SharedTensorsTest, LeavesOtherRequestsAlone) {
  (*Input("a", 2).mutable_parameters())["other"].set_bool_param(true);
  request_.add_outputs()->set_name("y");
  const std::string before = request_.SerializeAsString();
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(request_.SerializeAsString(), before);
}

TEST_F(SharedTensorsTest, WrongParametersAreRefused) {
  Share(0, 3, &Input("b", 3), "other");
  ExpectRefused("input \"b\": there is no shared memory region \"other\"", Code::kNotFound);
  Share(0, 3, &Input("b", 4));
  ExpectRefused("shared_memory_byte_size is 3; UINT8 of its shape needs 4");
  Share(62, 3, &Input("b", 3));
  ExpectRefused("offset 62 and 3 bytes do not lie in shared memory region \"r\"");
  Share(-1, 3, &Input("b", 3));
  ExpectRefused("shared_memory_offset has to be a number of bytes");
  Share(0, -3, &Input("b", 3));
  ExpectRefused("shared_memory_byte_size has to be a number of bytes");
  auto& huge = Input("b", 3);
  Share(0, 3, &huge);
  (*huge.mutable_parameters())["shared_memory_byte_size"].set_uint64_param(~uint64_t{0});
  ExpectRefused("do not lie in shared memory region \"r\"");
  (*Input("b", 3).mutable_parameters())["shared_memory_offset"].set_int64_param(0);
  ExpectRefused("shared_memory_region is missing");
  (*Input("b", 3).mutable_parameters())["shared_memory_region"].set_string_param("r");
  ExpectRefused("shared_memory_byte_size is missing");
  auto& number = Input("b", 3);
  Share(0, 3, &number);
  (*number.mutable_parameters())["shared_memory_region"].set_int64_param(1);
  ExpectRefused("it has to be the name of a region");
  auto& both = Input("b", 3);
  Share(0, 3, &both);
  both.mutable_contents()->add_uint_contents(1);
  ExpectRefused("has contents, and lies in shared memory");
  Share(0, 3, &Input("b", 3));
  Input("c", 1);
  ExpectRefused("raw_input_contents has 0 entries for 1 inputs that do not lie in shared memory");
}

// Leaves impossible shapes and datatypes to the checks of all requests.
TEST_F(SharedTensorsTest, ImpossibleShapesAreNotRead) {
  auto& overflowing = Input("b", int64_t{1} << 62);
  overflowing.add_shape(4);
  Share(0, 3, &overflowing);
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(request_.raw_input_contents(0), "ABC");
  request_.Clear();
  auto& unknown = Input("b", 3);
  unknown.set_datatype("BYTES");
  Share(0, 3, &unknown);
  EXPECT_TRUE(Read().ok());
}

TEST_F(SharedTensorsTest, SizesOfSparseObjectsAreNotSummedBeyondTheLargest) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  SharedObject sparse("sparse", 8);
  sparse.Truncate(kHuge);
  ASSERT_TRUE(regions_.Register(user_, {"sparse", sparse.key(), 0, kHuge}).ok());
  for (const char* name : {"b", "c"}) Share(0, kHuge, &Input(name, kHuge), "sparse");
  ExpectRefused("input \"c\": with it");
}

TEST_F(SharedTensorsTest, MemoryAndVanishedObjects) {
  SharedObject large("large", 2000);
  ASSERT_TRUE(regions_.Register(user_, {"large", large.key(), 0, 2000}).ok());
  Share(0, 2000, &Input("b", 2000), "large");
  ExpectRefused("inputs in shared memory", Code::kResourceExhausted);
  object_.Truncate(10);
  Share(0, 3, &Input("b", 3));
  ExpectRefused("input \"b\": shared memory region \"r\": its object", Code::kFailedPrecondition);
  EXPECT_EQ(ledger_.used(HeldKind::kRequests), 0);
}

TEST_F(SharedTensorsTest, OutputsGoToTheirRegions) {
  for (const char* name : {"x", "y"}) request_.add_outputs()->set_name(name);
  Share(60, 4, request_.mutable_outputs(1));
  inference::ModelInferResponse reply;
  for (const char* name : {"x", "y"}) {
    auto& output = *reply.add_outputs();
    output.set_name(name);
    output.set_datatype("UINT16");
    output.add_shape(2);
  }
  SharedTensors shared;
  ASSERT_TRUE(shared.Take(regions_, user_, &request_).ok());
  ASSERT_TRUE(shared.DescribeOutputs(&reply).ok());
  EXPECT_TRUE(reply.outputs(0).parameters().empty());
  EXPECT_EQ(reply.outputs(1).parameters().at("shared_memory_region").string_param(), "r");
  EXPECT_EQ(reply.outputs(1).parameters().at("shared_memory_byte_size").int64_param(), 4);
  EXPECT_EQ(reply.outputs(1).parameters().at("shared_memory_offset").int64_param(), 60);
  reply.add_raw_output_contents("XXXX");
  reply.add_raw_output_contents("YYYY");
  ASSERT_TRUE(shared.WriteOutputs(&reply).ok());
  EXPECT_THAT(reply.raw_output_contents(), ElementsAre("XXXX", ""));
  EXPECT_EQ(std::string(object_.data() + 58, 6), "GHYYYY");

  *reply.mutable_raw_output_contents(1) = "ZZZZ";
  object_.Unlink();
  const absl::Status gone = shared.WriteOutputs(&reply);
  EXPECT_EQ(gone.code(), Code::kFailedPrecondition);
  EXPECT_THAT(gone.message(), HasSubstr("output \"y\": shared memory region \"r\""));

  reply.mutable_outputs(1)->set_shape(0, 3);
  const absl::Status small = shared.DescribeOutputs(&reply);
  EXPECT_EQ(small.code(), Code::kInvalidArgument);
  EXPECT_THAT(small.message(), HasSubstr("output \"y\" has 6 bytes; shared_memory_byte_size is 4"));
}

}  // namespace
}  // namespace athanor
