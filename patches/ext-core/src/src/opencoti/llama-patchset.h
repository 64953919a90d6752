#pragma once

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// id of the patch set that this library was built from, "unstamped" if nobody recorded one
LLAMA_API const char * llama_opencoti_patchset(void);

#ifdef __cplusplus
}
#endif
