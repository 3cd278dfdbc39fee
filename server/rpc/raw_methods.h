// RawMethods: the base of a service whose calls get the bytes of their messages, as a flat list of
// the methods that gRPC generates for it:
//
//   class JobService final : public RawMethods<v1::JobService::Service,
//                                              v1::JobService::WithRawCallbackMethod_Start,
//                                              v1::JobService::WithRawCallbackMethod_Stop> { ... };
#ifndef ATHANOR_SERVER_RPC_RAW_METHODS_H_
#define ATHANOR_SERVER_RPC_RAW_METHODS_H_

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
using RawMethods = typename internal::RawMethodsOf<Service, Methods...>::type;

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_RAW_METHODS_H_
