// How long the runs of each model take, compared with their predictions: a moving average of the
// ratio, by which later predictions are scaled. Not thread-safe: the queue locks.
//
//   paces.Learn(model, predicted_us, took, requests);
//   double us = paces.Cost(ticket);
#ifndef ATHANOR_SERVER_BATCH_RUN_PACES_H_
#define ATHANOR_SERVER_BATCH_RUN_PACES_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/batch/queued_request.h"

namespace athanor {

class RunPaces {
 public:
  // Learns that a call of so many requests, predicted to take `predicted_us`, above 0, took `took`.
  void Learn(const std::string& model, int64_t predicted_us,
             std::chrono::steady_clock::duration took, size_t requests);
  void Forget(const std::string& model) { paces_.erase(model); }

  bool Knows(const std::string& model) const { return paces_.contains(model); }
  // Reports whether the latest call of the model was shared.
  bool Shares(const std::string& model) const;
  // Returns actual over predicted time; 1 if nothing was learnt.
  double Of(const std::string& model) const;
  // Returns the scaled prediction of the ticket's run, in microseconds.
  double Cost(const Ticket& ticket) const {
    return static_cast<double>(ticket.predicted_us) * Of(ticket.model);
  }

 private:
  struct Pace {
    double ratio = 1;
    int64_t runs = 0;
    bool shared = false;
  };

  absl::flat_hash_map<std::string, Pace> paces_;  // by model
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_RUN_PACES_H_
