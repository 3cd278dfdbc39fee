#include "server/tuner/worker/propose.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr int64_t kMiB = 1 << 20;

// The workspace of each proposal, by the rows of a way. An algorithm is named by rows and rank.
using Lists = std::map<int64_t, std::vector<int64_t>>;

// Rows are multiples of 8; both operands, the result and the bias have an offset, or are
// transposed.
std::string TextOf(int64_t workspace, int rank) {
  return absl::StrCat(
      "kernel(s0) grid 1\nb0: f32 out\nb1: f16 in\nb2: f16 in\nb3: f32 in\n",
      workspace > 0 ? absl::StrCat("b4: u8 launch ", workspace, "\n") : "",
      "call b0[8] stride 72 = b1[16] stride 128 transposed * b2[0] stride 64 + b3: f16 rows 8*s0 "
      "columns 64 sums 32 batch 1 ways 64 128 proposal ",
      rank, "\n");
}

class ProposeTest : public ::testing::Test {
 protected:
  absl::StatusOr<v1::LibraryObject> Propose(const std::string& text) {
    internal::ProposeJob job;
    job.set_text(text);
    job.set_library("a library 1.2");
    job.set_refuse_poor(refuse_poor_);
    asked_.clear();
    return ProposeObject(job,
                         [&](const LibraryCall& call, int most,
                             int64_t most_workspace) -> absl::StatusOr<std::vector<LibraryCall>> {
                           asked_.push_back(call);
                           limits_ = {most, most_workspace};
                           if (!error_.ok()) return error_;
                           std::vector<LibraryCall> proposals;
                           for (const int64_t workspace : lists_[call.rows]) {
                             if (static_cast<int>(proposals.size()) == most) break;
                             proposals.push_back(call);
                             proposals.back().algorithm =
                                 absl::StrCat(call.rows, "/", proposals.size() - 1);
                             proposals.back().workspace_bytes = workspace;
                           }
                           return proposals;
                         });
  }

  Lists lists_ = {{64, {0, 0, 0}}, {128, {0, 0, 0}}};
  bool refuse_poor_ = false;
  absl::Status error_;
  std::vector<LibraryCall> asked_;
  std::pair<int, int64_t> limits_;
};

TEST_F(ProposeTest, AsksForWhatTheTextSays) {
  const auto object = Propose(TextOf(4 * kMiB, 2));
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->library(), "a library 1.2");
  EXPECT_THAT(object->algorithms(), ElementsAre("64/2", "128/2"));
  EXPECT_EQ(limits_, std::pair(3, 4 * kMiB));
  ASSERT_EQ(asked_.size(), 2u);
  const LibraryCall& call = asked_[1];
  EXPECT_EQ(call.dtype, "f16");
  EXPECT_EQ(call.result_dtype, "f32");
  EXPECT_THAT(std::vector({call.rows, call.columns, call.sums, call.batch}),
              ElementsAre(128, 64, 32, 1));
  EXPECT_EQ(call.result.offset, 8);
  EXPECT_EQ(call.result.stride, 72);
  EXPECT_FALSE(call.result.transposed);
  EXPECT_EQ(call.left.offset, 16);
  EXPECT_EQ(call.left.stride, 128);
  EXPECT_TRUE(call.left.transposed);
  EXPECT_EQ(call.right.offset, 0);
  EXPECT_EQ(call.right.stride, 64);
  EXPECT_FALSE(call.right.transposed);
  EXPECT_TRUE(call.bias);
  EXPECT_EQ(asked_[0].rows, 64);
}

TEST_F(ProposeTest, ABatchHasStrides) {
  const auto object = Propose(
      "kernel() grid 1\nb0: f64 out\nb1: f64 in\nb2: f64 in\n"
      "call b0[0] stride 3 batch_stride 15 = b1[0] stride 7 batch_stride 35 * b2[0] stride 3: f64 "
      "rows 5 columns 3 sums 7 batch 11 ways 5 proposal 0\n");
  EXPECT_EQ(object.status().code(), Code::kOutOfRange);  // there is no list of 5 rows
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].batch, 11);
  EXPECT_EQ(asked_[0].result.batch_stride, 15);
  EXPECT_EQ(asked_[0].left.batch_stride, 35);
  EXPECT_EQ(asked_[0].right.batch_stride, 0);
  EXPECT_EQ(limits_, std::pair(1, int64_t{0}));
}

