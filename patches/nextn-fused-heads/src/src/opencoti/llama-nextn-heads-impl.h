#pragma once

// for the files of libllama; everybody else takes llama-nextn-heads.h

#include "llama-nextn-heads.h"

#include "llama-nextn-fused-impl.h"

#include <memory>
#include <string>
#include <vector>

// One step: head k over the rows of the steps up to k.
struct llama_nextn_heads_node {
    std::unique_ptr<llama_batch_allocr> balloc;
    llama_memory_context_ptr            mctx;

    // inputs of the graph result that are this step's
    size_t i_inp_begin = 0;
    size_t i_inp_end   = 0;
    size_t i_inp_embd  = 0;

    ggml_tensor * inp_tok = nullptr; // I32 [k + 1]

    ggml_tensor * rows = nullptr; // F32 [n_embd, k + 1] the hidden rows that the step is fed with
    ggml_tensor * embd = nullptr; // F32 [n_embd, k + 1] embeddings of its tokens
    ggml_tensor * weights = nullptr; // where they are looked up

    ggml_tensor * tok        = nullptr; // I32 [1]
    ggml_tensor * h          = nullptr; // F32 [n_embd, 1]
    ggml_tensor * top        = nullptr; // I32 [n_top, 1]
    ggml_tensor * top_logits = nullptr; // F32 [1, n_top, 1]
};

// A graph of all steps, and what it was built for.
struct llama_nextn_heads_chain {
    llama_nextn_lane lane;

    int32_t n_steps_max = 0; // what the buffers are for
    int32_t n_steps     = 0; // of the graph

    std::unique_ptr<llm_graph_params> params; // of the first step

    std::vector<llama_nextn_heads_node> nodes; // [n_steps]

    // the catch-up that is computed before the first step
    llama_nextn_waiting * waiting = nullptr; // of this launch

    uint32_t n_rows    = 0; // its tokens, 0: none
    size_t   i_inp_end = 0; // its inputs are the first ones
};

struct llama_nextn_heads : public llama_nextn_extra {
    llama_nextn_heads_chain plain; // the steps alone
    llama_nextn_heads_chain whole; // with the catch-up

    // tokens of the catch-up before this one, and how many of them in a row had as many
    uint32_t n_rows_last = 0;
    uint32_t n_rows_same = 0;

    std::unique_ptr<llama_batch_ext> batch;

    llama_nextn_fused_seen seen; // cells that the first step looks at through a window

    std::string refusal; // not empty: the graph of this model cannot be chained

    bool can_draft() const override {
        return plain.n_steps_max > 0;
    }
};

// Adds step k to the graph; those before it are there. There is one sequence, but while buffers are
// reserved for split streams: then there are all of them, in no particular order.
bool llama_nextn_heads_add_step(
        llama_nextn_heads                   & heads,
        const llama_model                   & model,
        const llm_graph_params              & params,
        std::vector<llama_nextn_heads_node> & nodes,
        size_t                                k);
