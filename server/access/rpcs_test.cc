#include "server/access/rpcs.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/cache.pb.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/generate.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/health/health.pb.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace athanor {
namespace {

const RpcRow* Find(const std::string& service, const std::string& method) {
  for (const RpcRow& row : RpcTable()) {
    if (row.service == service && row.method == method) return &row;
  }
  return nullptr;
}

// A row for each RPC of each service, with a field that its request has.
TEST(RpcTableTest, HasEachRpc) {
  int count = 0;
  for (const auto* file :
       {v1::CacheStatRequest::descriptor()->file(), v1::StartCompileRequest::descriptor()->file(),
        v1::GenerateRequest::descriptor()->file(), v1::GetModelRequest::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file(),
        inference::ModelInferRequest::descriptor()->file()}) {
    EXPECT_GT(file->service_count(), 0);
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m, ++count) {
        const google::protobuf::MethodDescriptor* method = service->method(m);
        const RpcRow* row = Find(service->full_name(), method->name());
        ASSERT_NE(row, nullptr) << method->full_name() << ": give it a row in rpcs.cc";
        EXPECT_EQ(&RpcNamed(method->name()), row);
        if (row->model.empty()) continue;
        const auto* field = method->input_type()->FindFieldByName(std::string(row->model));
        ASSERT_NE(field, nullptr) << method->full_name() << " has no field " << row->model;
        EXPECT_EQ(field->type(), google::protobuf::FieldDescriptor::TYPE_STRING);
      }
    }
  }
  EXPECT_GE(count, 34);
}

TEST(RpcTableTest, NamesOfMethodsDiffer) {
  std::set<std::string> names;
  for (const RpcRow& row : RpcTable()) {
    EXPECT_TRUE(names.insert(std::string(row.method)).second) << row.method;
  }
}

TEST(RpcTableTest, WhatIsUnknownIsTheAdministrators) {
  const RpcRow& row = RpcNamed("FormatDisk");
  EXPECT_FALSE(row.roles.Admit({Role::kInfer, Role::kUpload, Role::kMonitor}));
  EXPECT_TRUE(row.roles.Admit({Role::kAdmin}));
  EXPECT_FALSE(row.roles.Admit({}));
}

// RPCs that change the server need more than `infer`, and leave a line.
TEST(RpcTableTest, WritersAreAudited) {
  for (const char* method : {"UploadModel", "DeleteModel", "PinPlan", "Rollback", "StartCompile",
                             "CancelCompileJob", "Verify", "CollectGarbage", "Export", "Import",
                             "RepositoryModelLoad", "RepositoryModelUnload"}) {
    EXPECT_TRUE(RpcNamed(method).audited) << method;
    EXPECT_FALSE(RpcNamed(method).roles.Admit({Role::kInfer, Role::kMonitor})) << method;
  }
}

}  // namespace
}  // namespace athanor
