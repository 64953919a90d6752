#include "llama-nextn-chain.h"
#include "llama-nextn-chain-impl.h"

#include "llama-context.h"
#include "llama-model.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

bool llama_nextn_chain_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_NEXTN_CHAIN_HEADS = getenv("OPENCOTI_NEXTN_CHAIN_HEADS");

        return OPENCOTI_NEXTN_CHAIN_HEADS && strcmp(OPENCOTI_NEXTN_CHAIN_HEADS, "1") == 0;
    }();

    return enabled;
}

ggml_tensor * llama_nextn_chain_rows(const llm_graph_context & graph, ggml_tensor * cur) {
    if (graph.cparams.opencoti_nextn_block < 0) {
        return cur;
    }

    return ggml_get_rows(graph.ctx0, cur, graph.build_inp_out_ids());
}

// name of a tensor that the block has not, empty if it is whole
static std::string nextn_chain_missing(const llama_layer & layer) {
    const struct {
        const ggml_tensor * tensor;
        const char        * name;
    } needed[] = {
        { layer.attn_norm,     "attn_norm.weight"     },
        { layer.wo,            "attn_output.weight"   },
        { layer.ffn_norm,      "ffn_norm.weight"      },
        { layer.nextn.eh_proj, "nextn.eh_proj.weight" },
        { layer.nextn.enorm,   "nextn.enorm.weight"   },
        { layer.nextn.hnorm,   "nextn.hnorm.weight"   },
    };

    for (const auto & need : needed) {
        if (!need.tensor) {
            return need.name;
        }
    }

    if (!layer.wqkv && (!layer.wq || !layer.wk || !layer.wv)) {
        return !layer.wq ? "attn_q.weight" : !layer.wk ? "attn_k.weight" : "attn_v.weight";
    }

    // one of the two kinds of feed-forward part
    if (layer.ffn_gate_inp) {
        if (!layer.ffn_gate_exps || !layer.ffn_up_exps || !layer.ffn_down_exps) {
            return !layer.ffn_gate_exps ? "ffn_gate_exps.weight" : !layer.ffn_up_exps ? "ffn_up_exps.weight" : "ffn_down_exps.weight";
        }
        if (!layer.ffn_gate_shexp || !layer.ffn_up_shexp || !layer.ffn_down_shexp) {
            return !layer.ffn_gate_shexp ? "ffn_gate_shexp.weight" : !layer.ffn_up_shexp ? "ffn_up_shexp.weight" : "ffn_down_shexp.weight";
        }
    } else if (!layer.ffn_gate || !layer.ffn_up || !layer.ffn_down) {
        return !layer.ffn_gate ? "ffn_gate.weight" : !layer.ffn_up ? "ffn_up.weight" : "ffn_down.weight";
    }

    return "";
}

void llama_nextn_chain_check(const llama_model & model, bool is_trunk) {
    const auto & hparams = model.hparams;

    if (is_trunk || hparams.n_layer_nextn < 2 || !llama_nextn_chain_enabled()) {
        return;
    }

    for (uint32_t il = hparams.n_layer(); il < hparams.n_layer_all; ++il) {
        const std::string missing = nextn_chain_missing(model.layers[il]);

        if (!missing.empty()) {
            throw std::runtime_error(format(
                "NextN block %u of %u has no blk.%u.%s: take a file with all blocks, or unset OPENCOTI_NEXTN_CHAIN_HEADS",
                il - hparams.n_layer() + 1, hparams.n_layer_nextn, il, missing.c_str()));
        }
    }
}

struct llama_nextn_chain {
    static void set_block(llama_context & ctx, int32_t block) {
        GGML_ASSERT(block >= 0 && block < (int32_t) ctx.model.hparams.n_layer_nextn);

        // the graph that buffers are reserved for gains the gathering of outputs
        if (ctx.cparams.opencoti_nextn_block < 0) {
            ctx.sched_need_reserve = true;
        }

        ctx.cparams.opencoti_nextn_block = block;
    }
};

int32_t llama_nextn_chain_n_blocks(const llama_context * ctx) {
    const auto & model = ctx->get_model();

    const int32_t n_blocks = (int32_t) model.hparams.n_layer_nextn;

    if (!llama_nextn_chain_enabled() || n_blocks < 2 || model.arch != LLM_ARCH_STEP35 ||
            ctx->get_cparams().ctx_type != LLAMA_CONTEXT_TYPE_MTP) {
        return 0;
    }

    return n_blocks;
}

void llama_nextn_chain_set_block(llama_context * ctx, int32_t block) {
    llama_nextn_chain::set_block(*ctx, block);
}
