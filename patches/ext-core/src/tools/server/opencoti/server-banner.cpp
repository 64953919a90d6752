#include "server-banner.h"

#include "../../../src/opencoti/llama-patchset.h"

#ifdef OPENCOTI_CPU_BACKEND_LINKED
#include "../../../ggml/src/ggml-cpu/opencoti/ggml-cpu-ext.h"
#endif

#include "log.h"

void server_opencoti_banner() {
#ifdef OPENCOTI_CPU_BACKEND_LINKED
    LOG_INF("opencoti: patch set %s, ggml-ext %s\n", llama_opencoti_patchset(), ggml_cpu_opencoti_ext_version());
#else
    LOG_INF("opencoti: patch set %s\n", llama_opencoti_patchset());
#endif
}
