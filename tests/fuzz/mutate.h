// Changes messages but keeps their structure mostly valid, so that they get past the parser and
// deep into the code under test.
//
//   Mutator mutator(/*seed=*/7);
//   mutator.Mutate(donor_graphs, &graph);     // one to a few changes, found by reflection
//   mutator.MutateBytes(&serialised);         // and some on the wire
//
// Equal seeds and calls make equal changes.
#ifndef ATHANOR_TESTS_FUZZ_MUTATE_H_
#define ATHANOR_TESTS_FUZZ_MUTATE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace athanor {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Changes `message`; may copy parts of `donors` (messages of the same type) into it.
  void Mutate(absl::Span<const google::protobuf::Message* const> donors,
              google::protobuf::Message* message);
  void MutateBytes(std::string* bytes);

  // Returns a number uniform in [0, n). REQUIRES: n > 0.
  uint64_t Below(uint64_t n) { return random_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  int64_t AnyInteger(int64_t old);
  double AnyDouble(double old);

 private:
  using Message = google::protobuf::Message;
  using Field = google::protobuf::FieldDescriptor;

  void MutateOnce(absl::Span<const Message* const> donors, Message* root);
  void MutateRepeated(const Field& field, absl::Span<const Message* const> donors,
                      Message* message);
  void AddElement(const Field& field, absl::Span<const Message* const> donors, Message* message);
  void MutateSingle(const Field& field, absl::Span<const Message* const> donors, Message* message);
  void SetScalar(const Field& field, int index, Message* message);
  std::string AnyString(const Field& field, const std::string& old);

  std::mt19937_64 random_;
  std::vector<std::string> strings_;  // strings of the message and its donors
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_MUTATE_H_
