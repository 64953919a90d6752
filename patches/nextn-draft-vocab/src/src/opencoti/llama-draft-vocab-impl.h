#pragma once

// for the files of this patch in libllama

#include "llama-draft-vocab.h"

#include "llama-context.h"

#include "ggml-cpp.h"

#include <vector>

// One head, cut down.
struct llama_draft_vocab_head {
    ggml_tensor * full = nullptr; // [n_embd, n_vocab] of the model
    ggml_tensor * rows = nullptr; // [n_embd, n_slots] of the same type, where the head is
    ggml_tensor * ids  = nullptr; // I32 [n_slots] which tokens they are of

    ggml_context_ptr        ctx;
    ggml_backend_buffer_ptr buf;
};

struct llama_draft_vocab {
    std::vector<llama_draft_vocab_head> heads;

    int64_t n_slots = 0;

    const llama_draft_vocab_head * cur = nullptr; // of the graph that was built last, nullptr: it is whole

    bool is_narrow = false; // logits stay those of slots
    bool is_told   = false; // that a graph was left whole
};

// the parts of a context that are private to it
struct llama_draft_vocab_access {
    llama_context & ctx;

    llama_draft_vocab_ptr & vocab()        { return ctx.opencoti_draft_vocab; }
    llama_cparams         & cparams()      { return ctx.cparams; }
    bool                  & need_reserve() { return ctx.sched_need_reserve; }

    bool has_logits() const { return ctx.logits.data && ctx.sampling.samplers.empty(); }

    void synchronize() const {
        for (auto * backend : ctx.backend_ptrs) {
            ggml_backend_synchronize(backend);
        }
    }
};
