#pragma once

#include "../../../common/opencoti/spec-times.h"
#include "../../../src/opencoti/llama-spec-counters.h"

#include <cstdint>

class common_json;

// What speculative decoding did during one request, reported in its timings.
// env: OPENCOTI_SPEC_COUNTERS
struct server_spec_counters {
    // bytes of speculative checkpoints that were copied to and from host memory
    uint64_t ckpt_bytes_save = 0;
    uint64_t ckpt_bytes_load = 0;

    // totals of the contexts and of the drafter at the begin of the request; after finish(): their growth since
    llama_spec_counters tgt;
    llama_spec_counters dft;
    common_spec_times   times;

    // a context may be null
    void begin (const llama_context * ctx_tgt, const llama_context * ctx_dft);
    void finish(const llama_context * ctx_tgt, const llama_context * ctx_dft);

    // adds the object "opencoti"
    void add_to(common_json & timings, uint64_t n_cycles) const;
};
