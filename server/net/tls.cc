#include "server/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <atomic>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* t) const { kFree(t); }
};
using OwnedCert = std::unique_ptr<X509, Freed<X509, X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using OwnedBio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;

constexpr absl::string_view kCert = "--tls_cert", kKey = "--tls_key", kClientCa = "--tls_client_ca";

template <typename... T>
absl::Status Wrong(absl::string_view flag, absl::string_view file, const T&... what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": '", file, "' ", what...));
}

absl::StatusOr<std::string> ReadFile(absl::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // Opening a directory succeeds too; reading it fails.
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": cannot read '", path, "'; give a PEM file that is not empty"));
  }
  std::string pem = std::move(text).str();
  if (pem.size() > size_t{std::numeric_limits<int>::max()}) {
    return Wrong(flag, path, "has ", pem.size(), " bytes; give a PEM file");
  }
  return pem;
}

OwnedBio BioOf(const std::string& pem) {
  return OwnedBio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Returns why OpenSSL's latest call failed.
std::string LatestReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "unknown" : reason;
}

// OpenSSL calls it for every encrypted key: notes that and gives no passphrase.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

std::string TimeText(const ASN1_TIME* time) {
  std::tm t{};
  if (ASN1_TIME_to_tm(time, &t) != 1) return "an unknown time";
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", t.tm_year + 1900, t.tm_mon + 1,
                         t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
}

std::string NowText() {
  const std::unique_ptr<ASN1_TIME, Freed<ASN1_TIME, ASN1_TIME_free>> now(
      ASN1_TIME_set(nullptr, std::time(nullptr)));
  return TimeText(now.get());
}

// Parses all certificates of a file, in their order.
absl::StatusOr<std::vector<OwnedCert>> ReadCertificates(absl::string_view flag,
                                                        const std::string& pem,
                                                        const std::string& file) {
  const OwnedBio bio = BioOf(pem);
  std::vector<OwnedCert> chain;
  bool asked = false;
  while (OwnedCert cert{PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, &asked)}) {
    chain.push_back(std::move(cert));
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (chain.empty()) return Wrong(flag, file, "holds no certificate (PEM)");
  if (!at_end) {
    return Wrong(flag, file, "is damaged after its certificate ", chain.size(), ": ",
                 LatestReason());
  }
  ERR_clear_error();
  return chain;
}

absl::Status CheckTimes(const std::vector<OwnedCert>& chain, const std::string& file) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const ASN1_TIME* from = X509_get0_notBefore(chain[i].get());
    const ASN1_TIME* until = X509_get0_notAfter(chain[i].get());
    const bool early = X509_cmp_current_time(from) >= 0, late = X509_cmp_current_time(until) <= 0;
    if (!early && !late) continue;
    return Wrong(kCert, file,
                 chain.size() == 1 ? "" : absl::StrCat("(certificate ", i + 1, " of its chain) "),
                 late ? "has expired" : "is not valid yet", ": it is valid from ", TimeText(from),
                 " to ", TimeText(until), ", and it is ", NowText());
  }
  return absl::OkStatus();
}

std::string FirstToExpire(const std::vector<OwnedCert>& chain) {
  const ASN1_TIME* first = X509_get0_notAfter(chain[0].get());
  for (const OwnedCert& cert : chain) {
    const ASN1_TIME* until = X509_get0_notAfter(cert.get());
    if (ASN1_TIME_compare(until, first) < 0) first = until;
  }
  return TimeText(first);
}

absl::StatusOr<OwnedKey> ReadKey(const std::string& pem, const std::string& file) {
  const OwnedBio bio = BioOf(pem);
  bool asked = false;
  OwnedKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, &asked));
  if (key != nullptr) return key;
  if (asked) {
    return Wrong(kKey, file, "is encrypted; give a key without a passphrase (\"openssl pkey -in ",
                 file, " -out KEY\" makes one), readable by the server's user alone");
  }
  return Wrong(kKey, file, "holds no private key (PEM)");
}

absl::Status MakeContext(const std::vector<OwnedCert>& chain, EVP_PKEY* key,
                         const std::string& cert_file, const std::string& key_file,
                         TlsCertificate::Loaded* loaded) {
  loaded->context.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = loaded->context.get();
  if (context == nullptr) return absl::ResourceExhaustedError("--tls_cert: no memory for TLS");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_use_certificate(context, chain[0].get()) != 1) {
    return Wrong(kCert, cert_file, "cannot be used: ", LatestReason());
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) {
      return Wrong(kCert, cert_file, "(certificate ", i + 1,
                   " of its chain) cannot be used: ", LatestReason());
    }
  }
  if (X509_check_private_key(chain[0].get(), key) != 1) {
    return Wrong(kKey, key_file, "is not the key of the certificate in '", cert_file,
                 "' (--tls_cert)");
  }
  if (SSL_CTX_use_PrivateKey(context, key) != 1) {
    return Wrong(kKey, key_file, "cannot be used: ", LatestReason());
  }
  return absl::OkStatus();
}

