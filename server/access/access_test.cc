#include "server/access/access.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"

namespace athanor {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class AccessTest : public testing::Test {
 protected:
  // Replaces the file at once, as its users do.
  void Write(const std::string& text) {
    std::ofstream(file_ + ".new") << text;
    std::filesystem::rename(file_ + ".new", file_);
  }
  static std::string IdentityText(const std::string& name, const std::string& rest) {
    return absl::StrCat("[", name, "]\ntoken = ", TokenDigestText(name + "-token"), "\n", rest,
                        "\n");
  }
  void Open(const std::string& text) {
    Write(text);
    auto opened = Access::Open(Access::Source::kIdentities, file_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    access_ = *std::move(opened);
  }
  absl::StatusOr<Caller> Admit(Roles wanted, absl::string_view what, const std::string& token,
                               const PeerCertificate* certificate = nullptr) {
    Caller caller;
    RETURN_IF_ERROR(access_->Admit(wanted, what, token, certificate, &caller));
    return caller;
  }
  absl::Status Try(Roles wanted, const std::string& token) {
    return Admit(wanted, "the call", token).status();
  }

  const std::string file_ = testing::TempDir() + "/auth.conf";
  std::unique_ptr<Access> access_;
};

TEST_F(AccessTest, WithoutAFileEverybodyMay) {
  const Access access;
  EXPECT_TRUE(access.open());
  Caller caller;
  ASSERT_TRUE(access.Admit({Role::kAdmin}, "Verify", "", nullptr, &caller).ok());
  EXPECT_EQ(caller.name(), "");
  EXPECT_TRUE(caller.MayUse("anything").ok());
  EXPECT_EQ(caller.max_models(), 0);
}

TEST_F(AccessTest, NobodyMayDoNothing) {
  const Caller nobody;
  EXPECT_TRUE(absl::IsUnauthenticated(nobody.MayUse("m")));
  EXPECT_FALSE(nobody.Sees("m"));
  EXPECT_TRUE(Caller::Anybody().Sees("m"));
}

TEST_F(AccessTest, RolesAdmit) {
  Open(IdentityText("i", "roles = infer\nmodels = a/*") +
       IdentityText("u", "roles = upload\nmodels = *") + IdentityText("m", "roles = monitor") +
       IdentityText("x", "roles = admin"));
  for (const Role wanted : kAllRoles) {
    EXPECT_TRUE(absl::IsUnauthenticated(Try({wanted}, "")));
    EXPECT_TRUE(absl::IsUnauthenticated(Try({wanted}, "wrong")));
    for (const auto& [token, has] :
         {std::pair("i-token", Role::kInfer), std::pair("u-token", Role::kUpload),
          std::pair("m-token", Role::kMonitor), std::pair("x-token", Role::kAdmin)}) {
      const absl::Status tried = Try({wanted}, token);
      const bool may = has == wanted || has == Role::kAdmin;
      EXPECT_EQ(tried.code(), may ? absl::StatusCode::kOk : absl::StatusCode::kPermissionDenied);
    }
  }
  EXPECT_TRUE(Try({Role::kInfer, Role::kUpload}, "i-token").ok());
  EXPECT_THAT(std::string(Try({Role::kUpload}, "i-token").message()),
              HasSubstr("i has the roles infer; the call needs one of upload, admin"));
}

TEST_F(AccessTest, PublicCallsAskNobody) {
  Open(IdentityText("i", "roles = infer\nmodels = a/*\nconcurrent_calls = 1"));
  for (const char* token : {"", "wrong"}) {
    const auto caller = Admit({}, "ServerLive", token);
    ASSERT_TRUE(caller.ok());
    EXPECT_EQ(caller->name(), "");
    EXPECT_TRUE(absl::IsUnauthenticated(caller->MayUse("a/m")));
  }
  const auto first = Admit({}, "ServerLive", "i-token");
  const auto second = Admit({}, "ServerLive", "i-token");
  EXPECT_TRUE(second.ok()) << "they count against no quota";
  EXPECT_TRUE(second->Sees("a/m"));
}

// The log's lines of what an identity may not do are its own, not all strangers' together.
TEST_F(AccessTest, RefusedCallersAreKnown) {
  Open(IdentityText("i", "roles = infer\nmodels = a/*\nconcurrent_calls = 1"));
  Caller role, first, quota, nobody;
  EXPECT_TRUE(
      absl::IsPermissionDenied(access_->Admit({Role::kUpload}, "u", "i-token", nullptr, &role)));
  EXPECT_EQ(role.name(), "i");
  EXPECT_TRUE(access_->Admit({Role::kInfer}, "a", "i-token", nullptr, &first).ok())
      << "a refused call is not counted";
  EXPECT_TRUE(
      absl::IsResourceExhausted(access_->Admit({Role::kInfer}, "a", "i-token", nullptr, &quota)));
  EXPECT_EQ(quota.name(), "i");
  quota.End();
  EXPECT_TRUE(absl::IsResourceExhausted(Try({Role::kInfer}, "i-token"))) << "nor counted off";
  EXPECT_TRUE(
      absl::IsUnauthenticated(access_->Admit({Role::kInfer}, "a", "wrong", nullptr, &nobody)));
  EXPECT_EQ(nobody.name(), "");
}

TEST_F(AccessTest, ModelsByPattern) {
  Open(IdentityText("i", "roles = infer\nmodels = a/*, b") + IdentityText("x", "roles = admin"));
  const auto caller = Admit({Role::kInfer}, "ModelInfer", "i-token");
  ASSERT_TRUE(caller.ok());
  EXPECT_TRUE(caller->MayUse("a/m").ok());
  EXPECT_TRUE(caller->MayUse("b").ok());
  const absl::Status other = caller->MayUse("c\n");
  EXPECT_TRUE(absl::IsPermissionDenied(other));
  EXPECT_THAT(std::string(other.message()), HasSubstr("i may not use model \"c\\n\", only a/*, b"));
  EXPECT_TRUE(Admit({Role::kInfer}, "ModelInfer", "x-token")->MayUse("any").ok());
}

// Returns a certificate with these names, valid for an hour around now.
PeerCertificate Certificate(std::vector<std::string> names) {
  const absl::Time now = absl::Now();
  return {std::move(names), now - absl::Minutes(30), now + absl::Minutes(30)};
}

class CertificatesTest : public AccessTest {
 protected:
  void SetUp() override {
    Write(IdentityText("both", "roles = infer\nmodels = a/*\ncertificate = dns:both.test") +
          "[alone]\ncertificate = uri:spiffe://test/alone\ncertificate = dns:Alone.Test\n"
          "roles = admin\n");
    access_ = Access::Open(Access::Source::kIdentities, file_, /*certificates=*/true).value();
  }
  absl::StatusOr<Caller> Show(const PeerCertificate& certificate, const std::string& token = "") {
    return Admit({Role::kInfer}, "the call", token, &certificate);
  }
};

TEST_F(CertificatesTest, NameTheirIdentity) {
  EXPECT_EQ(Show(Certificate({"sha256:00", "dns:both.test"}))->name(), "both");
  EXPECT_EQ(Show(Certificate({"uri:spiffe://test/alone", "dns:alone.test"}))->name(), "alone");
  const absl::Status unknown = Show(Certificate({"sha256:00", "subject:CN=x\n"})).status();
  EXPECT_TRUE(absl::IsUnauthenticated(unknown));
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("(sha256:00, subject:CN=x\\n) is that of none of this server's"));
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  const absl::Status two = Show(Certificate({"dns:both.test", "dns:alone.test"})).status();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("identity=both other=alone"));
  EXPECT_TRUE(absl::IsUnauthenticated(two));
  EXPECT_THAT(std::string(two.message()), EndsWith(") is that of several identities"));
  EXPECT_THAT(std::string(Try({Role::kInfer}, "").message()),
              HasSubstr("Bearer TOKEN, or show a client certificate"));
  const PeerCertificate both = Certificate({"dns:both.test"});
  EXPECT_TRUE(absl::IsPermissionDenied(Show(both)->MayUse("b/m")));
  EXPECT_TRUE(absl::IsPermissionDenied(Admit({Role::kUpload}, "u", "", &both).status()));
}

