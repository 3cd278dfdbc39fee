// RawMethods: the base of a service whose calls get the bytes of their messages, with a flat list
// of the methods that gRPC generates for it:
//
//   class JobService final : public RawMethods<v1::JobService::Service,
//                                              v1::JobService::WithRawCallbackMethod_Start,
//                                              v1::JobService::WithRawCallbackMethod_Stop> { ... };
#ifndef ATHANOR_SERVER_RPC_RAW_METHODS_H_
#define ATHANOR_SERVER_RPC_RAW_METHODS_H_

#include <functional>
#include <string>
#include <utility>

#include "google/protobuf/descriptor.h"
#include "server/rpc/late_reads.h"

namespace athanor {
namespace internal {

template <class Service, template <class Base> class... Methods>
struct RawMethodsOf {
  using type = Service;
};

template <class Service, template <class Base> class First, template <class Base> class... Rest>
struct RawMethodsOf<Service, First, Rest...> {
  using type = First<typename RawMethodsOf<Service, Rest...>::type>;
};

}  // namespace internal

// `Service` with each of `Methods` around it, the first one outermost. A method that is not listed
// answers UNIMPLEMENTED.
template <class Service, template <class Base> class... Methods>
class RawMethods : public internal::RawMethodsOf<Service, Methods...>::type {
 public:
  // Judges each call of one message before its message is read (late_reads.h). `name` is the
  // service's. `judge` is asked for each of its methods; one for which it returns null is not
  // judged. REQUIRES: no server has the service yet
  void JudgeHeaders(const std::string& name,
                    const std::function<JudgeHeader(const std::string& method)>& judge) {
    const auto* described =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; i < described->method_count(); ++i) {
      JudgeHeader judged = judge(described->method(i)->name());
      if (judged == nullptr) continue;
      auto* late = MakeLateRead(this->GetHandler(i), std::move(judged));
      if (late != nullptr) this->MarkMethodStreamed(i, late);
    }
  }
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_RAW_METHODS_H_
