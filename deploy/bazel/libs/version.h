// The version of this tree: the server, the clients and the packages report it.
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_VERSION_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_VERSION_H_

namespace athanor {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_VERSION_H_