// A token says who calls, also where a certificate would say somebody else.
TEST_F(CertificatesTest, TokensComeFirst) {
  EXPECT_EQ(Show(Certificate({"dns:alone.test"}), "both-token")->name(), "both");
  EXPECT_TRUE(absl::IsUnauthenticated(Show(Certificate({"dns:alone.test"}), "wrong").status()));
  const PeerCertificate certificate = Certificate({"dns:alone.test"});
  EXPECT_EQ(Admit({}, "ServerLive", "", &certificate)->name(), "alone");
  EXPECT_EQ(Admit({}, "ServerLive", "wrong", &certificate)->name(), "");
}

// TLS checks times when the connection begins, which may be long ago.
TEST_F(CertificatesTest, TimesAreCheckedWithEachCall) {
  PeerCertificate certificate = Certificate({"dns:alone.test"});
  certificate.until = absl::Now() - absl::Seconds(1);
  EXPECT_THAT(std::string(Show(certificate).status().message()),
              HasSubstr("the client certificate of alone has expired, on 20"));
  certificate = Certificate({"dns:alone.test"});
  certificate.from = absl::Now() + absl::Minutes(1);
  EXPECT_THAT(std::string(Show(certificate).status().message()),
              HasSubstr("of alone is not valid yet, until 20"));
}

