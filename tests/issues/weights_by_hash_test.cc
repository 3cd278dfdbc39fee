// A graph could name other users' weights by their hash, and a reply gave them back: knowing the
// name was as good as having the weights. MissingTensors told anybody which weights the server
// held.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "deploy/bazel/libs/possession.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Messages = std::vector<v1::UploadModelRequest>;

// Makes a model whose weight has the given hash and so many elements.
TestModel ModelNamed(const std::string& hash, size_t elements) {
  TestModel model = ScaleModel(std::vector<float>(elements));
  for (v1::GraphNode& node : *model.graph.mutable_nodes()) {
    if (!node.content_hash().empty()) node.set_content_hash(hash);
  }
  std::string bytes = std::move(model.tensors.begin()->second);
  model.tensors = {{hash, std::move(bytes)}};
  return model;
}

class WeightsByHashTest : public testing::Test {
 protected:
  // Makes an upload of the victim's graph that sends no bytes, changed by `change`.
  Messages WithoutBytes(const std::function<void(v1::UploadHeader*)>& change = nullptr) {
    Messages messages = UploadMessages("thief", victim_);
    messages = {messages.front(), messages.back()};
    messages[0].mutable_header()->clear_tensors();
    if (change) change(messages[0].mutable_header());
    return messages;
  }

  v1::MissingTensorsResponse Ask(const v1::MissingTensorsRequest& request) {
    grpc::ClientContext context;
    v1::MissingTensorsResponse reply;
    const grpc::Status status = test_.models->MissingTensors(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  std::string Nonce() { return Ask({}).nonce(); }

  static void AddProof(const std::string& hash, const std::string& proof,
                       v1::UploadHeader* header) {
    header->add_proofs()->set_hash(hash);
    header->mutable_proofs(header->proofs_size() - 1)->set_proof(proof);
  }

  // Makes the messages of a client that has the bytes.
  Messages Proved(const std::string& nonce) { return ProvedMessages("thief", victim_, nonce); }

  void Refused(const Messages& messages) {
    const grpc::Status status = test_.Send(messages);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), testing::HasSubstr(absl::BytesToHexString(hash_)));
    EXPECT_THAT(status.error_message(), testing::HasSubstr("send its bytes, or prove"));
    grpc::ClientContext context;
    v1::ListModelsRequest request;
    request.set_name("thief");
    v1::ListModelsResponse listed;
    EXPECT_TRUE(test_.models->ListModels(&context, request, &listed).ok());
    EXPECT_EQ(listed.models_size(), 0);
  }

  const TestModel victim_ = ScaleModel({1, 2, 3, 4});
  const std::string hash_ = victim_.tensors.begin()->first;
  const std::string bytes_ = victim_.tensors.begin()->second;
  TestServer test_;
};

TEST_F(WeightsByHashTest, TheHashAloneGetsNothing) {
  test_.Upload("victim", victim_);
  Refused(WithoutBytes());
  Refused(WithoutBytes([](v1::UploadHeader* header) { header->set_dry_run(true); }));
}

TEST_F(WeightsByHashTest, NeitherDoWrongProofs) {
  test_.Upload("victim", victim_);
  const std::string made_up(32, 'n');
  Refused(WithoutBytes([&](v1::UploadHeader* header) { header->set_nonce(Nonce()); }));
  for (const std::string& seal : {hash_, std::string(), std::string(32, '\0'), Sha256Of(hash_)}) {
    Refused(WithoutBytes([&](v1::UploadHeader* header) {
      header->set_nonce(Nonce());
      AddProof(hash_, PossessionProof(header->nonce(), hash_, seal), header);
    }));
  }
  // Proofs that are right except for the nonce, which the sender made up, or for the tensor.
  Refused(Proved(made_up));
  Refused(Proved(""));
  Refused(WithoutBytes([&](v1::UploadHeader* header) {
    header->set_nonce(Nonce());
    const std::string other(32, 'h');
    AddProof(other, PossessionProof(header->nonce(), other, SealOf(bytes_)), header);
  }));
  // Proofs that begin like the right one.
  Refused(WithoutBytes([&](v1::UploadHeader* header) {
    header->set_nonce(Nonce());
    AddProof(hash_, PossessionProof(header->nonce(), hash_, SealOf(bytes_)).substr(0, 31), header);
  }));
}

TEST_F(WeightsByHashTest, AProofOfAnotherCallIsWorthNothing) {
  test_.Upload("victim", victim_);
  const Messages owners = ProvedMessages("owner", victim_, Nonce());
  ASSERT_TRUE(test_.Send(owners).ok());
  Messages replayed = WithoutBytes();
  *replayed[0].mutable_header()->mutable_proofs() = owners[0].header().proofs();
  Refused(replayed);
  replayed[0].mutable_header()->set_nonce(Nonce());
  Refused(replayed);
  replayed[0].mutable_header()->set_nonce(owners[0].header().nonce());
  Refused(replayed);
}

