// What a search did and found, for people and for records.
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
  kNone,        // goes on
  kRoofline,    // the sum of the tasks is near what the machine allows
  kStagnation,  // nothing left promises a gain
  kExhausted,   // everything was measured
  kBudget,      // max_kernels, or Finish
};
std::string_view SearchStopName(SearchStop stop);

struct TaskReport {
  std::string key;
  std::string about;  // "Mul over Contract"
  int calls = 0;      // in the best genome
  int measured = 0, failed = 0;
  std::string schedule;  // of the best
  Seconds first, best;   // by size; empty: nothing measured
  Seconds roofline;
};

struct SearchReport {
  int64_t kernels_measured = 0, kernels_failed = 0;
  int genomes_tried = 0, genomes_taken = 0;
  int forms_tried = 0, forms_taken = 0;  // of those: changes of the graph by rules
  int recipes_tried = 0;                 // of those given: a candidate was made of each
  std::string rules;                     // that lead to the best genome's form
  std::vector<RegionReport> regions;
  absl::Status forms;  // FormSpace::status
  int plans_proposed = 0;
  double predicted = 1;  // of the best genome, share of the baseline's time
  double roofline = 0;   // share of the baseline's time that the machine's limits allow
  SearchStop stop = SearchStop::kNone;
  std::vector<TaskReport> tasks;  // of the best genome, longest first
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_REPORT_H_
