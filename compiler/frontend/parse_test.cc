#include "compiler/frontend/parse.h"

#include <string>

#include "compiler/frontend/testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::string Serialised() {
  GraphMessage m;
  m.Dim("b", 1, 64).Input("first", "f32", {"b"}).Node("second", "Relu", {"first"});
  m.Output("y", "second");
  return m.graph.SerializeAsString();
}

std::string ErrorOf(const std::string& bytes) {
  v1::Graph graph;
  const absl::Status status = ParseMessage(bytes, &graph);
  if (status.ok()) return "no error";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string Replaced(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(bytes.find(from), from.size(), to);
}

TEST(ParseTest, ReadsWhatWasWritten) {
  v1::Graph graph;
  ASSERT_TRUE(ParseMessage(Serialised(), &graph).ok());
  EXPECT_EQ(graph.nodes(1).name(), "second");
}

TEST(ParseTest, NamesTheFieldThatIsNotUtf8) {
  EXPECT_EQ(ErrorOf(Replaced(Serialised(), "second", "sec\xffnd")),
            "athanor.v1.Graph: nodes[1].name is not valid UTF-8");
}

TEST(ParseTest, EveryCutIsRefusedOrAShorterMessage) {
  const std::string bytes = Serialised();
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string error = ErrorOf(bytes.substr(0, size));
    if (error == "no error") continue;
    EXPECT_NE(error.find("is cut off or malformed"), std::string::npos) << error;
    ++refused;
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size()) / 2);
}

TEST(ParseTest, NamesTheFieldThatIsCutOff) {
  const std::string bytes = Serialised();
  const size_t middle_of_last_node = bytes.find("second") + 3;
  EXPECT_EQ(ErrorOf(bytes.substr(0, middle_of_last_node)).find("athanor.v1.Graph: nodes[1] is cut"),
            0u);
}

TEST(ParseTest, RefusesNestingBeyondTheParsersLimit) {
  v1::SizeExpr deep;
  for (int i = 0; i < 40; ++i) {
    v1::SizeExpr outer;
    *outer.add_terms()->add_factors()->mutable_min()->mutable_a() = deep;
    deep = outer;
  }
  GraphMessage m;
  m.Node("x", "Input", {});
  *m.node().add_shape() = deep;
  EXPECT_NE(ErrorOf(m.graph.SerializeAsString()).find("is nested deeper than 100 levels"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor
