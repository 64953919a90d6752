#pragma once

#include "llama.h"

#include <cstdint>

// Totals of one context since it was made; they only grow, and no perf reset touches them.
// A context is used by one thread at a time, so they need no lock.
//
// A path that submits graphs for a context without llama_context::graph_compute(), or keeps a
// graph of its own, adds to llama_context::opencoti_counters itself.
struct llama_spec_counters {
    uint64_t launches = 0; // graphs submitted to a backend scheduler
    uint64_t reused   = 0; // how many of them were taken over unchanged from the launch before

    // speculative checkpoints whose state did not go through host memory: how many, and the bytes of state that were
    // copied for them
    uint64_t ckpt_saves      = 0;
    uint64_t ckpt_loads      = 0;
    uint64_t ckpt_bytes_save = 0;
    uint64_t ckpt_bytes_load = 0;
};

// zeros if ctx is null
LLAMA_API llama_spec_counters llama_spec_counters_get(const llama_context * ctx);
