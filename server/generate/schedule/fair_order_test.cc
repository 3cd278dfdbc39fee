#include "server/generate/schedule/fair_order.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Client = FairOrder::Client;

Client* Come(FairOrder* order, const std::string& name) {
  Client* client = order->Join(name);
  order->Work(client);
  return client;
}
void Go(FairOrder* order, Client* client) {
  order->Rest(client);
  order->Leave(client);
}
void Charge(FairOrder* order, Client* client, int64_t rows) {
  order->Charge(std::vector<Client*>(rows, client));
}

// Numbers of places from which on a client is not below its share, and with which it is above.
using Share = std::pair<int64_t, int64_t>;
Share ShareOf(const FairOrder& order) {
  Client client;
  while (order.IsBelow(client)) ++client.places;
  const int64_t least = client.places;
  while (!order.IsAbove(client)) ++client.places;
  return {least, client.places};
}

TEST(FairOrderTest, SharesPlacesAmongThoseThatWantRows) {
  FairOrder order(64);
  EXPECT_EQ(ShareOf(order), Share(64, 65));
  Come(&order, "ann");
  EXPECT_EQ(ShareOf(order), Share(64, 65));
  Client* bob = Come(&order, "bob");
  EXPECT_EQ(Come(&order, "bob"), bob) << "a second sequence of it";
  EXPECT_EQ(ShareOf(order), Share(32, 33));
  Come(&order, "cleo");
  EXPECT_EQ(ShareOf(order), Share(21, 23)) << "one place is left over";
  order.Rest(bob);
  EXPECT_EQ(ShareOf(order), Share(21, 23)) << "its other sequence wants rows";
  order.Rest(bob);
  EXPECT_EQ(ShareOf(order), Share(32, 33));
}

TEST(FairOrderTest, EachHasAPlaceAmongMoreClientsThanPlaces) {
  FairOrder order(2);
  for (int i = 0; i < 5; ++i) Come(&order, std::to_string(i));
  EXPECT_EQ(ShareOf(order), Share(1, 2));
}

TEST(FairOrderTest, NobodySavesUpTurns) {
  FairOrder order(64);
  Client* ann = Come(&order, "ann");
  Client* bob = Come(&order, "bob");
  order.Rest(bob);
  Charge(&order, ann, 1000);
  order.Work(bob);
  EXPECT_EQ(bob->time, 1000);
  EXPECT_EQ(ann->time, 1000);
}

TEST(FairOrderTest, WhoWaitsForAPlaceIsNotMovedOn) {
  FairOrder order(64);
  Client* ann = Come(&order, "ann");
  Client* bob = Come(&order, "bob");
  Charge(&order, ann, 1000);
  EXPECT_EQ(Come(&order, "bob"), bob);
  EXPECT_EQ(bob->time, 0);
}

TEST(FairOrderTest, LeavingDoesNotWipeOutWhatWasServed) {
  FairOrder order(64);
  Client* ann = Come(&order, "ann");
  Client* bob = Come(&order, "bob");
  Charge(&order, ann, 1000);
  Charge(&order, bob, 10);
  Go(&order, ann);
  ann = Come(&order, "ann");
  EXPECT_EQ(ann->time, 1000);
  EXPECT_EQ(Come(&order, "new")->time, 505) << "half of all rows";
}

TEST(FairOrderTest, ForgivesWhatIsLongAgo) {
  FairOrder order(64);
  Client* ann = Come(&order, "ann");
  Client* bob = Come(&order, "bob");
  for (int i = 0; i < 1000; ++i) {
    Charge(&order, ann, 99);
    Charge(&order, bob, 1);
  }
  EXPECT_NEAR(ann->time - bob->time, 2 * FairOrder::kMostLag, 100);
}

TEST(FairOrderTest, ForgetsThoseWhoseTimeHasCome) {
  FairOrder order(64);
  Client* stays = Come(&order, "stays");
  for (int i = 0; i < 100'000; ++i) {
    Client* client = Come(&order, std::to_string(i));
    order.Charge({stays, client});
    Go(&order, client);
    ASSERT_LE(order.clients(), 70);
  }
  EXPECT_EQ(stays->sequences, 1);
}

TEST(FairOrderTest, RemembersNotTooManyThoughNobodyElseIsServed) {
  FairOrder order(64);
  Come(&order, "waits");
  for (int i = 0; i < 20'000; ++i) {
    Client* client = Come(&order, std::to_string(i));
    order.Charge({client, client});
    Go(&order, client);
    ASSERT_LE(order.clients(), 3000);
  }
}

// Rows given to the lowest time, one client a step: those with work all the time get equal numbers,
// others at most as many.
TEST(FairOrderTest, GivesEqualNumbersOfRowsOverRandomComingsAndGoings) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    FairOrder order(64);
    std::vector<Client*> always, now_and_then;
    for (int i = 0; i < 3; ++i) always.push_back(Come(&order, "always" + std::to_string(i)));
    for (int i = 0; i < 3; ++i) now_and_then.push_back(order.Join(std::to_string(i)));
    std::map<Client*, int64_t> rows;
    for (int step = 0; step < 10'000; ++step) {
      for (Client* client : now_and_then) {
        if (random() % 20 != 0) continue;
        client->working == 0 ? order.Work(client) : order.Rest(client);
      }
      std::vector<Client*> working = always;
      for (Client* client : now_and_then) {
        if (client->working > 0) working.push_back(client);
      }
      ASSERT_EQ(order.working(), static_cast<int64_t>(working.size()));
      Client* next = *std::min_element(working.begin(), working.end(),
                                       [](Client* a, Client* b) { return a->time < b->time; });
      const auto most = static_cast<int64_t>(1 + random() % 50);
      Charge(&order, next, most);
      rows[next] += most;
    }
    for (Client* client : always) ASSERT_NEAR(rows[client], rows[always[0]], 50);
    for (Client* client : now_and_then) ASSERT_LE(rows[client], rows[always[0]] + 50);
  }
}

}  // namespace
}  // namespace athanor
