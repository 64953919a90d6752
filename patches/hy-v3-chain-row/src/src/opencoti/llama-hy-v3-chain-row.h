#pragma once

#include "llama.h"

struct ggml_tensor;
struct llama_cparams;
class llm_graph_result;

// env: OPENCOTI_HY_V3_CHAIN_ROW
bool llama_hy_v3_chain_row_enabled();

// whether it is, and the model is one of hy_v3
LLAMA_API bool llama_hy_v3_chain_row_is_on(const llama_model * model);

// Called where the rows of the outputs are picked in the graph of a NextN head: if the context wants
// hidden rows for its outputs alone, it gets these.
void llama_hy_v3_chain_row(const llama_cparams & cparams, llm_graph_result & res, ggml_tensor * rows);
