#include "clients/cpp/text/error_text.h"

#include <string>

#include "absl/strings/cord.h"
#include "clients/cpp/client/client.h"
#include "clients/cpp/client/retry_after.h"
#include "gtest/gtest.h"
#include "proto/google/rpc/retry_details.pb.h"

namespace athanor::client {
namespace {

const CallScene& Scene() {
  static const auto* const scene =
      new CallScene{"host:1",
                    0.5,
                    {"--budget", "--dim", "--batch_dim", "--disable_rules", "--tokens", "--top_p"}};
  return *scene;
}

std::string Refused(const std::string& message) {
  return ErrorText(absl::InvalidArgumentError(message), Scene());
}

TEST(ErrorText, AServerThatIsNotThereIsNamed) {
  EXPECT_EQ(ErrorText(absl::UnavailableError("failed to connect to all addresses; last error: "
                                             "UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to "
                                             "remote host: Connection refused"),
                      Scene()),
            "no server answers at host:1 (Connection refused); start one with athanord, or say "
            "where it is with --address");
  EXPECT_EQ(ErrorText(absl::UnavailableError("DNS resolution failed for host:1: ..."), Scene()),
            "the host of --address host:1 is not known");
  EXPECT_EQ(ErrorText(absl::UnavailableError("the server is draining"), Scene()),
            "the server is draining");
}

TEST(ErrorText, ACertificateThatIsNotTrustedIsNamed) {
  CallScene scene = Scene();
  scene.certificate = true;
  EXPECT_EQ(ErrorText(absl::UnavailableError("Socket closed"), scene),
            "the server at host:1 ended the connection (Socket closed): it may not trust "
            "--tls_cert, whose authority must be in its --tls_client_ca");
  EXPECT_EQ(ErrorText(absl::UnavailableError("Ssl handshake failed"), scene),
            "no secure connection to host:1: the server has another certificate than --tls_ca, or "
            "no TLS, or does not trust --tls_cert (Ssl handshake failed)");
}

TEST(ErrorText, WhenToComeAgainIsSaid) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(250'000'000);
  google::rpc::Status details;
  details.add_details()->PackFrom(retry);
  absl::Status full = absl::ResourceExhaustedError("m: 256 requests wait already");
  NoteRetryAfter(details.SerializeAsString(), &full);
  EXPECT_EQ(ErrorText(full, Scene()),
            "m: 256 requests wait already (the server says: come again in 250ms)");
}

TEST(ErrorText, OnlyTheClientsOwnDeadlineNamesTheOption) {
  EXPECT_EQ(ErrorText(absl::DeadlineExceededError("Deadline Exceeded"), Scene()),
            "no answer from host:1 within --timeout 0.5 seconds");
  EXPECT_EQ(ErrorText(absl::DeadlineExceededError("waited 2 s in the queue"), Scene()),
            "waited 2 s in the queue");
}

TEST(ErrorText, FieldsAreTheOptionsThatWereTyped) {
  EXPECT_EQ(Refused("header.search_budget: \"x\" must be a time"),
            "--budget: \"x\" must be a time");
  EXPECT_EQ(Refused("search_budget: no"), "--budget: no");
  EXPECT_EQ(Refused("header.batch_dim: \"z\" is no dim"), "--batch_dim: \"z\" is no dim");
  EXPECT_EQ(Refused("header.dims: dim z"), "--dim: dim z");
  EXPECT_EQ(Refused("header.disable_rules[2]: no"), "--disable_rules[2]: no");
  EXPECT_EQ(Refused("header.decoder.tokens: 0"), "--tokens: 0");
  EXPECT_EQ(Refused("sampling.top_p: 2 is no probability"), "--top_p: 2 is no probability");
  EXPECT_EQ(Refused("header.graph: empty; the model comes in it, or first of header.files"),
            "the file: empty; the model comes in it, or first of files");
}

TEST(ErrorText, ARefusedCallHasItsId) {
  absl::Status status = absl::NotFoundError("no model \"m\"");
  status.SetPayload(kRequestIdKey, absl::Cord("r-1"));
  EXPECT_EQ(ErrorText(status, Scene()), "no model \"m\" (request r-1)");
}

TEST(ErrorText, OtherMessagesStayAsTheyAre) {
  EXPECT_EQ(Refused("model \"x\" does not exist"), "model \"x\" does not exist");
  EXPECT_EQ(Refused("budget of the server"), "budget of the server");
  EXPECT_EQ(Refused("top_k: not an option of this command"),
            "top_k: not an option of this command");
  EXPECT_EQ(ErrorText(absl::UnauthenticatedError("unknown token"), Scene()),
            "the server wants to know who calls; give --token_file or ATHANOR_TOKEN, or "
            "--tls_cert (unknown token)");
  EXPECT_EQ(ErrorText(absl::InternalError(""), Scene()),
            "the call failed without a reason (internal)");
  EXPECT_EQ(ErrorText(absl::UnimplementedError(""), Scene()),
            "the server at host:1 does not know this call; it is older than this tool, or no "
            "Athanor");
}

}  // namespace
}  // namespace athanor::client
