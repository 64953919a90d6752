#pragma once

#include "../../../common/opencoti/spec-times.h"
#include "../../../src/opencoti/llama-spec-counters.h"

#include <cstdint>

class common_json;

// bytes of checkpoints that were copied to or from host memory, and how many checkpoints these were
struct server_ckpt_bytes {
    uint64_t n_bytes = 0;
    uint64_t n       = 0;

    // of one checkpoint; none of it: there was no such checkpoint, or its state did not come by here
    void operator+=(uint64_t size) {
        n_bytes += size;
        n       += size > 0;
    }
};

// What speculative decoding did during one request, reported in its timings.
// env: OPENCOTI_SPEC_COUNTERS
struct server_spec_counters {
    // speculative checkpoints that went through host memory
    server_ckpt_bytes ckpt_bytes_save;
    server_ckpt_bytes ckpt_bytes_load;

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
