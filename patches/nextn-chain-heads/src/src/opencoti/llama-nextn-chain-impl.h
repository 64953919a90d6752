#pragma once

// for the files of libllama; everybody else takes llama-nextn-chain.h

#include "llama-graph.h"

#include <cstdint>

struct llama_model;

// whether OPENCOTI_NEXTN_CHAIN_HEADS is on
bool llama_nextn_chain_enabled();

// the block that a graph with these parameters runs
inline int32_t llama_nextn_chain_block(const llm_graph_params & params) {
    return params.gtype == LLM_GRAPH_TYPE_DECODER_MTP ? params.cparams.opencoti_nextn_block : -1;
}

// keeps of `cur` the rows that are outputs; all of them where no chain is on
ggml_tensor * llama_nextn_chain_rows(const llm_graph_context & graph, ggml_tensor * cur);

// throws if the model lacks a NextN block that a chain would run. `is_trunk`: the file has none on
// purpose
void llama_nextn_chain_check(const llama_model & model, bool is_trunk);

struct llama_nextn_chain_params {
    // the trunk ends `block` layers later, so that the first NextN block of the graph is that one
    llm_graph_params shifted;

    explicit llama_nextn_chain_params(const llm_graph_params & params) : shifted(params) {
        shifted.hparams.n_layer_nextn -= llama_nextn_chain_block(params);
    }
};

// an MTP graph of another block than the first. The parameters are a base, since the graph keeps
// references to them from its constructor on
template <typename graph_mtp>
struct llama_nextn_chain_graph : private llama_nextn_chain_params, public graph_mtp {
    llama_nextn_chain_graph(const llama_model & model, const llm_graph_params & params)
        : llama_nextn_chain_params(params), graph_mtp(model, shifted) {
    }
};
