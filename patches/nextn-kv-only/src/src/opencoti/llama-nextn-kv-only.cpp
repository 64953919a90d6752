#include "llama-nextn-kv-only.h"

#include "llama-graph.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-kv-cache-dsa.h"
#include "llama-kv-cache-dsa-iswa.h"

#include "ggml.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <typeinfo>
#include <unordered_set>
#include <vector>

static bool llama_nextn_kv_only_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_NEXTN_KV_ONLY = getenv("OPENCOTI_NEXTN_KV_ONLY");
        return OPENCOTI_NEXTN_KV_ONLY && OPENCOTI_NEXTN_KV_ONLY[0] && strcmp(OPENCOTI_NEXTN_KV_ONLY, "0") != 0;
    }();

    return enabled;
}

// The inputs of caches with keys alone set their masks without asking whether they are allocated.
// These stand in for them and leave the masks alone.

struct llama_nextn_input_k : public llm_graph_input_i {
    explicit llama_nextn_input_k(llm_graph_input_ptr && inp) : inp(std::move(inp)) {}

    void set_input(const llama_ubatch * ubatch) override {
        auto * k = static_cast<llm_graph_input_attn_k *>(inp.get());

        k->mctx->set_input_k_idxs(k->self_k_idxs, ubatch);
    }

    bool can_reuse(const llm_graph_params & params) override {
        return inp->can_reuse(params);
    }

    llm_graph_input_ptr inp;
};

static void llama_nextn_set_dsa(llm_graph_input_attn_k_dsa * dsa, const llama_ubatch * ubatch) {
    if (dsa->self_k_idxs_mla && dsa->self_k_idxs_mla->buffer) {
        dsa->mctx->get_mla()->set_input_k_idxs(dsa->self_k_idxs_mla, ubatch);
    }
    if (dsa->self_k_idxs_lid && dsa->self_k_idxs_lid->buffer) {
        dsa->mctx->get_lid()->set_input_k_idxs(dsa->self_k_idxs_lid, ubatch);
    }
    if (dsa->self_k_rot_lid && dsa->self_k_rot_lid->buffer) {
        dsa->mctx->get_lid()->set_input_k_rot(dsa->self_k_rot_lid);
    }
}

struct llama_nextn_input_dsa : public llm_graph_input_i {
    explicit llama_nextn_input_dsa(llm_graph_input_ptr && inp) : inp(std::move(inp)) {}

    void set_input(const llama_ubatch * ubatch) override {
        llama_nextn_set_dsa(static_cast<llm_graph_input_attn_k_dsa *>(inp.get()), ubatch);
    }

    bool can_reuse(const llm_graph_params & params) override {
        return inp->can_reuse(params);
    }

    llm_graph_input_ptr inp;
};

struct llama_nextn_input_dsa_iswa : public llm_graph_input_i {
    explicit llama_nextn_input_dsa_iswa(llm_graph_input_ptr && inp) : inp(std::move(inp)) {}

    void set_input(const llama_ubatch * ubatch) override {
        auto * both = static_cast<llm_graph_input_attn_k_dsa_iswa *>(inp.get());

        llama_nextn_set_dsa(both->get_dsa(), ubatch);

        auto * swa = both->get_swa();
        if (swa->self_k_idxs && swa->self_k_idxs->buffer) {
            swa->mctx->set_input_k_idxs(swa->self_k_idxs, ubatch);
        }
    }

    bool can_reuse(const llm_graph_params & params) override {
        return inp->can_reuse(params);
    }

    llm_graph_input_ptr inp;
};

template <typename T>
static bool llama_nextn_is(const llm_graph_input_ptr & inp) {
    // exactly T: what a type that derives from it does is not known here
    const llm_graph_input_i & i = *inp;

    return typeid(i) == typeid(T);
}

// Does the node write into something that was there before the graph? Memory is written by nodes
// that are views of it; views that only look at it compute nothing.
static bool llama_nextn_writes_memory(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return false;
        default:
            return node->view_src && node->view_src->buffer;
    }
}

using llama_nextn_tensors = std::unordered_set<const ggml_tensor *>;

static llama_nextn_tensors llama_nextn_ancestors(const std::vector<ggml_tensor *> & nodes) {
    llama_nextn_tensors res;

    std::vector<const ggml_tensor *> todo(nodes.begin(), nodes.end());
    while (!todo.empty()) {
        const auto * node = todo.back();
        todo.pop_back();

        if (node && res.insert(node).second) {
            todo.insert(todo.end(), node->src, node->src + GGML_MAX_SRC);
        }
    }

    return res;
}