TEST_F(CertificatesTest, AreRevokedByTheFile) {
  const PeerCertificate certificate = Certificate({"dns:alone.test"});
  auto running = Show(certificate);
  ASSERT_TRUE(running.ok());
  Write(IdentityText("alone", "roles = admin"));
  access_->ReloadIfChanged();
  EXPECT_TRUE(absl::IsUnauthenticated(Show(certificate).status()));
  EXPECT_TRUE(running->MayUse("m").ok()) << "calls that run go on";
}

TEST_F(CertificatesTest, NeedTheServerToAsk) {
  const auto opened = Access::Open(Access::Source::kIdentities, file_);
  EXPECT_TRUE(absl::IsInvalidArgument(opened.status()));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("give --tls_client_ca"));
}

// Whoever reads half of a file, or one that is written in place, goes on with what was read.
TEST_F(AccessTest, HalfWrittenFilesAreRefusedWhole) {
  InitLog("error", "text");
  const std::string whole = IdentityText("i", "roles = infer\nmodels = *") +
                            IdentityText("last", "roles = infer\nmodels = *");
  Open(whole);
  for (size_t bytes = 0; bytes < whole.size() - 1; ++bytes) {
    Write(whole.substr(0, bytes));
    const absl::Status read = access_->Reload();
    // Some halves are whole files: of the first identity alone, or with a shorter pattern.
    EXPECT_TRUE(read.ok() || absl::IsInvalidArgument(read)) << bytes;
    EXPECT_TRUE(Try({Role::kInfer}, "i-token").ok()) << bytes;
  }
}

// A limit of calls at once holds whatever the threads and however often the file is read.
TEST_F(AccessTest, QuotasHoldUnderThreads) {
  const std::string text = IdentityText("i", "roles = infer\nmodels = *\nconcurrent_calls = 3");
  Open(text);
  std::atomic<int> inside = 0, most = 0, admitted = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        auto caller = Admit({Role::kInfer}, "a", "i-token");
        if (!caller.ok()) continue;
        ++admitted;
        const int now = ++inside;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        --inside;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    Write(text + absl::StrCat("# ", i, "\n"));
    access_->ReloadIfChanged();
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(most, 3);
  EXPECT_GT(admitted, 0);
  std::vector<absl::StatusOr<Caller>> held;
  for (int i = 0; i < 3; ++i) held.push_back(Admit({Role::kInfer}, "a", "i-token"));
  for (const auto& each : held) EXPECT_TRUE(each.ok()) << "every call that ended is counted off";
  EXPECT_TRUE(absl::IsResourceExhausted(Try({Role::kInfer}, "i-token")));
}

