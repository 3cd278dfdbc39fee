// Runs a scripted gRPC service on a port of its own.
//
//   FakeHost<FakeTokens> server;
//   server.service().end_after = 3;
//   server.address();   // "127.0.0.1:40123"
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_FAKE_HOST_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_FAKE_HOST_H_

#include <chrono>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

namespace athanor::bench {

template <typename Service>
class FakeHost {
 public:
  FakeHost() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeHost() { Stop(); }

  // Running calls end with an error; later calls find no server.
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  Service& service() { return service_; }
  const std::string& address() const { return address_; }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_FAKE_HOST_H_
