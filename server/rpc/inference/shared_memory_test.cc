#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shared_memory/shared_object_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

class SharedMemoryTest : public testing::Test {
 protected:
  grpc::Status Register(const std::string& name, const std::string& key, uint64_t offset,
                        uint64_t bytes) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_offset(offset);
    request.set_byte_size(bytes);
    inference::SystemSharedMemoryRegisterResponse reply;
    return test_.inference_stub->SystemSharedMemoryRegister(&context, request, &reply);
  }
  grpc::Status Unregister(const std::string& name) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryUnregisterRequest request;
    request.set_name(name);
    inference::SystemSharedMemoryUnregisterResponse reply;
    return test_.inference_stub->SystemSharedMemoryUnregister(&context, request, &reply);
  }
  inference::SystemSharedMemoryStatusResponse Regions(const std::string& name = "") {
    grpc::ClientContext context;
    inference::SystemSharedMemoryStatusRequest request;
    request.set_name(name);
    inference::SystemSharedMemoryStatusResponse reply;
    const grpc::Status status =
        test_.inference_stub->SystemSharedMemoryStatus(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  // Makes a request for y = x * w of two floats at the front of region "r", y behind them.
  static inference::ModelInferRequest Request() {
    inference::ModelInferRequest request;
    request.set_model_name("m");
    auto& x = *request.add_inputs();
    x.set_name("x");
    x.set_datatype("FP32");
    x.add_shape(2);
    (*x.mutable_parameters())["shared_memory_region"].set_string_param("r");
    (*x.mutable_parameters())["shared_memory_byte_size"].set_int64_param(8);
    auto& y = *request.add_outputs();
    y.set_name("y");
    (*y.mutable_parameters())["shared_memory_region"].set_string_param("r");
    (*y.mutable_parameters())["shared_memory_byte_size"].set_int64_param(8);
    (*y.mutable_parameters())["shared_memory_offset"].set_int64_param(8);
    return request;
  }

  TestServer test_{{.shared_memory = "athanor-test-*"}};
};

TEST_F(SharedMemoryTest, TensorsGoThroughIt) {
  test_.Upload("m", ScaleModel({2, -3}));
  SharedObject object("grpc", 64);
  const grpc::Status registered = Register("r", object.key(), 16, 32);
  ASSERT_TRUE(registered.ok()) << registered.error_message();
  const auto regions = Regions();
  ASSERT_EQ(regions.regions_size(), 1);
  EXPECT_EQ(regions.regions().at("r").key(), object.key());
  EXPECT_EQ(regions.regions().at("r").offset(), 16u);
  EXPECT_EQ(regions.regions().at("r").byte_size(), 32u);
  const float x[] = {1.5, 2};
  std::memcpy(object.data() + 16, x, sizeof(x));
  inference::ModelInferResponse reply;
  const grpc::Status answered = test_.Infer(Request(), &reply);
  ASSERT_TRUE(answered.ok()) << answered.error_message();
  float y[2];
  std::memcpy(y, object.data() + 24, sizeof(y));
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], -6);
  ASSERT_EQ(reply.raw_output_contents_size(), 1);
  EXPECT_EQ(reply.raw_output_contents(0), "");
  EXPECT_EQ(reply.outputs(0).parameters().at("shared_memory_byte_size").int64_param(), 8);

  object.Truncate(20);
  const grpc::Status truncated = test_.Infer(Request());
  EXPECT_EQ(truncated.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_THAT(truncated.error_message(), HasSubstr("was truncated"));
  EXPECT_TRUE(Unregister("r").ok());
  EXPECT_EQ(Regions().regions_size(), 0);
  EXPECT_EQ(test_.Infer(Request()).error_code(), Code::NOT_FOUND);
  while (test_.server->core().ledger().used(HeldKind::kRequests) != 0) std::this_thread::yield();
}

TEST_F(SharedMemoryTest, LargeTensorsAreCopiedElsewhere) {
  const std::vector<float> w(3 << 20, 2);
  test_.Upload("m", ScaleModel(w));
  const auto bytes = static_cast<int64_t>(w.size() * sizeof(float));
  SharedObject object("long", bytes);
  ASSERT_TRUE(Register("r", object.key(), 0, bytes).ok());
  auto* x = reinterpret_cast<float*>(object.data());
  for (size_t i = 0; i < w.size(); ++i) x[i] = static_cast<float>(i % 1000);
  inference::ModelInferRequest request = Request();
  request.mutable_inputs(0)->set_shape(0, static_cast<int64_t>(w.size()));
  for (auto* parameters : {request.mutable_inputs(0)->mutable_parameters(),
                           request.mutable_outputs(0)->mutable_parameters()}) {
    (*parameters)["shared_memory_byte_size"].set_int64_param(bytes);
    (*parameters)["shared_memory_offset"].set_int64_param(0);
  }
  const grpc::Status answered = test_.Infer(request);
  ASSERT_TRUE(answered.ok()) << answered.error_message();
  EXPECT_EQ(x[999], 1998) << "the output lies where the input did";
  EXPECT_EQ(x[w.size() - 1], 2 * static_cast<float>((w.size() - 1) % 1000));
}

TEST_F(SharedMemoryTest, RefusalsNameTheRegion) {
  SharedObject object("refused", 64);
  EXPECT_EQ(Register("r", "/psm_other", 0, 1).error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(Register("r", object.key(), 0, ~uint64_t{0}).error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Register("r", object.key(), ~uint64_t{0}, 1).error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Register("r", object.key() + "-absent", 0, 1).error_code(), Code::NOT_FOUND);
  EXPECT_TRUE(Unregister("r").ok()) << "as Triton's";
  ASSERT_TRUE(Register("r", object.key(), 0, 64).ok());
  EXPECT_EQ(Register("r", object.key(), 0, 64).error_code(), Code::ALREADY_EXISTS);
  grpc::ClientContext context;
  inference::SystemSharedMemoryStatusRequest other;
  other.set_name("other");
  inference::SystemSharedMemoryStatusResponse reply;
  EXPECT_EQ(test_.inference_stub->SystemSharedMemoryStatus(&context, other, &reply).error_code(),
            Code::NOT_FOUND);
}

TEST(SharedMemoryOffTest, SaysHowToTurnItOn) {
  TestServer test;
  grpc::ClientContext context;
  inference::SystemSharedMemoryStatusResponse reply;
  const grpc::Status status = test.inference_stub->SystemSharedMemoryStatus(&context, {}, &reply);
  EXPECT_EQ(status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--shared_memory"));
}

}  // namespace
}  // namespace athanor
