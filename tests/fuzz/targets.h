// What fuzzing runs on each input. A problem is returned as text; crashes, hangs and sanitizer
// reports speak for themselves.
//
//   std::string problem = FuzzGraph(bytes, &stats);
//   // "canonical graph: evaluates to something else: output 0 ..." or ""
#ifndef ATHANOR_TESTS_FUZZ_TARGETS_H_
#define ATHANOR_TESTS_FUZZ_TARGETS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/infer_request.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// How deep the inputs got: a run in which nothing is accepted has tested nothing.
struct FuzzStats {
  int64_t parsed = 0;       // were messages
  int64_t accepted = 0;     // were valid
  int64_t evaluated = 0;    // graphs small enough to evaluate, with success
  int64_t independent = 0;  // dims whose rows were proved to be, and were
  int64_t unproved = 0;     // graphs whose sizes are proved, but not with canonical names of dims
  int64_t prepared = 0;     // that agree with what the compiler makes of them first
  std::string refusal;      // the last one's, of an ONNX model
  int64_t unstable = 0;     // where a rounding of the inputs changes as much as that did
};

// `bytes` as a serialised athanor.v1.Graph: import, verify, canonicalise, text and message round
// trips, which must keep the canonical hash; a small evaluation, on which the graph and its
// canonical form must agree, as must its rows together and apart where they are proved independent;
// a request made for it, which must bind.
std::string FuzzGraph(const std::string& bytes, FuzzStats* stats);

// What FuzzGraph checks once a graph is imported.
std::string CheckImported(const ImportedGraph& imported, FuzzStats* stats);

// Limits that let no single input take long, with the defaults' proportions.
GraphLimits FuzzLimits();

// Small values for a graph's inputs and parameters, often valid as indices; none if a tensor is
// large at the smallest sizes or a node's evaluation may take long.
struct SmallInputs {
  Expr::Env dims;
  std::vector<Tensor> arguments;
};
std::optional<SmallInputs> SmallInputsOf(const Graph& graph);
bool IsSmallAt(const Graph& graph, const Expr::Env& dims);

// `bytes` as a serialised ModelInferRequest for the model of `binder`.
std::string FuzzRequest(const RequestBinder& binder, const Graph& graph, const std::string& bytes,
                        FuzzStats* stats);

// Why `status` is no refusal of input fit to be shown: another code than `codes`, or a message that
// is missing, too long or not UTF-8; "" if it is one.
std::string BadRefusal(const absl::Status& status, std::initializer_list<absl::StatusCode> codes);

// A valid request for `graph` with small sizes, raw or in typed contents where the datatype has
// them. False if even the smallest sizes are large.
bool MakeRequest(const Graph& graph, bool raw, inference::ModelInferRequest* request);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_TARGETS_H_