TEST_F(AccessTest, CallersCountAsLongAsTheyAre) {
  Open(IdentityText("i", "roles = infer\nmodels = *\nconcurrent_calls = 1"));
  {
    auto first = Admit({Role::kInfer}, "a", "i-token");
    ASSERT_TRUE(first.ok());
    Caller kept = *std::move(first);
    EXPECT_TRUE(absl::IsResourceExhausted(Try({Role::kInfer}, "i-token")));
    Caller moved = std::move(kept);
    EXPECT_TRUE(absl::IsResourceExhausted(Try({Role::kInfer}, "i-token")));
    moved = Caller();
  }
  auto ended = Admit({Role::kInfer}, "a", "i-token");
  ASSERT_TRUE(ended.ok());
  ended->End();
  ended->End();
  EXPECT_EQ(ended->name(), "i");
  EXPECT_TRUE(Try({Role::kInfer}, "i-token").ok());
}

TEST_F(AccessTest, ReadsTheFileWhenItChanges) {
  InitLog("info", "text");
  Open(IdentityText("i", "roles = infer\nmodels = *\nconcurrent_calls = 1"));
  auto running = Admit({Role::kInfer}, "a", "i-token");
  ASSERT_TRUE(running.ok());
  Write(IdentityText("i", "roles = infer\nmodels = none\nconcurrent_calls = 1") +
        IdentityText("j", "roles = infer\nmodels = *"));
  EXPECT_TRUE(absl::IsUnauthenticated(Try({Role::kInfer}, "j-token")));
  access_->ReloadIfChanged();
  EXPECT_TRUE(Try({Role::kInfer}, "j-token").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Try({Role::kInfer}, "i-token"))) << "counts go on";
  EXPECT_TRUE(running->MayUse("m").ok()) << "calls that run go on";
  // A broken file keeps what was read, and says so once.
  Write("[j]\nroles = what");
  testing::internal::CaptureStderr();
  access_->ReloadIfChanged();
  access_->ReloadIfChanged();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("identities kept"));
  EXPECT_THAT(log, HasSubstr("unknown role"));
  EXPECT_EQ(log.find("identities kept"), log.rfind("identities kept"));
  EXPECT_TRUE(Try({Role::kInfer}, "j-token").ok());
  // So does one that is gone.
  std::filesystem::remove(file_);
  access_->ReloadIfChanged();
  EXPECT_TRUE(Try({Role::kInfer}, "j-token").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(access_->Reload()));
  // Tokens that are no more in it are revoked.
  Write(IdentityText("k", "roles = infer\nmodels = *"));
  access_->ReloadIfChanged();
  EXPECT_TRUE(absl::IsUnauthenticated(Try({Role::kInfer}, "j-token")));
  EXPECT_TRUE(Try({Role::kInfer}, "k-token").ok());
}

TEST_F(AccessTest, CallsWhileTheFileIsRead) {
  const std::string one = IdentityText("i", "roles = infer\nmodels = *");
  Open(one);
  std::atomic<bool> stop = false;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      while (!stop) EXPECT_TRUE(Try({Role::kInfer}, "i-token").ok());
    });
  }
  for (int i = 0; i < 50; ++i) {
    Write(one + IdentityText(absl::StrCat("n", i), "roles = admin"));
    access_->ReloadIfChanged();
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_F(AccessTest, OpenSaysWhatIsWrong) {
  const auto missing = Access::Open(Access::Source::kIdentities, "/nowhere/auth.conf");
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("--auth=/nowhere/auth.conf: cannot be read"));
  const auto folder = Access::Open(Access::Source::kIdentities, testing::TempDir());
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("is not a regular file"));
  Write("a short");
  const auto keys = Access::Open(Access::Source::kKeys, file_);
  EXPECT_THAT(std::string(keys.status().message()), HasSubstr("--openai_keys="));
}

}  // namespace
}  // namespace athanor
