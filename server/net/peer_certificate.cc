#include "server/net/peer_certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstddef>
#include <ctime>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

constexpr size_t kMostKnown = 1'024;
constexpr size_t kDigestBytes = 32;
constexpr absl::string_view kDigest = "sha256:", kDns = "dns:";
constexpr absl::string_view kOtherKinds[] = {"subject:", "uri:", "email:"};

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm t{};
  if (ASN1_TIME_to_tm(time, &t) != 1) return absl::InfinitePast();
  return absl::FromTM(t, absl::UTCTimeZone());
}

std::string Digest(const X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  X509_digest(certificate, EVP_sha256(), digest.data(), &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

std::string Subject(const X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  X509_NAME_print_ex(bio, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, size > 0 ? static_cast<size_t>(size) : 0);
  BIO_free(bio);
  return text;
}

void AddAlternativeNames(const X509* certificate, std::vector<std::string>* names) {
  auto* all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    int kind = 0;
    const auto* value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(all, i), &kind));
    if (kind != GEN_DNS && kind != GEN_URI && kind != GEN_EMAIL) continue;
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                           static_cast<size_t>(ASN1_STRING_length(value)));
    names->push_back(kind == GEN_DNS ? absl::StrCat(kDns, absl::AsciiStrToLower(text))
                                     : absl::StrCat(kind == GEN_URI ? "uri:" : "email:", text));
  }
  GENERAL_NAMES_free(all);
}

}  // namespace

ShownChain::ShownChain(X509* certificate, STACK_OF(X509) * others)
    : certificate(certificate), others(others == nullptr ? nullptr : X509_chain_up_ref(others)) {
  X509_up_ref(certificate);
}

ShownChain::~ShownChain() {
  sk_X509_pop_free(others, X509_free);
  X509_free(certificate);
}

std::shared_ptr<const PeerCertificate> CertificateOfX509(X509* certificate,
                                                         STACK_OF(X509) * others) {
  auto shown = std::make_shared<PeerCertificate>();
  shown->names.push_back(absl::StrCat(kDigest, Digest(certificate)));
  const std::string subject = Subject(certificate);
  if (!subject.empty()) shown->names.push_back(absl::StrCat("subject:", subject));
  AddAlternativeNames(certificate, &shown->names);
  shown->from = TimeOf(X509_get0_notBefore(certificate));
  shown->until = TimeOf(X509_get0_notAfter(certificate));
  shown->chain = std::make_shared<const ShownChain>(certificate, others);
  ERR_clear_error();
  return shown;
}

absl::StatusOr<std::string> CertificateName(absl::string_view name) {
  absl::string_view value = name;
  if (absl::ConsumePrefix(&value, kDigest)) {
    // OpenSSL prints fingerprints with colons, in capital letters.
    std::string hex = absl::AsciiStrToLower(absl::StrReplaceAll(value, {{":", ""}}));
    bool digits = hex.size() == 2 * kDigestBytes;
    for (const char c : hex) digits = digits && absl::ascii_isxdigit(static_cast<unsigned char>(c));
    if (digits) return absl::StrCat(kDigest, hex);
    return absl::InvalidArgumentError(
        "sha256: must have 64 hexadecimal digits, as openssl x509 -noout -fingerprint -sha256 "
        "prints them");
  }
  if (absl::ConsumePrefix(&value, kDns) && !value.empty()) {
    return absl::StrCat(kDns, absl::AsciiStrToLower(value));
  }
  for (const absl::string_view kind : kOtherKinds) {
    value = name;
    if (absl::ConsumePrefix(&value, kind) && !value.empty()) return std::string(name);
  }
  return absl::InvalidArgumentError(
      "must be sha256:DIGEST, subject:DN, dns:NAME, uri:URI or email:ADDRESS");
}

std::shared_ptr<const PeerCertificate> PeerCertificates::OfPem(absl::string_view pem) {
  MutexLock lock(mu_);
  if (const auto found = known_.find(pem); found != known_.end()) return found->second;
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  STACK_OF(X509)* others = sk_X509_new_null();
  while (X509* other = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)) {
    sk_X509_push(others, other);
  }
  BIO_free(bio);
  ERR_clear_error();
  const auto shown = certificate == nullptr ? nullptr : CertificateOfX509(certificate, others);
  sk_X509_pop_free(others, X509_free);
  X509_free(certificate);
  if (shown == nullptr) return nullptr;
  if (known_.size() == kMostKnown) known_.clear();
  known_.emplace(pem, shown);
  return shown;
}

}  // namespace athanor
