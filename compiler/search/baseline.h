// The baseline genome: chosen by rules of thumb and the shapes alone, nothing measured. Every node
// is computed where it is used unless that would repeat real work or cannot be expressed as one
// kernel.
//
//   Genome genome = ChooseBaseline(&graph, target);   // adds layout nodes for packed weights
//
// Pure function, thread-safe. The search (one folder, later) starts from this genome.
#ifndef ATHANOR_COMPILER_SEARCH_BASELINE_H_
#define ATHANOR_COMPILER_SEARCH_BASELINE_H_

#include "compiler/ir/graph.h"
#include "compiler/search/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// `graph` holds no composites but Contract, Attention (with constant head sizes) and EmbeddingBag.
// Without `epilogues` contractions and attention write their own results: for a graph in which
// codegen finds that an epilogue needs elements of several tiles.
Genome ChooseBaseline(Graph* graph, const v1::Target& target, bool epilogues = true);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_BASELINE_H_
