// Test fixture: a version in two boxes, with searches that go step by step, and a cache.
#ifndef ATHANOR_SERVER_TESTING_BOX_TESTING_H_
#define ATHANOR_SERVER_TESTING_BOX_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/search_testing.h"

namespace athanor {

class BoxTest : public SearchTest {
 protected:
  void SetUp() override {
    control_->RememberIn(FreshDirectory() + "/cache.db");
    SearchTest::SetUp();
  }

  // Stores y = relu(x), x f32 [b, 4], b in 1..64, in the boxes 1..1 and 2..64.
  std::shared_ptr<ModelVersion> StoreBoxes(bool deterministic = false) {
    auto messages = UploadMessages("m", ReluModel());
    v1::UploadHeader* header = messages[0].mutable_header();
    header->set_deterministic(deterministic);
    v1::DimBuckets* buckets = header->add_buckets();
    buckets->set_dim("b");
    for (const auto& [min, max] : {std::pair{1, 1}, {2, 64}}) {
      auto* range = buckets->add_ranges();
      range->set_min(min);
      range->set_max(max);
    }
    return Store(messages);
  }
  std::shared_ptr<CompileJob> StartWith(const std::shared_ptr<ModelVersion>& version,
                                        const char* budget,
                                        v1::SearchOptions::Use use = v1::SearchOptions::SERVE) {
    auto job = core_->workers().Start(version, WithBudget(budget, use));
    EXPECT_TRUE(job.ok()) << job.status();
    return *job;
  }
  std::string ServedAt(const ModelVersion& version, int64_t b) {
    const std::shared_ptr<const ServedPlan> plan = version.plans().For({b});
    return plan == nullptr ? "" : plan->id();
  }
  std::vector<std::string> Searches() {
    std::vector<std::string> searches;
    for (const std::string& event : control_->events()) {
      if (event.rfind("search from ", 0) == 0) searches.push_back(event.substr(12));
    }
    return searches;
  }
  void Restart() {
    core_.reset();
    before_ = control_->events().size();
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  }
  std::vector<std::string> EventsSinceRestart() {
    std::vector<std::string> events = control_->events();
    events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(before_));
    return events;
  }
  std::shared_ptr<ModelVersion> Find() { return core_->registry().Find("m", "").value(); }
  std::shared_ptr<CompileJob> JobOf(ModelVersion& version) {
    return core_->workers().Find(version.serving().view().job_id).value();
  }

  size_t before_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_BOX_TESTING_H_