TEST_F(ProposeTest, AWayTakesTheRankOrItsLastAndTheFirstHasIt) {
  lists_ = {{64, {0, 0, 0}}, {128, {0}}};
  EXPECT_THAT(Propose(TextOf(0, 2))->algorithms(), ElementsAre("64/2", "128/0"));
  const absl::Status high = Propose(TextOf(0, 3)).status();
  EXPECT_EQ(high.code(), Code::kOutOfRange);
  EXPECT_THAT(high.message(), HasSubstr("proposes 3 ways to multiply 64 rows"));
  lists_[128].clear();
  const absl::Status none = Propose(TextOf(0, 0)).status();
  EXPECT_EQ(none.code(), Code::kOutOfRange);
  EXPECT_THAT(none.message(), HasSubstr("proposes 0 ways to multiply 128 rows"));
  lists_ = {{64, {}}, {128, {0}}};
  EXPECT_EQ(Propose(TextOf(0, 0)).status().code(), Code::kOutOfRange);
  EXPECT_EQ(Propose(TextOf(0, 1 << 30)).status().code(), Code::kInvalidArgument);
}

// What needs no more than a lower limit of workspace is among that one's proposals.
TEST_F(ProposeTest, ASearchRefusesWhatALowerLimitHas) {
  struct Row {
    int64_t limit, first, second;
    bool poor;
  };
  for (const Row& row : std::vector<Row>{{0, 0, 0, false},
                                         {4 * kMiB, 0, 0, true},
                                         {4 * kMiB, 1, 0, false},
                                         {4 * kMiB, 0, 1, false},
                                         {32 * kMiB, 0, 4 * kMiB, true},
                                         {32 * kMiB, 4 * kMiB + 1, 0, false},
                                         {32 * kMiB, 0, 32 * kMiB, false}}) {
    lists_ = {{64, {row.first}}, {128, {row.second}}};
    refuse_poor_ = true;
    const absl::Status status = Propose(TextOf(row.limit, 0)).status();
    EXPECT_EQ(status.code(), row.poor ? Code::kResourceExhausted : Code::kOk)
        << row.limit << " " << row.first << " " << row.second << " " << status;
    // A plan that was found has nothing else.
    refuse_poor_ = false;
    EXPECT_TRUE(Propose(TextOf(row.limit, 0)).ok());
  }
}

TEST_F(ProposeTest, RefusesWhatIsNoCall) {
  const std::string good = TextOf(4 * kMiB, 0);
  ASSERT_TRUE(Propose(good).ok());
  const auto with = [&](const char* was, const char* is) {
    const std::string text = absl::StrReplaceAll(good, {{was, is}});
    EXPECT_NE(text, good) << was;
    return text;
  };
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "kernel("},
           {"kernel() grid 1\nb0: f32 out\nv0: f32 = const 0x0 (0)\nstore b0[0] = v0: f32\n",
            "the kernel is code"},
           {with("ways 64 128", "ways 128 64"), "ascending"},
           {with("b0: f32 out", "b0: f32 in"), "read only"},
           {with("columns 64", "columns 0"), "library_call.columns is 0"},
           {with("sums 32", "sums 4294967296"), "library_call.sums is 4294967296"},
           {with("b2[0] stride 64", "b2[0] stride 63"), "library_call.right.stride is 63"},
           {with("b2[0]", "b2[-1]"), "library_call.right.offset is -1"},
           {with("b1[16]", "b1[9223372036854775807]"), "library_call.left.offset"},
           {with("batch 1", "batch 2"), "library_call.batch is 2"},
           {with("ways 64 128", "ways 1 2 3 4 5 6 7 8 9"), "library_call.ways are 9"},
           {absl::StrReplaceAll(good, {{"f16", "i16"}}), "no library multiplies"},
           {good + std::string(8 << 20, 'x'), ""}}) {
    const absl::Status status = Propose(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status << "\n" << text.substr(0, 400);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << text.substr(0, 400);
    EXPECT_TRUE(asked_.empty()) << text.substr(0, 400);
  }
}

TEST_F(ProposeTest, ErrorsAreTheLibrarys) {
  error_ = absl::InternalError("the library's own");
  EXPECT_EQ(Propose(TextOf(0, 0)).status(), error_);
}

}  // namespace
}  // namespace athanor
