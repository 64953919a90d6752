#pragma once

#include "llama-nextn-fused.h"

#include "llama-nextn-side-impl.h"

#include "llama-batch.h"

#include <memory>
#include <string>
#include <vector>

// candidates of a step: as many as the drafter's sampler looks at
static const int32_t LLAMA_NEXTN_FUSED_N_TOP = 10;

using llama_nextn_fused_parts = std::vector<std::vector<llama_seq_id>>;

class llama_kv_cache;

// The cells of a cache with a window that the first step looks at. Such a cache gives out cells again
// that have left the window of the newest token. All steps have their cells before any mask is written,
// so what a later step takes must not be what the first one looks at.
struct llama_nextn_fused_seen {
    // the rows of `ubatch` are about to be given cells; false: there is no memory
    bool look(const llama_kv_cache & kv, const llama_ubatch & ubatch, int64_t n_streams);

    // whether a later step, about to be given cells, takes one of them, or finds none
    bool takes(const llama_kv_cache & kv, const llama_ubatch & ubatch) const;

private:
    ggml_context_ptr        ctx;
    ggml_backend_buffer_ptr buf;
};

// One step of the sequences that are decoded in one micro-batch.
struct llama_nextn_fused_node {
    // what the loop has for one decode; the graph's inputs point into them
    std::unique_ptr<llama_batch_allocr> balloc;
    llama_memory_context_ptr            mctx;

    // inputs of the graph result that are this step's; the first is skipped where it comes from the step before
    size_t i_inp_begin = 0;
    size_t i_inp_end   = 0;
    size_t i_inp_embd  = 0;

    ggml_tensor * tok        = nullptr; // I32 [n_seqs]
    ggml_tensor * h          = nullptr; // F32 [n_embd, n_seqs]
    ggml_tensor * top        = nullptr; // I32 [n_top, n_seqs]
    ggml_tensor * top_logits = nullptr; // F32 [1, n_top, n_seqs]

    llama_nextn_fused_seen seen; // of the first step, if the cache has a window
};

// A graph of all steps, and what it was built for.
struct llama_nextn_fused_chain {
    llama_nextn_lane lane;

    int32_t n_steps_max = 0; // what the buffers are for

    int32_t n_steps = 0;

    llama_nextn_fused_parts parts; // sequences of each micro-batch

    std::unique_ptr<llm_graph_params> params; // of the first node

    std::vector<llama_nextn_fused_node> nodes; // [n_steps][parts]

    // the catch-up that is computed before the first step
    llama_nextn_waiting * waiting = nullptr; // of this launch

    uint32_t n_rows    = 0; // its tokens, 0: none
    size_t   i_inp_end = 0; // its inputs are the first ones
};

struct llama_nextn_fused : public llama_nextn_extra {
    llama_nextn_fused_chain plain; // the steps alone
    llama_nextn_fused_chain whole; // with the catch-up

    llama_nextn_fused_chain * cur = nullptr; // of the last run

    // tokens of the catch-ups before this one, and how many of them in a row had as many
    uint32_t n_rows_last = 0;
    uint32_t n_rows_same = 0;

    std::unique_ptr<llama_batch_ext> batch;

    // a copy of the token embeddings where the chain runs, if they are elsewhere
    ggml_context_ptr        ctx_embd;
    ggml_backend_buffer_ptr buf_embd;
    const ggml_tensor *     src_embd = nullptr;
    ggml_tensor *           cpy_embd = nullptr;

    std::string refusal; // not empty: the graph of this model cannot be chained

    bool can_draft() const override {
        return plain.n_steps_max > 0;
    }
};

// while it lives, the context uses the lane
struct llama_nextn_fused_scope {
    llama_nextn_fused_scope(llama_nextn_access & access, llama_nextn_lane & lane) : access(access), lane(lane) {
        access.exchange(lane, 1);
    }

    ~llama_nextn_fused_scope() {
        access.exchange(lane, 1);
    }

    llama_nextn_fused_scope(const llama_nextn_fused_scope &) = delete;
    llama_nextn_fused_scope & operator=(const llama_nextn_fused_scope &) = delete;

private:
    llama_nextn_access & access;
    llama_nextn_lane   & lane;
};

// Adds a step to the graph. `prev` is the step before it, nullptr for the first one.
bool llama_nextn_fused_add(
        llama_nextn_fused            & fused,
        const llama_model            & model,
        const llm_graph_params       & params,
        const llama_nextn_fused_node * prev,
        llama_nextn_fused_node       & node);

// gives each step its cells, in the order in which the loop would; false: they do not fit
bool llama_nextn_fused_place(
        llama_nextn_access            & access,
        llama_nextn_fused             & fused,
        llama_nextn_fused_chain       & chain,
        const llama_nextn_fused_parts & parts,
        const llama_nextn_fused_seq   * seqs,
        int32_t                         n_steps);
