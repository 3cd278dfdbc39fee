#include "clients/bench/outputs.h"

#include <unistd.h>

#include <filesystem>
#include <memory>

#include "clients/bench/figures/store.h"
#include "clients/cpp/inputs/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class OutputsTest : public testing::Test {
 protected:
  OutputsTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~OutputsTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Read(const std::string& name) const {
    return client::ReadFile(Path(name)).value_or("");
  }
  static std::string Refusal(const Outputs& outputs) {
    return std::string(CheckOutputs(outputs).message());
  }

  const std::string folder_ = testing::TempDir() + "/outputs" + std::to_string(getpid());
  const json first_ = {{"model_id", "m"}, {"label", "one"}};
  const json second_ = {{"model_id", "m"}, {"label", "two"}};
  const LoadResult result_{.calls = {{.due_ns = 5, .sent_ns = 6, .done_ns = 9}}};
};

TEST_F(OutputsTest, FlagsThatWouldDoNothingAreRefused) {
  EXPECT_THAT(Refusal({.html = Path("x.html"), .detailed = true}), HasSubstr("--out FILE"));
  EXPECT_THAT(Refusal({.out = Path("x.json"), .save_calls = true}), HasSubstr("--db FILE"));
  EXPECT_TRUE(CheckOutputs({}).ok());
}

TEST_F(OutputsTest, TwoOutputsInOneFileAreRefused) {
  EXPECT_THAT(Refusal({.out = Path("x"), .html = Path("x")}), HasSubstr("--html"));
  EXPECT_THAT(Refusal({.out = Path("x"), .db = folder_ + "/./x"}), HasSubstr("of --out too"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(OutputsTest, WhatCannotBeWrittenIsRefusedBeforeTheRun) {
  const std::string nowhere = "/no/such/folder/x";
  EXPECT_THAT(Refusal({.out = nowhere}), HasSubstr("--out " + nowhere));
  EXPECT_THAT(Refusal({.html = nowhere}), HasSubstr("--html " + nowhere));
  EXPECT_THAT(Refusal({.db = nowhere}), HasSubstr("--db " + nowhere));
  EXPECT_THAT(Refusal({.out = folder_}), HasSubstr("--out " + folder_));
  EXPECT_THAT(Refusal({.html = folder_}), HasSubstr("--html " + folder_));
}

TEST_F(OutputsTest, CheckingLeavesFilesAsTheyAre) {
  ASSERT_TRUE(client::WriteFile(Path("old.json"), "old").ok());
  const Outputs outputs{
      .out = Path("old.json"), .html = Path("new.html"), .db = Path("results.db")};
  EXPECT_TRUE(CheckOutputs(outputs).ok());
  EXPECT_EQ(Read("old.json"), "old");
  EXPECT_FALSE(std::filesystem::exists(Path("new.html")));
  EXPECT_TRUE(CheckOutputs({.out = "-"}).ok());
}

TEST_F(OutputsTest, ARunIsKeptWhereItWasAskedFor) {
  const Outputs outputs{.out = Path("x.json"),
                        .html = Path("x.html"),
                        .db = Path("x.db"),
                        .detailed = true,
                        .save_calls = true};
  const Kept kept = Keep(outputs, {{{{&first_, &result_}}, json()}});
  ASSERT_TRUE(kept.status.ok()) << kept.status;
  EXPECT_EQ(kept.names, std::vector<std::string>{Path("x.db") + ":1"});
  const json document = json::parse(Read("x.json"));
  EXPECT_EQ(document["label"], "one");
  EXPECT_EQ(document["detailed"]["start_times"].size(), 1u);
  EXPECT_THAT(Read("x.html"), HasSubstr("one, m"));
  auto store = Store::Open(Path("x.db"), Access::kRead);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Calls(1)->size(), 1u);
  EXPECT_FALSE((*store)->Run(1)->contains("detailed"));
}

// A sweep has a part for each point, and a comparison of each if there are two servers.
TEST_F(OutputsTest, ASweepsPartsAreKeptTogether) {
  const Outputs outputs{.out = Path("s.json"), .html = Path("s.html"), .db = Path("s.db")};
  const json comparison = {
      {"first", "one"}, {"second", "two"}, {"ratios", {{"p50_e2el_ms", {{"value", 2}}}}}};
  const Part part{{{&first_, &result_}, {&second_, &result_}}, comparison};
  const Kept kept = Keep(outputs, {part, part});
  ASSERT_TRUE(kept.status.ok()) << kept.status;
  EXPECT_EQ(kept.names.size(), 4u);
  const json document = json::parse(Read("s.json"));
  EXPECT_EQ(document["runs"].size(), 4u);
  EXPECT_EQ(document["comparisons"], json::array({comparison, comparison}));
  EXPECT_THAT(Read("s.html"), HasSubstr("Compared: two over one"));
  auto store = Store::Open(Path("s.db"), Access::kRead);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto comparisons = (*store)->Comparisons();
  ASSERT_TRUE(comparisons.ok()) << comparisons.status();
  ASSERT_EQ(comparisons->size(), 2u);
  EXPECT_EQ((*comparisons)[1]["first"], 3);
  EXPECT_EQ((*comparisons)[1]["second"], 4);
}

// A single bad path must not lose minutes of measuring.
TEST_F(OutputsTest, OneThatCannotBeWrittenCostsNoOther) {
  const std::string nowhere = Path("gone/x");
  const json comparison = {{"ratios", {{"p50_e2el_ms", {{"value", 2}}}}}};
  const std::vector<Measured> runs = {{&first_, &result_}, {&second_, &result_}};
  const Outputs all[] = {{.out = nowhere, .html = Path("0.html"), .db = Path("0.db")},
                         {.out = Path("1.json"), .html = nowhere, .db = Path("1.db")},
                         {.out = Path("2.json"), .html = Path("2.html"), .db = nowhere}};
  for (const Outputs& outputs : all) {
    const Kept kept = Keep(outputs, {{runs, comparison}});
    EXPECT_THAT(std::string(kept.status.message()), HasSubstr(nowhere));
    if (outputs.out != nowhere) {
      const absl::StatusOr<std::string> text = client::ReadFile(outputs.out);
      ASSERT_TRUE(text.ok()) << text.status();
      const json document = json::parse(*text);
      EXPECT_EQ(document["runs"].size(), 2u);
      EXPECT_EQ(document["comparison"], comparison);
    }
    if (outputs.html != nowhere) {
      EXPECT_THAT(client::ReadFile(outputs.html).value_or(""), HasSubstr("second over first"));
    }
    if (outputs.db == nowhere) {
      EXPECT_TRUE(kept.names.empty());
      continue;
    }
    EXPECT_EQ(kept.names, (std::vector<std::string>{outputs.db + ":1", outputs.db + ":2"}));
    auto store = Store::Open(outputs.db, Access::kRead);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Comparisons()->size(), 1u);
  }
}

}  // namespace
}  // namespace athanor::bench
