#pragma once

#include "llama-graph.h"

struct llama_cparams;
struct llama_hparams;
struct llama_memory_i;
struct llama_memory_params;
struct llama_model;
struct llama_model_loader;
struct llama_model_qwen4exp;

// NextN block of qwen4exp: the last block of the file, behind the trunk. A file may hold it alone, as the draft model
// of another file that holds the trunk.

// env: OPENCOTI_QWEN4EXP_NEXTN
bool llama_qwen4exp_nextn_enabled();

// Tells the constructor of the graph which one is meant.
struct llama_qwen4exp_nextn {};

//
// loading
//

// Before and after the hyperparameters are read. Makes a file that says it has a NextN block, and has none, what it is.
void llama_qwen4exp_nextn_begin(llama_hparams & hparams, const llama_model_loader & ml);
void llama_qwen4exp_nextn_end  (llama_hparams & hparams, const llama_model_loader & ml);

// A file without trunk: loads all that it has. False: the trunk is there, nothing was loaded.
bool llama_qwen4exp_nextn_alone(llama_model_qwen4exp & model, const llama_model_loader & ml);

// The block, where there is one: left in the file unless the loader was asked for it.
void llama_qwen4exp_nextn_block(llama_model_qwen4exp & model, const llama_model_loader & ml);

//
// contexts
//

// What a context that drafts remembers: keys and values of the block. Null: not such a context.
llama_memory_i * llama_qwen4exp_nextn_memory(const llama_model & model, const llama_memory_params & params, const llama_cparams & cparams);

// Whether a graph is to be that of the block. Throws where the model does not have what the graph needs.
bool llama_qwen4exp_nextn_wanted(const llama_model & model, llm_graph_type gtype);

//
// graphs
//

// A drafter that reads the hidden row of every token needs them all up to the end of the last layer: takes the ids of
// the outputs away from what picks them inside of it. Null: there is nothing to be picked later.
ggml_tensor * llama_qwen4exp_nextn_defer(const llama_cparams & cparams, ggml_tensor *& out_ids);

// Hands `res_hc` [n_embd, hc, n_tokens], the streams behind the last layer, to the context, then picks the outputs.
ggml_tensor * llama_qwen4exp_nextn_export(llm_graph_context & graph, ggml_tensor * res_hc, ggml_tensor * out_ids);
