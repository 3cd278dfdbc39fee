#include "server/jobs/parked_jobs.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

// A cache file opened by this server and by another one.
class ParkedJobsTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    version_ = Store("m", ScaleModel({1}));
    path_ = FreshDirectory() + "/cache.db";
    ours_ = Cache::Open(Options(), [](absl::string_view) {});
    CacheOptions other = Options();
    // Acts as another process, which lives until the test ends it.
    other.leases.processes->pid = kTheirs;
    theirs_ = Cache::Open(other, [](absl::string_view) {});
    parked_ = std::make_unique<ParkedJobs>(ours_.get(), [this](const auto& job) {
      MutexLock lock(mu_);
      woken_.push_back(job->id());
      cv_.NotifyAll();
    });
  }
  void TearDown() override { parked_.reset(); }

  CacheOptions Options() {
    CacheOptions options{.path = path_};
    ProcessTable processes = ProcessTable::OfThisMachine();
    processes.start_of = [this](int pid) -> std::optional<int64_t> {
      return pid == kTheirs && !they_live_ ? 0 : 17;
    };
    options.leases.processes = processes;
    return options;
  }

  std::shared_ptr<CompileJob> Job(const std::string& id) {
    return std::make_shared<CompileJob>(id, version_);
  }
  // Parks a job whose lease is refused, since the other server holds it.
  std::shared_ptr<CompileJob> Park(const std::string& id, const std::string& key) {
    EXPECT_EQ(ours_->leases().Take(key, kPlanLease, "m").status().code(),
              absl::StatusCode::kUnavailable);
    auto job = Job(id);
    parked_->Park(job, key, kPlanLease);
    return job;
  }
  void AwaitWoken(const std::vector<std::string>& ids) {
    MutexLock lock(mu_);
    while (woken_.size() < ids.size()) cv_.Wait(lock);
    EXPECT_EQ(woken_, ids);
  }

  static constexpr int kTheirs = 1 << 29;  // above any process id
  std::atomic<bool> they_live_{true};
  std::shared_ptr<ModelVersion> version_;
  std::string path_;
  std::unique_ptr<Cache> ours_, theirs_;
  Mutex mu_;
  CondVar cv_;
  std::vector<std::string> woken_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ParkedJobs> parked_;
};

TEST_F(ParkedJobsTest, WokenWhenTheLeaseIsReleased) {
  absl::StatusOr<Lease> a = theirs_->leases().Take("a", kPlanLease, "m");
  absl::StatusOr<Lease> b = theirs_->leases().Take("b", kPlanLease, "m");
  ASSERT_TRUE(a.ok() && b.ok());
  Park("1", "a");
  Park("2", "b");
  b->Release();
  AwaitWoken({"2"});
  a->Release();
  AwaitWoken({"2", "1"});
}

TEST_F(ParkedJobsTest, WokenWhenTheHolderIsGone) {
  absl::StatusOr<Lease> lease = theirs_->leases().Take("a", kPlanLease, "m");
  ASSERT_TRUE(lease.ok());
  Park("1", "a");
  they_live_ = false;  // and writes nothing more
  AwaitWoken({"1"});
  EXPECT_TRUE(ours_->leases().Take("a", kPlanLease, "m").ok());
}

TEST_F(ParkedJobsTest, WokenWhereTheLeaseWasReleasedBefore) {
  parked_->Park(Job("1"), "a", kPlanLease);
  AwaitWoken({"1"});
}

TEST_F(ParkedJobsTest, LeasesOfAnotherKindAreNotWaitedFor) {
  absl::StatusOr<Lease> plan = theirs_->leases().Take("a", kPlanLease, "m");
  absl::StatusOr<Lease> search = theirs_->leases().Take("a", kSearchLease, "m");
  ASSERT_TRUE(plan.ok() && search.ok());
  Park("1", "a");
  parked_->Park(Job("2"), "a", kSearchLease);
  search->Release();
  AwaitWoken({"2"});
  plan->Release();
  AwaitWoken({"2", "1"});
}

TEST_F(ParkedJobsTest, AllOfAKeyWake) {
  absl::StatusOr<Lease> lease = theirs_->leases().Take("a", kPlanLease, "m");
  ASSERT_TRUE(lease.ok());
  Park("1", "a");
  Park("2", "a");
  lease->Release();
  AwaitWoken({"1", "2"});
}

TEST_F(ParkedJobsTest, OneThatWasRemovedIsNotWoken) {
  absl::StatusOr<Lease> lease = theirs_->leases().Take("a", kPlanLease, "m");
  ASSERT_TRUE(lease.ok());
  auto job = Park("1", "a");
  Park("2", "a");
  EXPECT_TRUE(parked_->Remove(job));
  EXPECT_FALSE(parked_->Remove(job));
  lease->Release();
  AwaitWoken({"2"});
}

TEST_F(ParkedJobsTest, GoesWhileJobsAreParked) {
  absl::StatusOr<Lease> lease = theirs_->leases().Take("a", kPlanLease, "m");
  ASSERT_TRUE(lease.ok());
  Park("1", "a");
  parked_.reset();
  MutexLock lock(mu_);
  EXPECT_TRUE(woken_.empty());
}

}  // namespace
}  // namespace athanor
