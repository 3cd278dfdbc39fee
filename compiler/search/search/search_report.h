// Report of what a search did and found, for people and for records.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_REPORT_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/search/kernels/tuning.h"
#include "compiler/search/regions/forms.h"

namespace athanor {

enum class SearchStop : uint8_t {
  kNone,        // has not stopped
  kRoofline,    // the sum of the tasks is near the machine's limits
  kStagnation,  // nothing left promises a gain
  kExhausted,   // everything was measured
  kBudget,      // max_kernels is reached, or Finish was called
};
std::string_view SearchStopName(SearchStop stop);

struct TaskReport {
  std::string key;
  std::string about;  // "Mul over Contract"
  int calls = 0;      // in the best genome
  int measured = 0, failed = 0;
  std::string schedule;  // the best one
  Seconds first, best;   // by size; empty: nothing measured
  Seconds roofline;
};

struct SearchReport {
  int64_t kernels_measured = 0, kernels_failed = 0;
  int genomes_tried = 0, genomes_taken = 0;
  int forms_tried = 0, forms_taken = 0;  // of these: genomes with another form of the graph
  int recipes_tried = 0;                 // given recipes of which a candidate was made
  std::string rules;                     // rule rows that lead to the best genome's form
  std::vector<RegionReport> regions;
  absl::Status forms;  // FormSpace::status
  int plans_proposed = 0;
  double predicted = 1;  // time of the best genome as a share of the baseline's
  double roofline = 0;   // least time that the machine's limits allow, as a share of the baseline's
  SearchStop stop = SearchStop::kNone;
  std::string limited_by;         // once it is done: what kept it from more, as a sentence
  std::vector<TaskReport> tasks;  // of the best genome, longest first
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_REPORT_H_
