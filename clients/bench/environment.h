// What a figure was measured on: goes into every result.
//
//   json environment = Environment();   // {"host": ..., "cpu": ..., "cores": 2, "load": 0.3, ...}
#ifndef ATHANOR_CLIENTS_BENCH_ENVIRONMENT_H_
#define ATHANOR_CLIENTS_BENCH_ENVIRONMENT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace athanor::bench {

// Of the machine that this runs on, which need not be the server's.
nlohmann::json Environment();
// "2026-01-31T12:00:00Z"
std::string NowText();

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_ENVIRONMENT_H_
