#include "llama-hy-v3-chain-row.h"

#include "llama-cparams.h"
#include "llama-graph.h"
#include "llama-model.h"

#include <cstdlib>
#include <cstring>

bool llama_hy_v3_chain_row_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_HY_V3_CHAIN_ROW = getenv("OPENCOTI_HY_V3_CHAIN_ROW");
        return OPENCOTI_HY_V3_CHAIN_ROW && OPENCOTI_HY_V3_CHAIN_ROW[0] && strcmp(OPENCOTI_HY_V3_CHAIN_ROW, "0") != 0;
    }();

    return enabled;
}

bool llama_hy_v3_chain_row_is_on(const llama_model * model) {
    return llama_hy_v3_chain_row_enabled() && model->arch == LLM_ARCH_HY_V3;
}

void llama_hy_v3_chain_row(const llama_cparams & cparams, llm_graph_result & res, ggml_tensor * rows) {
    if (llama_hy_v3_chain_row_enabled() && cparams.embeddings_nextn_masked) {
        res.t_h_nextn = rows;
    }
}
