// The table of all RPCs: which roles may make each, which model it is about, whether it leaves a
// line in the log. HTTP routes say their role themselves (server/http/routes.h).
//
//   RpcNamed("GetModel").roles     // infer, upload
#ifndef ATHANOR_SERVER_ACCESS_RPCS_H_
#define ATHANOR_SERVER_ACCESS_RPCS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/access/role.h"

namespace athanor {

struct RpcRow {
  absl::string_view service, method;
  Roles roles;  // empty: public
  // The field of the request that names a model, which its caller must be allowed to use; "": none,
  // or the handler looks.
  absl::string_view model;
  bool audited = false;  // it changes what the server holds, or takes much out of it
};

absl::Span<const RpcRow> RpcTable();

// Finds an RPC; methods' names differ in all services. One that is not in the table is the
// administrator's.
const RpcRow& RpcNamed(absl::string_view method);

}  // namespace athanor

#endif  // ATHANOR_SERVER_ACCESS_RPCS_H_
