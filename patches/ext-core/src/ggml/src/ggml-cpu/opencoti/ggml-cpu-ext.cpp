#include "ggml-cpu-ext.h"

#ifdef OPENCOTI_HAVE_EXT
#include "ggml-ext.h"
#endif

const char * ggml_cpu_opencoti_ext_version(void) {
#ifdef OPENCOTI_HAVE_EXT
    // a call, not a macro: it also makes the linker take the library
    return ggml_ext_version();
#else
    return "none";
#endif
}
