// Orders clients by the tokens computed for them, and says what share of the places each may have.
//
//   FairOrder order(/*places=*/64);
//   FairOrder::Client* client = order.Join("ann");   // a sequence of it came
//   order.Charge({client, client, other});           // a step computed two rows of it
//   if (order.IsAbove(*client)) ...                  // it has more places than others could
//   order.Leave(client);                             // the sequence ended
//
// Fair queueing over tokens (A. Demers, S. Keshav, S. Shenker, "Analysis and Simulation of a Fair
// Queueing Algorithm", SIGCOMM 1989): each client has a time, which goes on by one for each row
// that is computed for it, and the lowest goes first. The clock beside them goes on by the rows
// that each of those with work should have had. One that comes to have work starts no earlier than
// the clock: nobody saves up turns. Times keep within kMostLag of the clock, so that neither what
// was taken while nobody else wanted it nor what was not asked for counts for long. Pure; not
// thread-safe.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_FAIR_ORDER_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_FAIR_ORDER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "absl/types/span.h"

namespace athanor {

class FairOrder {
 public:
  static constexpr double kMostLag = 2048;  // rows

  struct Client {
    double time = 0;        // in rows
    int64_t sequences = 0;  // of it, joined and not left
    int64_t working = 0;    // of these, so many want rows
    int64_t places = 0;     // of these, so many have a place: kept by the caller
    int64_t owed = 0;       // rows of prompts of these that are yet to compute: kept by the caller
  };

  // REQUIRES: places >= 1
  explicit FairOrder(int64_t places) : places_(places) {}

  // Adds a sequence of a client; it wants no rows yet. The client is valid until the last one left.
  Client* Join(const std::string& name);
  // REQUIRES: the client has more sequences than want rows.
  void Leave(Client* client);
  // Change the number of the client's sequences that want rows by one.
  void Work(Client* client);
  void Rest(Client* client);

  // Says whose rows were computed by a step, one entry for each row.
  void Charge(absl::Span<Client* const> rows);

  // Number of clients that want rows.
  int64_t working() const { return working_; }
  // Reports whether the client has more places than its equal part of them, rounded up.
  bool IsAbove(const Client& client) const {
    return client.places > (places_ + clients_of_share() - 1) / clients_of_share();
  }
  // Reports whether it has fewer than its equal part, rounded down, or none.
  bool IsBelow(const Client& client) const {
    return client.places < std::max<int64_t>(1, places_ / clients_of_share());
  }

  int64_t clients() const { return static_cast<int64_t>(clients_.size()); }  // also remembered ones

 private:
  int64_t clients_of_share() const { return std::max<int64_t>(1, working_); }
  // Forgets clients without sequences whose time has come.
  void Sweep();

  const int64_t places_;
  std::map<std::string, Client> clients_;
  double now_ = 0;  // the clock
  int64_t working_ = 0;
  int64_t sweep_at_ = 64;  // number of clients
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_FAIR_ORDER_H_
