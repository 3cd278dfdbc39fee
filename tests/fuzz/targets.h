// Functions that fuzzing runs on each input. They return a problem as text; crashes, hangs and
// sanitizer reports show by themselves.
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

// Counts how deep inputs got: a run in which nothing is accepted has tested nothing.
struct FuzzStats {
  int64_t parsed = 0;       // parsed as messages
  int64_t accepted = 0;     // found valid
  int64_t evaluated = 0;    // graphs that were small enough and evaluated without error
  int64_t independent = 0;  // dims with rows proved independent, which they were
  int64_t unproved = 0;  // graphs with proved sizes that find no proof with canonical names of dims
  int64_t prepared = 0;  // graphs that compute the same after Prepare
  std::string refusal;   // last refusal of an ONNX model
  int64_t unstable =
      0;  // graphs where rounding the inputs changes the results as much as Prepare did
};

// Takes `bytes` as a serialised athanor.v1.Graph: imports, verifies, canonicalises, and prints and
// parses it as text and as message, which must keep the canonical hash. Evaluates it at small
// sizes: the graph must agree with its canonical form, and rows proved independent must give the
// same together and apart. Makes a request for it, which must bind.
std::string FuzzGraph(const std::string& bytes, FuzzStats* stats);

// Checks an imported graph, as FuzzGraph does.
std::string CheckImported(const ImportedGraph& imported, FuzzStats* stats);

// Returns limits that keep every input fast, in the proportions of the defaults.
GraphLimits FuzzLimits();

// Small values for a graph's inputs and parameters, often valid as indices; none if a tensor is
// large even at the smallest sizes, or if a node may take long to evaluate.
struct SmallInputs {
  Expr::Env dims;
  std::vector<Tensor> arguments;
};
std::optional<SmallInputs> SmallInputsOf(const Graph& graph);
bool IsSmallAt(const Graph& graph, const Expr::Env& dims);

// Takes `bytes` as a serialised ModelInferRequest for the model of `binder`.
std::string FuzzRequest(const RequestBinder& binder, const Graph& graph, const std::string& bytes,
                        FuzzStats* stats);

// Says why `status` is not a proper refusal: a code other than `codes`, or a message that is
// missing, too long or not UTF-8; "" if it is one.
std::string BadRefusal(const absl::Status& status, std::initializer_list<absl::StatusCode> codes);

// Makes a valid request for `graph` with small sizes; contents are raw, or typed where the datatype
// allows. Returns false if even the smallest sizes are large.
bool MakeRequest(const Graph& graph, bool raw, inference::ModelInferRequest* request);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_TARGETS_H_
