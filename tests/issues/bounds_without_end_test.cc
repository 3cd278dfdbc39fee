// The proof that a coordinate stays inside took minutes, or recursed forever, for small index maps:
// ranges that use each other were followed in both directions without a budget. Found by
// tests/fuzz. The test passes with any answer before its time limit.
#include <string>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

absl::Status ImportWithCoordinate(const std::string& coordinate) {
  GraphMessage m;
  m.Dim("h", 4, 9).Dim("k", 1, 3).Input("x", "u8", {"h", "k", "5"});
  m.Node("map", "IndexMap", {"x"});
  v1::IndexMapAttr* map = m.attr("map").mutable_index_map();
  for (const char* size : {"5*h", "k"}) *map->add_shape() = ExprToProto(Expr::Parse(size).value());
  for (const std::string& text : {coordinate, std::string("$1"), std::string("mod($0, 5)")}) {
    *map->add_coordinates() = ExprToProto(Expr::Parse(text).value());
  }
  m.Output("y", "map");
  return ImportGraph(m.graph).status();
}

TEST(BoundsWithoutEndTest, DivisorsThatUseTheAxis) {
  for (const char* coordinate :
       {"floordiv(h, 6*min($0, 5))", "floordiv(h, $0 - 5*floordiv($0, 2))"}) {
    const absl::Status status = ImportWithCoordinate(coordinate);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << coordinate;
    EXPECT_NE(std::string(status.message()).find("is not provably inside"), std::string::npos);
  }
}

TEST(BoundsWithoutEndTest, TheUsualSplitIsStillProved) {
  EXPECT_EQ(ImportWithCoordinate("floordiv($0, 5)"), absl::OkStatus());
}

}  // namespace
}  // namespace athanor
