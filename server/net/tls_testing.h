// Keys and certificates for tests, as PEM.
//
//   const TestPems pems = SelfSigned();                 // "localhost", an hour from now
//   const TestPems old = SelfSigned(-7200, -3600);      // expired an hour ago
#ifndef ATHANOR_SERVER_NET_TLS_TESTING_H_
#define ATHANOR_SERVER_NET_TLS_TESTING_H_

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

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

// Returns a fresh key and a self-signed certificate of "localhost", valid from `from` to `until`
// seconds from now.
inline TestPems SelfSigned(long from = -60, long until = 3600) {
  static long serial = 0;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(cert), from);
  X509_gmtime_adj(X509_getm_notAfter(cert), until);
  X509_set_pubkey(cert, key);
  X509_NAME* name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509_sign(cert, key, EVP_sha256());
  TestPems pems = {PemOf([&](BIO* bio) { PEM_write_bio_X509(bio, cert); }), PemOf([&](BIO* bio) {
                     PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
                   })};
  X509_free(cert);
  EVP_PKEY_free(key);
  return pems;
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
