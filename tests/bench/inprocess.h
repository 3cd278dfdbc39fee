// Runs a model in this process behind a C interface, for benchmarks that compare it call by call
// with another runtime in the same process (tests/bench/inprocess.py).
//
//   void* m = athanor_load(graph, graph_bytes, names, data, sizes, count, threads, plan_folder,
//                          error, error_bytes);
//   athanor_run(m, inputs, input_bytes, dims, outputs, output_bytes, error, error_bytes);
//
// Only one thread at a time may use a handle. A function that fails returns nullptr or 1 and leaves
// a text in `error`.
#ifndef ATHANOR_TESTS_BENCH_INPROCESS_H_
#define ATHANOR_TESTS_BENCH_INPROCESS_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// Loads a model. `graph` is a serialised athanor.v1.Graph. `data[i]`, of `sizes[i]` bytes, is the
// parameter `names[i]`; the caller keeps it alive as long as the model. `plan_folder` holds a plan
// for this graph and number of threads, as plan_folder.h writes it; nullptr: makes the baseline
// plan.
void* athanor_load(const char* graph, size_t graph_bytes, const char* const* names,
                   const void* const* data, const size_t* sizes, int count, int threads,
                   const char* plan_folder, char* error, size_t error_bytes);

// Runs the model. Inputs, dims and outputs are in the order of the functions below.
int athanor_run(void* handle, const void* const* inputs, const size_t* input_bytes,
                const int64_t* dims, void* const* outputs, const size_t* output_bytes, char* error,
                size_t error_bytes);

// Return the name of the i-th dim, input or output; nullptr past the last.
const char* athanor_dim(void* handle, int i);
const char* athanor_input(void* handle, int i);
const char* athanor_output(void* handle, int i);

const char* athanor_plan_id(void* handle);
const char* athanor_plan_kind(void* handle);
int athanor_kernels(void* handle);  // number of distinct kernels of the plan
int athanor_steps(void* handle);    // number of steps of one run

// Writes three numbers, the seconds to make or read the plan, to compile kernels, and to load them
// and prepare weights.
void athanor_seconds(void* handle, double* seconds);

// Writes the plan and its objects in the format of plan_folder.h.
int athanor_save(void* handle, const char* folder, char* error, size_t error_bytes);

// Runs once and writes nanoseconds and label of each step. Returns the number of steps, or -1.
int athanor_profile(void* handle, const void* const* inputs, const size_t* input_bytes,
                    const int64_t* dims, void* const* outputs, const size_t* output_bytes,
                    int64_t* nanoseconds, const char** labels, int capacity);

void athanor_free(void* handle);

}  // extern "C"

#endif  // ATHANOR_TESTS_BENCH_INPROCESS_H_
