#include "llama-draft-vocab-graph.h"
#include "llama-draft-vocab-impl.h"

#include "llama-graph.h"
#include "llama-impl.h"

#include <algorithm>
#include <cmath>
#include <vector>

// the head that a graph multiplies with, nullptr if it is none that was cut down
static const llama_draft_vocab_head * llama_draft_vocab_find(const llama_draft_vocab & vocab, const ggml_tensor * mul) {
    if (mul->op != GGML_OP_MUL_MAT) {
        return nullptr;
    }

    for (const auto & head : vocab.heads) {
        if (head.full == mul->src[0]) {
            return &head;
        }
    }

    return nullptr;
}

// does anything of the graph but `last` look at what is to become narrow?
static bool llama_draft_vocab_is_used(ggml_cgraph * gf, const std::vector<ggml_tensor *> & chain) {
    const auto has = [&](const ggml_tensor * tensor) {
        return tensor && std::find(chain.begin(), chain.end(), tensor) != chain.end();
    };

    for (int i = 0; i < ggml_graph_n_nodes(gf); ++i) {
        const ggml_tensor * node = ggml_graph_node(gf, i);

        if (!has(node) && (has(node->view_src) || std::any_of(node->src, node->src + GGML_MAX_SRC, has))) {
            return true;
        }
    }

    return false;
}

void llama_draft_vocab_narrow(const llm_graph_params & params) {
    auto * vocab = params.cparams.opencoti_draft_vocab;
    if (!vocab) {
        return;
    }

    auto * res = params.res;

    vocab->cur = nullptr;

    if (params.gtype != LLM_GRAPH_TYPE_DECODER_MTP || params.n_outputs == 0 || !res->t_logits) {
        return;
    }

    // logits, back to the product with the head: factors that are the same for all tokens may come in between
    std::vector<ggml_tensor *> chain = { res->t_logits };
    while (chain.back()->op == GGML_OP_SCALE || (chain.back()->op == GGML_OP_MUL && ggml_nelements(chain.back()->src[1]) == 1)) {
        chain.push_back(chain.back()->src[0]);
    }

    const auto * head = llama_draft_vocab_find(*vocab, chain.back());

    if (!head || llama_draft_vocab_is_used(res->get_gf(), chain)) {
        if (!vocab->is_told) {
            vocab->is_told = true;
            LLAMA_LOG_WARN("%s: drafts are over the whole vocabulary: logits are not the product with the head alone (%s)\n",
                    __func__, ggml_op_name(chain.back()->op));
        }
        return;
    }

    // nothing is allocated yet: the nodes are given other shapes where they are
    chain.back()->src[0] = head->rows;

    for (auto * node : chain) {
        node->ne[0] = vocab->n_slots;
        for (int i = 1; i < GGML_MAX_DIMS; ++i) {
            node->nb[i] = node->nb[i - 1]*node->ne[i - 1];
        }
    }

    ggml_build_forward_expand(res->get_gf(), head->rows);

    vocab->cur = head;
}

ggml_tensor * llama_draft_vocab_candidates(const llama_cparams & cparams) {
    const auto * vocab = cparams.opencoti_draft_vocab;

    return vocab && vocab->cur ? vocab->cur->ids : nullptr;
}

// as llama_context::decode() asks
static bool llama_draft_vocab_needs_logits(const llm_graph_params & params) {
    const auto & ubatch = params.ubatch;

    for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
        for (int32_t j = 0; ubatch.output[i] && j < ubatch.n_seq_id[i]; ++j) {
            if (params.samplers.count(ubatch.seq_id[i][j]) == 0) {
                return true;
            }
        }
    }

    return false;
}

void llama_draft_vocab_widen(const llm_graph_params & params) {
    const auto * vocab = params.cparams.opencoti_draft_vocab;

    if (!vocab || !vocab->cur || vocab->is_narrow || !llama_draft_vocab_needs_logits(params)) {
        return;
    }

    auto * res = params.res;
    auto * ctx = res->get_ctx();

    const int64_t n_vocab = vocab->cur->full->ne[1];
    const int64_t n_rows  = res->t_logits->ne[1];

    ggml_tensor * wide = ggml_fill_inplace(ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, n_vocab, n_rows), -INFINITY);

    wide = ggml_set_rows(ctx, wide, ggml_reshape_3d(ctx, res->t_logits, 1, vocab->n_slots, n_rows), vocab->cur->ids);

    res->t_logits = ggml_reshape_2d(ctx, wide, n_vocab, n_rows);
    ggml_format_name(res->t_logits, "draft_vocab_logits");

    // what it is a view of is where it is read
    ggml_set_output(wide->view_src);

    ggml_build_forward_expand(res->get_gf(), res->t_logits);
}

void llama_draft_vocab_map(const llm_graph_params & params, ggml_tensor *& tok, ggml_tensor *& top) {
    const auto * vocab = params.cparams.opencoti_draft_vocab;

    if (!vocab || !vocab->cur) {
        return;
    }

    auto * ctx = params.res->get_ctx();

    ggml_tensor * ids = ggml_reshape_2d(ctx, vocab->cur->ids, 1, vocab->n_slots);

    const auto map = [&](ggml_tensor * slots) {
        ggml_tensor * res = ggml_get_rows(ctx, ids, ggml_reshape_1d(ctx, slots, ggml_nelements(slots)));

        // read, and looked up by later steps, through a view of it
        ggml_set_output(res);

        return ggml_reshape_2d(ctx, res, slots->ne[0], slots->ne[1]);
    };

    tok = map(tok);
    top = map(top);
}

llama_draft_vocab_scope::llama_draft_vocab_scope(const llm_graph_params & params) : params(params) {
    if (params.cparams.opencoti_draft_vocab) {
        params.cparams.opencoti_draft_vocab->is_narrow = true;
    }
}

llama_draft_vocab_scope::~llama_draft_vocab_scope() {
    if (params.cparams.opencoti_draft_vocab) {
        params.cparams.opencoti_draft_vocab->is_narrow = false;
    }
}
