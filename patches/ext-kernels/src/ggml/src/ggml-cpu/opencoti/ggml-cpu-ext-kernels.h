#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// Kernels of the ggml-ext library in place of ops of this backend. What no kernel takes is left to
// ggml, and so is all of a graph that is computed as reference.
// env: OPENCOTI_EXT_KERNELS, OPENCOTI_EXT_ISA

// computes the share of this thread; false: the op is ggml's, for every thread of it
bool ggml_cpu_opencoti_compute_forward(const struct ggml_compute_params * params, const struct ggml_tensor * dst);

// whether a selected kernel takes the op; all threads of the graph then compute it
bool ggml_cpu_opencoti_takes(const struct ggml_tensor * dst, int n_threads);

// bytes of the work buffer that a selected kernel needs, 0 if none takes the op
size_t ggml_cpu_opencoti_work_size(const struct ggml_tensor * dst, int n_threads);

#ifdef __cplusplus
}
#endif