// Has the context ask clients for certificates.
absl::Status AskClients(const std::vector<OwnedCert>& authorities, const std::string& file,
                        SSL_CTX* context) {
  bool valid = false;
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const OwnedCert& cert : authorities) {
    if (X509_STORE_add_cert(store, cert.get()) != 1 ||
        SSL_CTX_add_client_CA(context, cert.get()) != 1) {
      return Wrong(kClientCa, file, "cannot be used: ", LatestReason());
    }
    valid = valid || (X509_cmp_current_time(X509_get0_notBefore(cert.get())) < 0 &&
                      X509_cmp_current_time(X509_get0_notAfter(cert.get())) > 0);
  }
  if (!valid) {
    return Wrong(kClientCa, file, "holds no certificate that is valid now, at ", NowText(),
                 ", so no client's could be");
  }
  // A session that is resumed shows the certificate of its first connection without those between
  // it and its authority, by which each call is judged: each connection shows them anew.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsCertificate::Loaded>> TlsCertificate::Read(
    const Files& files) {
  static std::atomic<int64_t> readings{0};
  auto loaded = std::make_shared<TlsCertificate::Loaded>();
  loaded->reading = ++readings;
  ASSIGN_OR_RETURN(loaded->chain, ReadFile(kCert, files.cert));
  ASSIGN_OR_RETURN(loaded->key, ReadFile(kKey, files.key));
  ERR_clear_error();
  ASSIGN_OR_RETURN(std::vector<OwnedCert> chain,
                   ReadCertificates(kCert, loaded->chain, files.cert));
  ASSIGN_OR_RETURN(OwnedKey key, ReadKey(loaded->key, files.key));
  RETURN_IF_ERROR(MakeContext(chain, key.get(), files.cert, files.key, loaded.get()));
  RETURN_IF_ERROR(CheckTimes(chain, files.cert));
  loaded->valid_until = FirstToExpire(chain);
  if (files.client_ca.empty()) return loaded;
  ASSIGN_OR_RETURN(loaded->client_ca, ReadFile(kClientCa, files.client_ca));
  ASSIGN_OR_RETURN(std::vector<OwnedCert> authorities,
                   ReadCertificates(kClientCa, loaded->client_ca, files.client_ca));
  RETURN_IF_ERROR(AskClients(authorities, files.client_ca, loaded->context.get()));
  return loaded;
}

absl::StatusOr<std::shared_ptr<TlsCertificate>> TlsCertificate::Load(std::string cert_file,
                                                                     std::string key_file,
                                                                     std::string client_ca_file) {
  std::shared_ptr<TlsCertificate> tls(
      new TlsCertificate({std::move(cert_file), std::move(key_file), std::move(client_ca_file)}));
  RETURN_IF_ERROR(tls->Reload());
  return tls;
}

absl::Status TlsCertificate::Reload() {
  ASSIGN_OR_RETURN(std::shared_ptr<const Loaded> loaded, Read(files_));
  MutexLock lock(mu_);
  loaded_ = std::move(loaded);
  return absl::OkStatus();
}

bool TlsCertificate::Trusts(const PeerCertificate& certificate) const {
  const std::shared_ptr<const Loaded> now = Now();
  if (certificate.chain == nullptr) return false;
  const ShownChain& shown = *certificate.chain;
  if (shown.trusted_in == now->reading) return true;
  X509_STORE_CTX* check = X509_STORE_CTX_new();
  bool trusted = X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(now->context.get()),
                                     shown.certificate, shown.others) == 1;
  if (trusted) {
    X509_STORE_CTX_set_default(check, "ssl_client");
    // An authority need not be a root, as gRPC has it.
    X509_STORE_CTX_set_flags(check, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_NO_CHECK_TIME);
    trusted = X509_verify_cert(check) == 1;
  }
  X509_STORE_CTX_free(check);
  ERR_clear_error();
  if (trusted) shown.trusted_in = now->reading;
  return trusted;
}

std::shared_ptr<const TlsCertificate::Loaded> TlsCertificate::Now() const {
  MutexLock lock(mu_);
  return loaded_;
}

}  // namespace athanor
