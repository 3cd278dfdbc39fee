// The version that athanord reports.
#ifndef ATHANOR_SERVER_BASE_VERSION_H_
#define ATHANOR_SERVER_BASE_VERSION_H_

namespace athanor {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_VERSION_H_
