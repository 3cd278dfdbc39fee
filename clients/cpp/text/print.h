// Prints results of the command line tool: text for people, or with --json one object per line.
//
//   Printer out(stdout, /*json=*/false);
//   out.Model(model);
#ifndef ATHANOR_CLIENTS_CPP_TEXT_PRINT_H_
#define ATHANOR_CLIENTS_CPP_TEXT_PRINT_H_

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/client/client.h"
#include "clients/cpp/text/style.h"
#include "nlohmann/json.hpp"

namespace athanor::client {

class Printer {
 public:
  Printer(std::FILE* out, bool json) : out_(out), json_(json) {}

  bool json() const { return json_; }
  void Line(absl::string_view text);
  void Object(const nlohmann::json& object);

  // Prints a row per version; as JSON an object per version.
  void Models(const google::protobuf::RepeatedPtrField<v1::Model>& models);
  void Versions(const google::protobuf::RepeatedPtrField<v1::Model>& models);
  void Model(const v1::Model& model);
  void Job(const v1::CompileJob& job);
  void Output(const std::string& name, const Tensor& tensor);

 private:
  void Table(const std::vector<Row>& rows);

  std::FILE* out_;
  bool json_;
};

// UNKNOWN: some of what was printed to stdout could not be written.
absl::Status WrittenToStdout();

nlohmann::json ModelJson(const v1::Model& model);
// Tells how requests are batched; null and empty for a model without a batch dim.
nlohmann::json BatchingJson(const v1::Batching& batching);
std::string BatchingText(const v1::Batching& batching);
nlohmann::json PlanJson(const v1::PlanInfo& plan);
// Return the rows of a table, the heading first: of models by their names and versions, and of the
// versions of one model.
std::vector<Row> ModelRows(const google::protobuf::RepeatedPtrField<v1::Model>& models);
std::vector<Row> VersionRows(const google::protobuf::RepeatedPtrField<v1::Model>& models);
// Returns one line per bucket: "b=1..1 s=1..128: plan p-12ab", or why the full-range plan serves
// it.
std::vector<std::string> BucketLines(const v1::Model& model);
// Holds every field; clocks are null where they are not told.
nlohmann::json DeviceJson(const v1::Device& device);
// Formats a device: "device cuda:0: NVIDIA A100, compute capability 8.0, driver of CUDA 13.0; 1.50
// of 70.20 GiB held; 1410 MHz, memory 1593 MHz; 12 kernels compiled by nvrtc 13.0"
std::string DeviceText(const v1::Device& device);
// Holds every field; "search" is null before there is one.
nlohmann::json JobJson(const v1::CompileJob& job);
// Holds the values in one flat list of numbers; nan and inf, which JSON lacks, are text.
nlohmann::json TensorJson(const std::string& name, const Tensor& tensor);

// Formats a job: "job c1 digits/2: COMPILING_KERNELS, kernel 3 of 12, 45 %", or at its end "job c1
// digits/2: DONE, nothing left to try promises a gain: a plan serves ..."
std::string JobText(const v1::CompileJob& job);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_PRINT_H_