// Can the input be set, or left out, when nothing but `needed` is allocated?
static bool llama_nextn_can_set(const llm_graph_input_ptr & inp, const llama_ubatch & ubatch, const llama_nextn_tensors & needed) {
    // token ids and rows of the hidden state are set whether they are allocated or not
    if (llama_nextn_is<llm_graph_input_embd>(inp)) {
        const auto * embd = static_cast<const llm_graph_input_embd *>(inp.get());

        return (!ubatch.token || needed.count(embd->tokens)) && (!ubatch.embd || needed.count(embd->embd));
    }
    if (llama_nextn_is<llm_graph_input_embd_h>(inp)) {
        const auto * embd = static_cast<const llm_graph_input_embd_h *>(inp.get());

        return (ubatch.token ? needed.count(embd->tokens) : needed.count(embd->embd)) && (!ubatch.embd || needed.count(embd->h));
    }

    // another kind of memory, say a recurrent one, may be written by operations that do not show it
    return
        llama_nextn_is<llm_graph_input_pos>            (inp) ||
        llama_nextn_is<llm_graph_input_out_ids>        (inp) ||
        llama_nextn_is<llm_graph_input_sampling>       (inp) ||
        llama_nextn_is<llm_graph_input_attn_kv>        (inp) ||
        llama_nextn_is<llm_graph_input_attn_kv_iswa>   (inp) ||
        llama_nextn_is<llm_graph_input_attn_k>         (inp) ||
        llama_nextn_is<llm_graph_input_attn_k_iswa>    (inp) ||
        llama_nextn_is<llm_graph_input_attn_k_dsa>     (inp) ||
        llama_nextn_is<llm_graph_input_attn_k_dsa_iswa>(inp);
}

void llama_nextn_kv_only(const llm_graph_params & params, llm_graph_result & res) {
    if (!llama_nextn_kv_only_enabled() || params.gtype != LLM_GRAPH_TYPE_DECODER_MTP) {
        return;
    }

    const auto & cparams   = params.cparams;
    const auto & layer_inp = cparams.embeddings_layer_inp;

    // without outputs, and with rows of the hidden state for outputs alone, nothing is read from this graph
    if (params.n_outputs > 0 || cparams.embeddings || (cparams.embeddings_nextn && !cparams.embeddings_nextn_masked) ||
            cparams.training || std::find(layer_inp.begin(), layer_inp.end(), true) != layer_inp.end()) {
        return;
    }

    auto * gf = res.get_gf();

    std::vector<ggml_tensor *> writes;
    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        if (llama_nextn_writes_memory(ggml_graph_node(gf, i))) {
            writes.push_back(ggml_graph_node(gf, i));
        }
    }

    const auto needed = llama_nextn_ancestors(writes);

    if (writes.empty() || !std::all_of(res.inputs.begin(), res.inputs.end(), [&](const llm_graph_input_ptr & inp) {
                return llama_nextn_can_set(inp, params.ubatch, needed);
            })) {
        static const bool told = [&] {
            LLAMA_LOG_WARN("%s: OPENCOTI_NEXTN_KV_ONLY has no effect: the graph of %s is not known to be safe\n",
                    __func__, llm_arch_name(params.arch));
            return true;
        }();
        GGML_UNUSED(told);
        return;
    }

    ggml_graph_clear(gf);
    for (auto * node : writes) {
        ggml_build_forward_expand(gf, node);
    }

    // what only outputs need would be set, and is not allocated
    const auto drop = [&](const llm_graph_input_ptr & inp) {
        if (llama_nextn_is<llm_graph_input_out_ids>(inp)) {
            return needed.count(static_cast<llm_graph_input_out_ids *>(inp.get())->out_ids) == 0;
        }
        if (llama_nextn_is<llm_graph_input_pos>(inp)) {
            return needed.count(static_cast<llm_graph_input_pos *>(inp.get())->pos) == 0;
        }
        return llama_nextn_is<llm_graph_input_sampling>(inp);
    };
    res.inputs.erase(std::remove_if(res.inputs.begin(), res.inputs.end(), drop), res.inputs.end());

    for (auto & inp : res.inputs) {
        if (llama_nextn_is<llm_graph_input_attn_k>(inp)) {
            inp.reset(new llama_nextn_input_k(std::move(inp)));
        } else if (llama_nextn_is<llm_graph_input_attn_k_dsa>(inp)) {
            inp.reset(new llama_nextn_input_dsa(std::move(inp)));
        } else if (llama_nextn_is<llm_graph_input_attn_k_dsa_iswa>(inp)) {
            inp.reset(new llama_nextn_input_dsa_iswa(std::move(inp)));
        }
    }

    res.fused_nodes.clear();

    res.t_logits      = nullptr;
    res.t_embd        = nullptr;
    res.t_embd_pooled = nullptr;
    res.t_h_nextn     = nullptr;

    res.t_sampled.clear();
    res.t_sampled_probs.clear();
    res.t_sampled_logits.clear();
    res.t_candidates.clear();
}
