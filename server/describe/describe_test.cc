#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/describe/model_config.h"
#include "server/describe/model_metadata.h"
#include "server/describe/model_statistics.h"
#include "server/describe/repository_index.h"
#include "server/describe/server_metadata.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DescribeTest : public CoreTest {
 protected:
  std::shared_ptr<ModelVersion> Serve(const std::string& name, const TestModel& model,
                                      const std::string& batch_dim = "") {
    auto messages = UploadMessages(name, model);
    messages[0].mutable_header()->set_batch_dim(batch_dim);
    std::shared_ptr<ModelVersion> version = Store(messages);
    EXPECT_TRUE(core_->workers().Start(version).ok());
    EXPECT_TRUE(Await(*version).ok());
    return version;
  }
  inference::ModelConfig Config(const std::string& name) {
    inference::ModelConfig config;
    const absl::Status filled = FillModelConfig(*core_, name, "", &config);
    EXPECT_TRUE(filled.ok()) << filled;
    return config;
  }
};

TEST_F(DescribeTest, ConfigHasWholeShapes) {
  Serve("m", ReluModel());
  const inference::ModelConfig config = Config("m");
  EXPECT_EQ(config.name(), "m");
  EXPECT_EQ(config.backend(), "athanor");
  EXPECT_EQ(config.max_batch_size(), 0);
  ASSERT_EQ(config.input_size(), 1);
  EXPECT_EQ(config.input(0).name(), "x");
  EXPECT_EQ(config.input(0).data_type(), inference::TYPE_FP32);
  EXPECT_THAT(config.input(0).dims(), ElementsAre(-1, 4));
  EXPECT_THAT(config.output(0).dims(), ElementsAre(-1, 4));
  EXPECT_FALSE(config.has_dynamic_batching());
  ASSERT_EQ(config.instance_group_size(), 1);
  EXPECT_EQ(config.instance_group(0).kind(), inference::ModelInstanceGroup::KIND_CPU);
  EXPECT_EQ(config.instance_group(0).count(), 2);
}

TEST_F(DescribeTest, ConfigOfABatchedModelLeavesOutTheBatch) {
  const auto version = Serve("m", ReluModel(), "b");
  ASSERT_NE(version->batching().shared, nullptr) << version->batching().reason;
  const inference::ModelConfig config = Config("m");
  EXPECT_EQ(config.max_batch_size(), version->batching().shared->most_rows);
  EXPECT_THAT(config.input(0).dims(), ElementsAre(4));
  EXPECT_THAT(config.output(0).dims(), ElementsAre(4));
  EXPECT_TRUE(config.has_dynamic_batching());
  inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(FillMetadata(*core_, "m", "", &metadata).ok());
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 4)) << "metadata have whole shapes";
}

TEST_F(DescribeTest, WhatDoesNotExist) {
  inference::ModelConfig config;
  const absl::Status missing = FillModelConfig(*core_, "m", "", &config);
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(missing.message(), HasSubstr("model \"m\" does not exist"));
  inference::ModelStatisticsResponse statistics;
  EXPECT_TRUE(absl::IsNotFound(FillStatistics(*core_, "m", "", Caller::Anybody(), &statistics)));
  EXPECT_FALSE(IsModelReady(*core_, "m", ""));
  Serve("m", ReluModel());
  EXPECT_TRUE(IsModelReady(*core_, "m", ""));
  EXPECT_TRUE(IsModelReady(*core_, "m", "1"));
  EXPECT_FALSE(IsModelReady(*core_, "m", "2"));
  EXPECT_FALSE(IsModelReady(*core_, "m", "first"));
}

TEST_F(DescribeTest, StatisticsOfAllAndOfOne) {
  const auto m = Serve("m", ReluModel());
  Serve("n", ReluModel());
  m->metrics().cells.Count(Metric::kRequests, absl::StatusCode::kOk);
  for (int i = 0; i < 2; ++i) {
    m->metrics().cells.Observe(Metric::kRequestSeconds, std::chrono::microseconds(5));
    m->metrics().cells.Observe(Metric::kExecSeconds, std::chrono::microseconds(3));
  }
  inference::ModelStatisticsResponse one, all;
  ASSERT_TRUE(FillStatistics(*core_, "m", "1", Caller::Anybody(), &one).ok());
  ASSERT_EQ(one.model_stats_size(), 1);
  EXPECT_EQ(one.model_stats(0).inference_count(), 1);
  EXPECT_EQ(one.model_stats(0).inference_stats().success().count(), 1);
  EXPECT_EQ(one.model_stats(0).inference_stats().success().ns(), 10'000);
  EXPECT_EQ(one.model_stats(0).inference_stats().fail().count(), 1);
  const auto& times = one.model_stats(0).inference_stats();
  EXPECT_TRUE(times.has_cache_hit());
  EXPECT_EQ(times.compute_infer().ns(), 6'000);
  for (const auto& part : {times.compute_input(), times.compute_infer(), times.compute_output()}) {
    EXPECT_EQ(part.count(), 2) << "perf_analyzer refuses other counts";
  }
  ASSERT_TRUE(FillStatistics(*core_, "", "", Caller::Anybody(), &all).ok());
  EXPECT_EQ(all.model_stats_size(), 2);
  inference::ModelStatisticsResponse none;
  ASSERT_TRUE(FillStatistics(*core_, "", "", Caller(), &none).ok());
  EXPECT_EQ(none.model_stats_size(), 0) << "nobody sees a model";
  EXPECT_TRUE(absl::IsUnauthenticated(FillStatistics(*core_, "m", "", Caller(), &none)));
}

TEST_F(DescribeTest, IndexNamesStates) {
  control_->HoldCompiles();
  const auto version = Store("m", ReluModel());
  ASSERT_TRUE(core_->workers().Start(version).ok());
  const auto states = [&](bool ready) {
    inference::RepositoryIndexResponse index;
    FillRepositoryIndex(*core_, ready, Caller::Anybody(), &index);
    std::map<std::string, std::string> by_name;
    for (const auto& model : index.models()) {
      by_name[model.name() + " " + model.version()] = model.state();
    }
    return by_name;
  };
  EXPECT_EQ(states(false).at("m 1"), "LOADING");
  EXPECT_TRUE(states(true).empty());
  control_->ReleaseCompiles();
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(states(true).at("m 1"), "READY");
}

TEST_F(DescribeTest, Server) {
  inference::ServerMetadataResponse metadata;
  FillServerMetadata(*core_, &metadata);
  EXPECT_EQ(metadata.name(), "athanor");
  EXPECT_THAT(metadata.extensions(), Contains("statistics"));
}

}  // namespace
}  // namespace athanor
