#include "tests/models/text_graph.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "compiler/frontend/frontend.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {

Graph ReadTextGraph(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  v1::Graph message;
  EXPECT_TRUE(file.good() && google::protobuf::TextFormat::ParseFromString(text.str(), &message))
      << path;
  absl::StatusOr<Graph> graph = GraphFromProto(message);
  EXPECT_TRUE(graph.ok()) << path << ": " << graph.status();
  return graph.ok() ? *std::move(graph) : Graph();
}

Graph TestdataGraph(const std::string& name) {
  return ReadTextGraph("tests/models/testdata/" + name + ".txtpb");
}

}  // namespace athanor
