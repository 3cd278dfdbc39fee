#include "server/generate/schedule/fair_order.h"

#include <map>

namespace athanor {
namespace {

// So many clients without sequences are remembered at most.
constexpr int64_t kMostRemembered = 1024;

}  // namespace

FairOrder::Client* FairOrder::Join(const std::string& name) {
  if (clients() >= sweep_at_) Sweep();
  Client& client = clients_[name];
  ++client.sequences;
  return &client;
}

void FairOrder::Leave(Client* client) { --client->sequences; }

void FairOrder::Work(Client* client) {
  if (client->working++ > 0) return;
  client->time = std::max(client->time, now_);
  ++working_;
}

void FairOrder::Rest(Client* client) {
  if (--client->working == 0) --working_;
}

void FairOrder::Charge(absl::Span<Client* const> rows) {
  now_ += static_cast<double>(rows.size()) / static_cast<double>(std::max<int64_t>(1, working_));
  for (Client* client : rows) ++client->time;
  for (Client* client : rows) {
    client->time = std::clamp(client->time, now_ - kMostLag, now_ + kMostLag);
  }
}

void FairOrder::Sweep() {
  int64_t present = 0;
  for (const auto& [name, client] : clients_) present += client.sequences > 0 ? 1 : 0;
  const bool too_many = clients() - present > kMostRemembered;
  std::erase_if(clients_, [&](const auto& one) {
    return one.second.sequences == 0 && (too_many || one.second.time <= now_);
  });
  // Then a sweep costs little for each client that joins.
  sweep_at_ = 2 * clients() + 64;
}

}  // namespace athanor
