#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// version of the ggml-ext library that is linked into the CPU backend, "none" without one
GGML_BACKEND_API const char * ggml_cpu_opencoti_ext_version(void);

#ifdef __cplusplus
}
#endif
