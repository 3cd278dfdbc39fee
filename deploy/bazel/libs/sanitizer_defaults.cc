// Default options of the sanitizer runtimes, so that a binary run by hand behaves as under `bazel
// test`. Empty in an ordinary build.

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Debian's Abseil, gRPC and protobuf are not instrumented: ThreadSanitizer sees their memory
// accesses only through the C library, and none of their locks. So accesses they make (race_top)
// and calls they make (called_from_lib) are suppressed. Our code stays checked, even when they call
// it.
extern "C" const char* __tsan_default_suppressions() {
  return "race_top:libgrpc++.so\n"
         "race_top:libgrpc.so\n"
         "race_top:libgpr.so\n"
         "race_top:libprotobuf.so\n"
         "race_top:libupb.so\n"
         "race_top:libaddress_sorting.so\n"
         "race_top:libcares.so\n"
         "race_top:libabsl_*\n"
         // gRPC's templates, compiled with our code; none of these calls a handler of ours while it
         // works on gRPC's own memory.
         "race_top:^grpc::\n"
         "race_top:^void grpc::internal::\n"
         "race_top:^std::_Function_handler<void (bool), grpc::internal::\n"
         "race_top:^std::_Function_handler<grpc::\n"
         "race:grpc::internal::CallOpSet<\n"
         // The hand-over of a callback call from thread to thread.
         "race:grpc::internal::CallbackWithStatusTag::\n"
         "race:grpc::internal::UnaryDeserializeHelper<\n"
         "race:grpc::internal::UnaryRunHandlerHelper<\n"
         "race:grpc::internal::ServerStreamingHandler<*>::Deserialize(\n"
         // Generated code, which reads buffers that these libraries hand over.
         "race_top:::_InternalParse(\n"
         // protobuf's last act on a map that reflection wrote is the unlocking, a jump: it seems to
         // be our code that unlocks what protobuf locked.
         "mutex:/usr/include/google/protobuf/map_field.h\n"
         // Abseil's library counts down the references of a status, and frees it at 0: that of
         // another thread is not seen.
         "race:^Unref$\n"
         "race:absl::debian3::Status::Unref(\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libaddress_sorting.so\n"
         "called_from_lib:libcares.so\n"
#include "deploy/bazel/libs/absl_suppressions.inc"
      ;
}
extern "C" const char* __tsan_default_options() {
  // The tuner's processes fork from a thread and then start threads.
  return "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:"
         "external_symbolizer_path=/usr/lib/llvm-19/bin/llvm-symbolizer";
}
#endif
#if __has_feature(address_sanitizer)
extern "C" const char* __asan_default_options() {
  return "strict_string_checks=1:detect_stack_use_after_return=1:"
         "external_symbolizer_path=/usr/lib/llvm-19/bin/llvm-symbolizer";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }
#endif
#endif
