// Graphs of testdata/, for tests in C++.
#ifndef ATHANOR_TESTS_MODELS_TEXT_GRAPH_H_
#define ATHANOR_TESTS_MODELS_TEXT_GRAPH_H_

#include <string>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// An athanor.v1.Graph as text. Without a readable one the test that asks fails and gets an empty
// graph.
Graph ReadTextGraph(const std::string& path);

// "encoder_primitives": the file of that name in testdata/.
Graph TestdataGraph(const std::string& name);

}  // namespace athanor

#endif  // ATHANOR_TESTS_MODELS_TEXT_GRAPH_H_
