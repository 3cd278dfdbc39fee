#include "server/repository/model_config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ErrorOf(const std::string& text) {
  return std::string(ParseConfig(text, "m").status().message());
}

// A configuration as Triton's documents write one.
constexpr char kUsual[] = R"pb(
  # ONNX with batches
  name: "m"
  platform: "onnxruntime_onnx"
  max_batch_size: 8 input
  [ {
    name: "x"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, -1, -1 ]
  }] output
  [ {
    name: "y"
    data_type: TYPE_FP32
    dims: [ 10 ]
    label_filename: "labels.txt"
  }] instance_group
  [ {
    count: 2
    kind: KIND_GPU
    gpus: [ 0, 1 ]
  }]
  dynamic_batching {
    preferred_batch_size: [ 4, 8 ]
    max_queue_delay_microseconds: 100
  }
  optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }
  parameters {
    key: "intra_op_thread_count"
    value { string_value: "2" }
  }
  parameters {
    key: "athanor.dims"
    value { string_value: "h=1:64, w=64" }
  }
)pb";

TEST(ModelConfigTest, ReadsWhatConcernsItAndNamesTheRest) {
  const auto config = ParseConfig(kUsual, "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->message.max_batch_size(), 8);
  EXPECT_EQ(config->message.input(0).dims(1), -1);
  EXPECT_EQ(config->dims, "h=1:64, w=64");
  EXPECT_THAT(config->inert, testing::UnorderedElementsAre(
                                 "input.format", "output.label_filename", "instance_group",
                                 "optimization", "dynamic_batching.preferred_batch_size",
                                 "dynamic_batching.max_queue_delay_microseconds",
                                 "parameters[\"intra_op_thread_count\"]"));
}

TEST(ModelConfigTest, NothingIsAConfigurationToo) {
  const auto config = ParseConfig("", "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->inert, IsEmpty());
}

TEST(ModelConfigTest, EveryFieldHasARow) {
  for (const auto* message :
       {inference::ModelConfig::descriptor(), inference::ModelInput::descriptor(),
        inference::ModelOutput::descriptor(), inference::ModelDynamicBatching::descriptor(),
        inference::ModelTransactionPolicy::descriptor()}) {
    for (int i = 0; i < message->field_count(); ++i) {
      const ConfigField* row = FindConfigField(message->name(), message->field(i)->name());
      ASSERT_NE(row, nullptr) << message->field(i)->full_name();
      EXPECT_EQ(row->use == ConfigField::Use::kRefused, !row->why.empty()) << row->name;
    }
  }
}

TEST(ModelConfigTest, WrongTextIsRefusedWithItsLine) {
  EXPECT_THAT(ErrorOf("name: \"m\"\nmax_batchsize: 8"),
              testing::AllOf(HasSubstr("line 2"), HasSubstr("max_batchsize")));
  EXPECT_THAT(ErrorOf("input { name: \"x\""), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("max_batch_size: many"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("input { data_type: TYPE_FP33 }"), HasSubstr("TYPE_FP33"));
  EXPECT_THAT(ErrorOf(std::string("name: \"m\"\0\x01\xff", 12)), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '{')), HasSubstr("line 1"));
}

TEST(ModelConfigTest, FieldsThatWouldChangeAnswersAreRefusedByName) {
  const std::pair<const char*, const char*> rows[] = {
      {"input { name: \"x\" reshape { shape: [ 1 ] } }", "input.reshape"},
      {"output { name: \"y\" reshape { shape: [ 1 ] } }", "output.reshape"},
      {"input { name: \"x\" allow_ragged_batch: true }", "input.allow_ragged_batch"},
      {"input { name: \"x\" optional: true }", "input.optional"},
      {"sequence_batching { max_sequence_idle_microseconds: 5 }", "sequence_batching"},
      {"ensemble_scheduling { step { model_name: \"a\" } }", "ensemble_scheduling"},
      {"model_transaction_policy { decoupled: true }", "model_transaction_policy.decoupled"},
      {"batch_input { kind: BATCH_ELEMENT_COUNT }", "batch_input"},
      {"model_operations { op_library_filename: \"a.so\" }", "model_operations"},
      {"model_repository_agents { agents { name: \"checksum\" } }", "model_repository_agents"},
  };
  for (const auto& [text, field] : rows) {
    const absl::Status status = ParseConfig(text, "m").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << text;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(std::string(field) + ": "));
  }
  EXPECT_TRUE(ParseConfig("model_transaction_policy { decoupled: false }", "m").ok());
}

TEST(ModelConfigTest, NamesArePlainAndKnown) {
  EXPECT_THAT(ErrorOf("name: \"n\""), HasSubstr("its folder is \"m\""));
  EXPECT_THAT(ErrorOf("platform: \"tensorrt_plan\""), HasSubstr("\"tensorrt_plan\" is not served"));
  EXPECT_THAT(ErrorOf("backend: \"python\""), HasSubstr("\"python\" is not served"));
  EXPECT_THAT(ErrorOf("default_model_filename: \"../m.onnx\""), HasSubstr("is no name of a file"));
  EXPECT_THAT(ErrorOf("max_batch_size: -1"), HasSubstr("-1 is negative"));
  EXPECT_THAT(ErrorOf("parameters { key: \"athanor.dim\" value { string_value: \"b=1\" } }"),
              HasSubstr("there is no \"athanor.dim\""));
}

TEST(ModelConfigTest, PoliciesPickVersions) {
  const auto wanted = [](const std::string& text) {
    return ParseConfig(text, "m").value().WantedVersions({1, 2, 5, 9});
  };
  EXPECT_THAT(wanted(""), ElementsAre(9));
  EXPECT_THAT(wanted("version_policy { latest { num_versions: 2 } }"), ElementsAre(5, 9));
  EXPECT_THAT(wanted("version_policy { latest { num_versions: 20 } }"), ElementsAre(1, 2, 5, 9));
  EXPECT_THAT(wanted("version_policy { latest {} }"), ElementsAre(9));
  EXPECT_THAT(wanted("version_policy { all {} }"), ElementsAre(1, 2, 5, 9));
  EXPECT_THAT(wanted("version_policy: { specific { versions: [ 5, 1, 7 ] } }"), ElementsAre(1, 5));
  EXPECT_THAT(ErrorOf("version_policy { specific { versions: [ 0 ] } }"),
              HasSubstr("begin with 1"));
  EXPECT_THAT(ParseConfig("", "m").value().WantedVersions({}), IsEmpty());
}

}  // namespace
}  // namespace athanor