TEST_F(WeightsByHashTest, ANonceIsGoodForATimeAndUntilTheNextStart) {
  test_.Upload("victim", victim_);
  std::string nonce = Nonce();
  Challenges& challenges = test_.server->core().registry().challenges();
  EXPECT_FALSE(challenges.IsGood(nonce, Challenges::Clock::now() + Challenges::kLifetime));
  Refused(Proved(nonce));
  nonce = Nonce();
  test_.Restart();
  Refused(Proved(nonce));
  EXPECT_TRUE(test_.Send(Proved(Nonce())).ok());
}

TEST_F(WeightsByHashTest, WhoHasTheBytesNeedNotSendThem) {
  const v1::UploadModelResponse first = test_.Upload("victim", victim_);
  v1::MissingTensorsRequest ask;
  ask.add_hashes(hash_);
  v1::MissingTensorsResponse answer = Ask(ask);
  EXPECT_THAT(answer.hashes(), ElementsAre(hash_));
  ask.set_nonce(answer.nonce());
  ask.add_proofs()->set_hash(hash_);
  ask.mutable_proofs(0)->set_proof(PossessionProof(ask.nonce(), hash_, SealOf(bytes_)));
  for (int i = 0; i < 2; ++i) {  // asking does not use up the nonce
    answer = Ask(ask);
    EXPECT_THAT(answer.hashes(), IsEmpty());
    EXPECT_EQ(answer.nonce(), "");
  }
  v1::UploadModelResponse reply;
  ASSERT_TRUE(test_.Send(Proved(ask.nonce()), &reply).ok());
  EXPECT_THAT(Ask(ask).hashes(), ElementsAre(hash_)) << "the upload has";
  test_.WaitForJob(reply.compile_job_id());
  EXPECT_THAT(test_.Infer("thief", {1, 1, 1, 1}), ElementsAre(1, 2, 3, 4));
}

// A tensor file from before the server stored seals.
TEST_F(WeightsByHashTest, TensorsOfAnOlderServerCanBeProved) {
  test_.Upload("victim", victim_);
  RegistryDb& db = test_.server->core().registry().db();
  ASSERT_TRUE(db.Execute("DELETE FROM tensor_seals").ok());
  for (int start = 0; start < 2; ++start) {
    test_.Restart();
    EXPECT_TRUE(test_.Send(Proved(Nonce())).ok()) << start;
  }
  const auto rows = test_.server->core().registry().db().ReadVersions();
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const VersionRow& row : *rows) EXPECT_EQ(row.tensors[0].seal, SealOf(bytes_));
}

// A wrong seal in the file used to stay, even when its tensor was read again.
TEST_F(WeightsByHashTest, AWrongSealIsReplacedByThatOfTheBytes) {
  test_.Upload("victim", victim_);
  RegistryDb& db = test_.server->core().registry().db();
  ASSERT_TRUE(db.Execute("UPDATE tensor_seals SET seal=zeroblob(32)").ok());
  test_.Restart();
  Refused(Proved(Nonce()));
  for (const bool verify : {true, false}) {
    test_.server.reset();
    test_.options.verify_weights = verify;
    test_.Restart();
    EXPECT_TRUE(test_.Send(Proved(Nonce())).ok()) << verify;
  }
}

// A client that has only the hash gets, for every request, the replies of a server without the
// tensor.
TEST_F(WeightsByHashTest, NothingShowsWhetherItIsHeld) {
  ServerOptions options;
  options.memory_limit = 1 << 20;
  options.max_chunk_bytes = 1 << 10;
  TestServer with(options), without(options);
  with.Upload("victim", victim_);
  const auto same = [&](const Messages& messages) {
    const grpc::Status held = with.Send(messages), absent = without.Send(messages);
    EXPECT_FALSE(held.ok());
    EXPECT_EQ(held.error_code(), absent.error_code());
    // The bytes in use may differ by what the victim's model takes.
    EXPECT_EQ(held.error_message().substr(0, 100), absent.error_message().substr(0, 100));
  };
  const std::string nonce(32, 'n');
  same(WithoutBytes());
  same(Proved(nonce));
  same(WithoutBytes([](v1::UploadHeader* header) { header->set_dry_run(true); }));
  // Announces the tensor with another size, without bytes or proof.
  Messages wrong_size = UploadMessages("thief", ModelNamed(hash_, 5));
  wrong_size = {wrong_size.front(), wrong_size.back()};
  wrong_size[0].mutable_header()->clear_tensors();
  same(wrong_size);
  // Announces more than there is memory for, and sends other bytes.
  same({UploadMessages("thief", ModelNamed(hash_, 1 << 19)).front()});
  Messages others = UploadMessages("thief", victim_, 1 << 10);
  others[1].mutable_chunk()->mutable_data()->front() ^= 1;
  same(others);
  for (TestServer* server : {&with, &without}) {
    grpc::ClientContext context;
    v1::MissingTensorsRequest ask;
    ask.add_hashes(hash_);
    ask.set_nonce(nonce);
    ask.add_proofs()->set_hash(hash_);
    v1::MissingTensorsResponse answer;
    ASSERT_TRUE(server->models->MissingTensors(&context, ask, &answer).ok());
    EXPECT_THAT(answer.hashes(), ElementsAre(hash_));
  }
}

}  // namespace
}  // namespace athanor
