// Options the sanitizer runtimes ask the program for, so that a binary run by
// hand behaves as it does under `bazel test`. Empty in an ordinary build.

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Debian's Abseil, gRPC and protobuf are not instrumented: ThreadSanitizer sees
// their memory accesses only through the C library and none of their locks, so
// a report between their frames says nothing. Our own frames stay reported.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc++.so\n"
         "race:libgrpc.so\n"
         "race:libgpr.so\n"
         "race:libprotobuf.so\n"
         "race:libabsl_*\n"
         "mutex:libgrpc.so\n"
         "deadlock:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libabsl_synchronization.so\n";
}
extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1:"
         "external_symbolizer_path=/usr/lib/llvm-19/bin/llvm-symbolizer";
}
#endif
#if __has_feature(address_sanitizer)
extern "C" const char* __asan_default_options() {
  return "strict_string_checks=1:detect_stack_use_after_return=1:"
         "external_symbolizer_path=/usr/lib/llvm-19/bin/llvm-symbolizer";
}
extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1";
}
#endif
#endif
