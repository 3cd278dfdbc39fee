// A model in this process behind a C interface, for benchmarks that compare it call by call with
// another runtime in the same process (tests/bench/inprocess.py).
//
//   void* m = athanor_load(graph, graph_bytes, names, data, sizes, count, threads, plan_folder,
//                          error, error_bytes);
//   athanor_run(m, inputs, input_bytes, dims, outputs, output_bytes, error, error_bytes);
//
// A handle is used by one thread at a time. What can fail returns nullptr or 1 and leaves a text in
// `error`.
#ifndef ATHANOR_TESTS_BENCH_INPROCESS_H_
#define ATHANOR_TESTS_BENCH_INPROCESS_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// `graph`: a serialised athanor.v1.Graph. `data[i]` of `sizes[i]` bytes is the parameter `names[i]`
// and stays the caller's for the model's life. `plan_folder`: as plan_folder.h has it, with a plan
// of this graph and number of threads; nullptr: the baseline plan, made here.
void* athanor_load(const char* graph, size_t graph_bytes, const char* const* names,
                   const void* const* data, const size_t* sizes, int count, int threads,
                   const char* plan_folder, char* error, size_t error_bytes);

// Inputs, dims and outputs in the orders of the functions below.
int athanor_run(void* handle, const void* const* inputs, const size_t* input_bytes,
                const int64_t* dims, void* const* outputs, const size_t* output_bytes, char* error,
                size_t error_bytes);

// The i-th dim's, input's and output's name; nullptr past the last.
const char* athanor_dim(void* handle, int i);
const char* athanor_input(void* handle, int i);
const char* athanor_output(void* handle, int i);

const char* athanor_plan_id(void* handle);
const char* athanor_plan_kind(void* handle);
int athanor_kernels(void* handle);  // distinct ones of the plan
int athanor_steps(void* handle);    // of one run

// Three numbers: making or reading the plan; compiling kernels; loading them and preparing weights.
void athanor_seconds(void* handle, double* seconds);

// Writes the plan and its objects as plan_folder.h has it.
int athanor_save(void* handle, const char* folder, char* error, size_t error_bytes);

// Nanoseconds and label of each step of one run; returns how many, or -1.
int athanor_profile(void* handle, const void* const* inputs, const size_t* input_bytes,
                    const int64_t* dims, void* const* outputs, const size_t* output_bytes,
                    int64_t* nanoseconds, const char** labels, int capacity);

void athanor_free(void* handle);

}  // extern "C"

#endif  // ATHANOR_TESTS_BENCH_INPROCESS_H_
