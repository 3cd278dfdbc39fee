// How the command line shows things: text for people, or with --json one object per line.
//
//   Printer out(stdout, /*json=*/false);
//   out.Model(model);
//   JobProgress progress(&out);
//   progress.Show(job);       // a bar on a terminal, a line per phase otherwise
#ifndef ATHANOR_CLIENTS_CPP_PRINT_H_
#define ATHANOR_CLIENTS_CPP_PRINT_H_

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "clients/cpp/client.h"
#include "nlohmann/json.hpp"

namespace athanor::client {

class Printer {
 public:
  Printer(std::FILE* out, bool json) : out_(out), json_(json) {}

  bool json() const { return json_; }
  void Line(absl::string_view text);
  void Object(const nlohmann::json& object);

  void Model(const v1::Model& model);
  void Job(const v1::CompileJob& job);
  void Output(const std::string& name, const Tensor& tensor);

 private:
  std::FILE* out_;
  bool json_;
};

nlohmann::json ModelJson(const v1::Model& model);
nlohmann::json JobJson(const v1::CompileJob& job);
// Values as numbers in one flat list; those that JSON lacks (nan, inf) as text.
nlohmann::json TensorJson(const std::string& name, const Tensor& tensor);

// "job c1 digits/2: COMPILING_KERNELS, kernel 3 of 12, 45 %"
std::string JobText(const v1::CompileJob& job);

// Follows one job. The bar is redrawn in place on stderr; it is used by one thread.
class JobProgress {
 public:
  explicit JobProgress(Printer* out);
  ~JobProgress();
  void Show(const v1::CompileJob& job);

 private:
  Printer* out_;
  bool bar_;
  bool drawn_ = false;
  v1::CompileJob::Phase phase_ = v1::CompileJob::PHASE_UNSPECIFIED;
};

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_PRINT_H_
