#include "server/rest/message_json.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace athanor {
namespace {

TEST(MessageJsonTest, EmptyFieldsAreThere) {
  EXPECT_EQ(MessageJson(inference::RepositoryIndexResponse()).dump(), R"({"models":[]})");
  EXPECT_EQ(MessageJson(inference::ModelMetadataResponse()).dump(),
            R"({"name":"","versions":[],"platform":"","inputs":[],"outputs":[],"properties":{}})");
}

TEST(MessageJsonTest, MessagesAndChoicesOnlyIfSet) {
  inference::ModelConfig config;
  Json json = MessageJson(config);
  EXPECT_EQ(json["max_batch_size"], 0);
  EXPECT_FALSE(json.contains("dynamic_batching"));
  EXPECT_FALSE(json.contains("version_policy"));
  config.mutable_dynamic_batching()->add_preferred_batch_size(8);
  config.mutable_version_policy()->mutable_latest()->set_num_versions(2);
  json = MessageJson(config);
  EXPECT_EQ(json["dynamic_batching"]["preferred_batch_size"].dump(), "[8]");
  EXPECT_EQ(json["version_policy"].dump(), R"({"latest":{"num_versions":2}})");
}

TEST(MessageJsonTest, NumbersEnumsAndMaps) {
  inference::ModelConfig config;
  auto* input = config.add_input();
  input->set_data_type(inference::TYPE_BF16);
  input->add_dims(-1);
  input->add_dims(std::numeric_limits<int64_t>::max());
  (*config.mutable_metric_tags())["b"] = "2";
  (*config.mutable_metric_tags())["a"] = "1";
  (*config.mutable_parameters())["p"].set_string_value("v");
  config.mutable_dynamic_batching()->set_max_queue_delay_microseconds(
      std::numeric_limits<uint64_t>::max());
  (*config.mutable_dynamic_batching()->mutable_priority_queue_policy())[3].set_max_queue_size(7);
  const Json json = MessageJson(config);
  EXPECT_EQ(json["input"][0]["data_type"], "TYPE_BF16");
  EXPECT_EQ(json["input"][0]["dims"].dump(), "[-1,9223372036854775807]");
  EXPECT_EQ(json["metric_tags"].dump(), R"({"a":"1","b":"2"})");
  EXPECT_EQ(json["parameters"].dump(), R"({"p":{"string_value":"v"}})");
  EXPECT_EQ(json["dynamic_batching"]["max_queue_delay_microseconds"].dump(),
            "18446744073709551615");
  EXPECT_EQ(json["dynamic_batching"]["priority_queue_policy"]["3"]["max_queue_size"], 7);
}

TEST(MessageJsonTest, UnknownEnumsHaveNames) {
  inference::ModelInput input;
  input.set_data_type(static_cast<inference::DataType>(99));
  EXPECT_EQ(MessageJson(input)["data_type"], "UNKNOWN_ENUM_VALUE_DataType_99");
}

}  // namespace
}  // namespace athanor
