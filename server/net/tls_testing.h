// Keys and certificates for tests, as PEM.
//
//   const TestPems pems = SelfSigned();                 // "localhost", an hour from now
//   const TestPems old = SelfSigned(-7200, -3600);      // expired an hour ago
//   const TestPems authority = Signed({.name = "ca", .authority = true});
//   const TestPems client = Signed({.name = "edge", .alternatives = "DNS:edge.test"}, &authority);
#ifndef ATHANOR_SERVER_NET_TLS_TESTING_H_
#define ATHANOR_SERVER_NET_TLS_TESTING_H_

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <fstream>
#include <string>

namespace athanor {

struct TestPems {
  std::string cert, key;

  void WriteTo(const std::string& cert_file, const std::string& key_file) const {
    std::ofstream(cert_file) << cert;
    std::ofstream(key_file) << key;
  }
};

template <typename Write>
std::string PemOf(const Write& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string pem(data, size);
  BIO_free(bio);
  return pem;
}

struct TestCertificate {
  std::string name = "localhost";  // the common name
  // Subject alternative names as OpenSSL writes them: "DNS:a.b,URI:spiffe://a/b"; "": none
  std::string alternatives;
  long from = -60, until = 3600;  // seconds from now
  bool authority = false;         // it may sign others
};

inline void AddExtension(X509* cert, int kind, const std::string& value, X509* issuer = nullptr) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
}

// Returns a fresh key and its certificate, signed by `signer`; null: by itself.
inline TestPems Signed(const TestCertificate& what, const TestPems* signer = nullptr) {
  static long serial = 0;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = X509_new();
  X509_set_version(cert, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(cert), what.from);
  X509_gmtime_adj(X509_getm_notAfter(cert), what.until);
  X509_set_pubkey(cert, key);
  X509_NAME* name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(what.name.c_str()), -1, -1, 0);
  // By which OpenSSL tells authorities of one name apart.
  AddExtension(cert, NID_subject_key_identifier, "hash");
  if (what.authority) AddExtension(cert, NID_basic_constraints, "critical,CA:TRUE");
  if (!what.alternatives.empty()) AddExtension(cert, NID_subject_alt_name, what.alternatives);
  if (signer == nullptr) {
    X509_set_issuer_name(cert, name);
    X509_sign(cert, key, EVP_sha256());
  } else {
    BIO* cert_bio = BIO_new_mem_buf(signer->cert.data(), static_cast<int>(signer->cert.size()));
    BIO* key_bio = BIO_new_mem_buf(signer->key.data(), static_cast<int>(signer->key.size()));
    X509* issuer = PEM_read_bio_X509(cert_bio, nullptr, nullptr, nullptr);
    EVP_PKEY* issuer_key = PEM_read_bio_PrivateKey(key_bio, nullptr, nullptr, nullptr);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    AddExtension(cert, NID_authority_key_identifier, "keyid", issuer);
    X509_sign(cert, issuer_key, EVP_sha256());
    EVP_PKEY_free(issuer_key);
    X509_free(issuer);
    BIO_free(key_bio);
    BIO_free(cert_bio);
  }
  TestPems pems = {PemOf([&](BIO* bio) { PEM_write_bio_X509(bio, cert); }), PemOf([&](BIO* bio) {
                     PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
                   })};
  X509_free(cert);
  EVP_PKEY_free(key);
  return pems;
}

// Returns a fresh key and a self-signed certificate of "localhost", valid from `from` to `until`
// seconds from now.
inline TestPems SelfSigned(long from = -60, long until = 3600) {
  return Signed({.from = from, .until = until});
}

// Returns the key encrypted with the passphrase "x", as PKCS #8 or in the older traditional format.
inline std::string EncryptedKey(const std::string& pem, bool pkcs8) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  char passphrase[] = "x";
  auto* bytes = reinterpret_cast<unsigned char*>(passphrase);
  std::string encrypted = PemOf([&](BIO* out) {
    if (pkcs8) {
      PEM_write_bio_PKCS8PrivateKey(out, key, EVP_aes_256_cbc(), passphrase, 1, nullptr, nullptr);
    } else {
      PEM_write_bio_PrivateKey_traditional(out, key, EVP_aes_256_cbc(), bytes, 1, nullptr, nullptr);
    }
  });
  EVP_PKEY_free(key);
  BIO_free(bio);
  return encrypted;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_TLS_TESTING_H_
