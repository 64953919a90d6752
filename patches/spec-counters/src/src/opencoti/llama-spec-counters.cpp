#include "llama-spec-counters.h"

#include "llama-context.h"

llama_spec_counters llama_spec_counters_get(const llama_context * ctx) {
    return ctx ? ctx->opencoti_counters : llama_spec_counters();
}
