#include "clients/cpp/inputs/tls_files.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::HasSubstr;

// Makes keys and certificates with the openssl of the machine.
class TlsFilesTest : public testing::Test {
 protected:
  static std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }
  static void OpenSsl(const std::string& command) {
    ASSERT_EQ(std::system(absl::StrCat("openssl ", command, " 2>/dev/null").c_str()), 0) << command;
  }
  static void MakePair(const std::string& name, int days = 1) {
    OpenSsl(absl::StrCat(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=", name, " -days ",
        days, " -keyout ", PathOf(name + ".key"), " -out ", PathOf(name + ".pem")));
  }
  static TlsFiles FilesOf(const std::string& cert, const std::string& key) {
    return {PathOf("a.pem"), PathOf(cert), PathOf(key)};
  }
  static std::string Error(const TlsFiles& files) {
    ClientOptions options;
    return std::string(ReadTls(files, &options).message());
  }
};

TEST_F(TlsFilesTest, AreRead) {
  MakePair("a");
  ClientOptions options;
  ASSERT_TRUE(ReadTls({}, &options).ok());
  EXPECT_FALSE(options.tls);
  ASSERT_TRUE(ReadTls({.ca = PathOf("a.pem")}, &options).ok());
  EXPECT_TRUE(options.tls);
  EXPECT_EQ(options.certificate, "");
  ASSERT_TRUE(ReadTls(FilesOf("a.pem", "a.key"), &options).ok());
  EXPECT_THAT(options.certificate, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_THAT(options.key, HasSubstr("PRIVATE KEY"));
  EXPECT_EQ(options.certificate, options.root_certificates);
}

TEST_F(TlsFilesTest, WhatIsWrongIsNamed) {
  MakePair("a");
  MakePair("b");
  EXPECT_EQ(Error({.ca = PathOf("a.pem"), .cert = PathOf("a.pem")}),
            "--tls_cert and --tls_key are given together");
  EXPECT_THAT(Error({.cert = PathOf("a.pem"), .key = PathOf("a.key")}),
              HasSubstr("--tls_cert needs --tls_ca"));
  EXPECT_THAT(Error(FilesOf("none.pem", "a.key")), HasSubstr("none.pem"));
  EXPECT_THAT(Error(FilesOf("a.key", "a.key")), HasSubstr("a.key: holds no certificate (PEM)"));
  EXPECT_THAT(Error(FilesOf("a.pem", "a.pem")), HasSubstr("a.pem: holds no private key (PEM)"));
  EXPECT_THAT(Error(FilesOf("a.pem", "b.key")), HasSubstr("b.key: is not the key of the"));
  OpenSsl(absl::StrCat("ec -aes256 -passout pass:x -in ", PathOf("a.key"), " -out ",
                       PathOf("locked.key")));
  EXPECT_THAT(Error(FilesOf("a.pem", "locked.key")), HasSubstr("locked.key: is encrypted"));
}

}  // namespace
}  // namespace athanor::client
