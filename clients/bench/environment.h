// Describes the machine that measures; every result holds it.
//
//   json environment = Environment();   // {"host": ..., "cpu": ..., "cores": 2, "load": 0.3, ...}
#ifndef ATHANOR_CLIENTS_BENCH_ENVIRONMENT_H_
#define ATHANOR_CLIENTS_BENCH_ENVIRONMENT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace athanor::bench {

// Describes this machine, which need not be the server's.
nlohmann::json Environment();
// Returns the current time: "2026-01-31T12:00:00Z".
std::string NowText();

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_ENVIRONMENT_H_
