#include "server-spec-counters.h"

#include "json.h"

#include <cstdlib>
#include <cstring>

static bool server_spec_counters_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_SPEC_COUNTERS = getenv("OPENCOTI_SPEC_COUNTERS");
        return OPENCOTI_SPEC_COUNTERS && OPENCOTI_SPEC_COUNTERS[0] && strcmp(OPENCOTI_SPEC_COUNTERS, "0") != 0;
    }();

    return enabled;
}

static llama_spec_counters server_spec_counters_since(const llama_context * ctx, const llama_spec_counters & begin) {
    llama_spec_counters res = llama_spec_counters_get(ctx);

    res.launches        -= begin.launches;
    res.reused          -= begin.reused;
    res.ckpt_saves      -= begin.ckpt_saves;
    res.ckpt_loads      -= begin.ckpt_loads;
    res.ckpt_bytes_save -= begin.ckpt_bytes_save;
    res.ckpt_bytes_load -= begin.ckpt_bytes_load;

    return res;
}

void server_spec_counters::begin(const llama_context * ctx_tgt, const llama_context * ctx_dft) {
    if (!server_spec_counters_enabled()) {
        return;
    }

    tgt   = llama_spec_counters_get(ctx_tgt);
    dft   = llama_spec_counters_get(ctx_dft);
    times = common_spec_times_get();
}

void server_spec_counters::finish(const llama_context * ctx_tgt, const llama_context * ctx_dft) {
    if (!server_spec_counters_enabled()) {
        return;
    }

    tgt = server_spec_counters_since(ctx_tgt, tgt);
    dft = server_spec_counters_since(ctx_dft, dft);

    const common_spec_times now = common_spec_times_get();

    times.us_process = now.us_process - times.us_process;
    times.us_draft   = now.us_draft   - times.us_draft;
}

void server_spec_counters::add_to(common_json & timings, uint64_t n_cycles) const {
    if (!server_spec_counters_enabled()) {
        return;
    }

    timings["opencoti"] = common_json {
        {"launches_tgt",     tgt.launches},
        {"launches_dft",     dft.launches},
        {"reused_tgt",       tgt.reused},
        {"reused_dft",       dft.reused},
        {"cycles",           n_cycles},
        {"ckpt_saves",       ckpt_bytes_save.n + tgt.ckpt_saves + dft.ckpt_saves},
        {"ckpt_loads",       ckpt_bytes_load.n + tgt.ckpt_loads + dft.ckpt_loads},
        {"ckpt_bytes_save",  ckpt_bytes_save.n_bytes},
        {"ckpt_bytes_load",  ckpt_bytes_load.n_bytes},
        {"ckpt_device_save", tgt.ckpt_bytes_save + dft.ckpt_bytes_save},
        {"ckpt_device_load", tgt.ckpt_bytes_load + dft.ckpt_bytes_load},
        {"us_process",       times.us_process},
        {"us_draft",         times.us_draft},
    };
}
