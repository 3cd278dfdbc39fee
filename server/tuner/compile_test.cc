#include "server/tuner/compile.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/run/device_worker_testing.h"
#include "server/tuner/run/host_target.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Objects = std::map<size_t, absl::StatusOr<std::string>>;

class CompileSourcesTest : public ::testing::Test {
 protected:
  // Compiles all texts; each result has to come once.
  Objects Compile(const CompileSetting& setting) {
    const std::vector<absl::string_view> sources(texts_.begin(), texts_.end());
    Objects objects;
    CompileSources(sources, HostTarget(), setting, [&](size_t i, absl::StatusOr<std::string> made) {
      EXPECT_TRUE(objects.emplace(i, std::move(made)).second) << i;
      return objects.size() < most_;
    });
    return objects;
  }

  std::vector<std::string> texts_;
  size_t most_ = 1000;
};

TEST_F(CompileSourcesTest, TwoProcessesMakeWhatOneMakes) {
  for (int i = 0; i < 7; ++i) {
    texts_.push_back(i == 2 || i == 5 ? absl::StrCat("no C ", i)
                                      : absl::StrCat("int f(int x) { return x + ", i, "; }"));
  }
  const Objects alone = Compile({.cpu_seconds = 20});
  const Objects both = Compile({.cpu_seconds = 20, .both = [] { return true; }});
  ASSERT_EQ(alone.size(), texts_.size());
  ASSERT_EQ(both.size(), texts_.size());
  for (const auto& [i, object] : alone) {
    EXPECT_EQ(both.at(i).status(), object.status()) << i;
    EXPECT_EQ(object.ok(), i != 2 && i != 5) << object.status();
    if (object.ok()) EXPECT_EQ(*both.at(i), *object) << i;
  }
}

TEST_F(CompileSourcesTest, NothingIsBegunAfterNo) {
  for (int i = 0; i < 5; ++i) texts_.push_back(absl::StrCat("int f() { return ", i, "; }"));
  most_ = 1;
  EXPECT_EQ(Compile({.cpu_seconds = 20}).size(), 1u);
  // Takes the results of the other process.
  const Objects both = Compile({.cpu_seconds = 20, .both = [] { return true; }});
  EXPECT_TRUE(both.contains(0));
  for (const auto& [i, object] : both) EXPECT_TRUE(object.ok()) << object.status();
}

// This process compiles the sources that the other lost, whichever it ended at.
TEST_F(CompileSourcesTest, ALostProcessCostsNoSource) {
  for (int i = 0; i < 5; ++i) texts_.push_back(absl::StrCat("int f() { return ", i, "; }"));
  const pid_t here = getpid();
  for (int lost_at : {1, 2, 3}) {
    int begun = 0;
    const CompileSetting setting{.cpu_seconds = 20,
                                 .work =
                                     [&](absl::FunctionRef<void()> work) {
                                       if (getpid() != here && ++begun == lost_at) _exit(3);
                                       work();
                                     },
                                 .both = [] { return true; }};
    const Objects objects = Compile(setting);
    ASSERT_EQ(objects.size(), texts_.size());
    for (const auto& [i, object] : objects) EXPECT_TRUE(object.ok()) << object.status();
  }
}

TEST_F(CompileSourcesTest, OneOrNoSource) {
  EXPECT_TRUE(Compile({.cpu_seconds = 20, .both = [] { return true; }}).empty());
  texts_ = {"no C"};
  const Objects one = Compile({.cpu_seconds = 20, .both = [] { return true; }});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_THAT(std::string(one.at(0).status().message()), HasSubstr("no C"));
}

// A device worker whose replies a candidate may have forged.
class CompileCallTest : public ::testing::Test {
 protected:
  CompileCallTest() {
    target_.set_device("cuda");
    target_.set_blas("a library 1.2");
    reply_.mutable_object()->set_library(target_.blas());
    for (int i = 0; i < 2; ++i) reply_.mutable_object()->add_algorithms(std::string(64, 'a'));
  }
  absl::StatusOr<std::string> Compile(Poor poor = Poor::kServes) {
    return CompileCall("a text", target_, worker_.limits(), poor);
  }

  v1::Target target_;
  internal::WorkerReply reply_;
  internal::WorkerJob job_;  // the last
  FakeWorker worker_{[this](const internal::WorkerJob& job, internal::WorkerReply* reply) {
    job_ = job;
    const uint64_t number = reply->number();
    *reply = reply_;
    reply->set_number(number);
  }};
};

TEST_F(CompileCallTest, TheWorkerIsAskedForTheTargetsLibrary) {
  const auto object = Compile();
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(*object, reply_.object().SerializeAsString());
  EXPECT_EQ(job_.propose().text(), "a text");
  EXPECT_EQ(job_.propose().library(), "a library 1.2");
  EXPECT_FALSE(job_.propose().refuse_poor());
  EXPECT_LE(2 * job_.timeout_ms(), worker_.limits().timeout.count());
  EXPECT_TRUE(Compile(Poor::kIsRefused).ok());
  EXPECT_TRUE(job_.propose().refuse_poor());
}

TEST_F(CompileCallTest, AReplyThatIsNoObject) {
  const internal::WorkerReply good = reply_;
  const std::function<void()> lies[] = {
      [&] { reply_.clear_object(); },
      [&] { reply_.mutable_object()->clear_library(); },
      [&] { reply_.mutable_object()->set_library("a library 1.3"); },
      [&] { reply_.mutable_object()->clear_algorithms(); },
      [&] { reply_.mutable_object()->set_algorithms(1, ""); },
      [&] { reply_.mutable_object()->set_algorithms(0, std::string(63, 'a')); },
      [&] { reply_.mutable_object()->add_algorithms(std::string(65, 'a')); },
  };
  for (const auto& lie : lies) {
    reply_ = good;
    lie();
    const absl::Status status = Compile().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the device worker's reply has none"));
  }
  reply_ = good;
  EXPECT_TRUE(Compile().ok());
}

TEST_F(CompileCallTest, WithoutALibraryOrAWorkerNobodyIsAsked) {
  EXPECT_EQ(CompileCall("a text", target_, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  target_.clear_blas();
  const absl::Status none = Compile().status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("this machine has no library"));
  EXPECT_FALSE(job_.has_propose());
}

}  // namespace
}  // namespace athanor
