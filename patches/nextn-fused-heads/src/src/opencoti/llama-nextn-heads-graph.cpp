#include "llama-nextn-heads-catchup.h"
#include "llama-nextn-heads-impl.h"

#include "llama-model.h"

#include <algorithm>

void llama_nextn_heads_add(const llama_model & model, const llm_graph_params & params) {
    const auto & cparams = params.cparams;

    // with an offset the caller asks for one head
    if (params.gtype != LLM_GRAPH_TYPE_DECODER_MTP || params.n_outputs > 0 || cparams.nextn_layer_offset != 0 || cparams.opencoti_nextn_heads < 2) {
        return;
    }

    for (int32_t k = 1; k < cparams.opencoti_nextn_heads; ++k) {
        llm_graph_params head = params;

        head.cparams.nextn_layer_offset = k;

        model.build_arch_graph(head);
    }

    // each builder leaves its own there
    params.res->set_params(params);
}

bool llama_nextn_heads_add_step(
        llama_nextn_heads                   & heads,
        const llama_model                   & model,
        const llm_graph_params              & params,
        std::vector<llama_nextn_heads_node> & nodes,
        size_t                                k) {
    auto * res = params.res;
    auto * gf  = res->get_gf();
    auto * ctx = res->get_ctx();

    auto & node = nodes[k];

    const auto & layer = model.layers[model.hparams.n_layer() + k];

    ggml_tensor * weights = layer.nextn.embed_tokens ? layer.nextn.embed_tokens : model.tok_embd;

    // what the step is fed with comes before its graph, since nodes are computed in this order
    ggml_tensor * embd = nullptr;
    ggml_tensor * rows = nullptr;

    if (k > 0) {
        const auto & prev = nodes[k - 1];

        if (prev.weights == weights) {
            embd = ggml_concat(ctx, prev.embd, ggml_get_rows(ctx, weights, prev.tok), 1);
        } else {
            embd = ggml_get_rows(ctx, weights, nodes[0].inp_tok);
            for (size_t j = 0; j < k; ++j) {
                embd = ggml_concat(ctx, embd, ggml_get_rows(ctx, weights, nodes[j].tok), 1);
            }
        }
        rows = ggml_concat(ctx, prev.rows, prev.h, 1);

        ggml_format_name(embd, "nextn_heads_embd-%d", (int) k);
        ggml_format_name(rows, "nextn_heads_rows-%d", (int) k);

        // use counts do not know of the rewiring
        for (auto * out : { embd, rows }) {
            ggml_set_output(out);
            ggml_build_forward_expand(gf, out);
        }
    }

    const int i_node_begin = ggml_graph_n_nodes(gf);

    node.i_inp_begin = res->inputs.size();

    res->t_logits  = nullptr;
    res->t_h_nextn = nullptr;

    model.build_graph(params);

    node.i_inp_end = res->inputs.size();

    const int64_t n_rows = params.ubatch.n_tokens;
    const int64_t n_out  = params.n_outputs;

    ggml_tensor * logits = res->t_logits;
    ggml_tensor * h      = res->t_h_nextn;

    if (!logits || !h || logits->ne[1] != n_out || (ggml_nrows(h) != n_out && ggml_nrows(h) != n_rows) || !ggml_is_contiguous(logits) || !ggml_is_contiguous(h)) {
        heads.refusal = "its graph has not one row of logits and of the hidden state for its output";
        return false;
    }

    ggml_tensor * inp_h = nullptr;

    int n_inp = 0;

    for (size_t i = node.i_inp_begin; i < node.i_inp_end; ++i) {
        auto * inp = res->inputs[i].get();

        if (auto * cur = dynamic_cast<llm_graph_input_embd_h *>(inp)) {
            node.inp_tok = cur->tokens;
            inp_h        = cur->h;
        } else if (auto * cur = dynamic_cast<llm_graph_input_embd *>(inp)) {
            // the hidden row is where a batch without tokens has its embeddings
            node.inp_tok = cur->tokens;
            inp_h        = cur->embd;
        } else {
            continue;
        }

        node.i_inp_embd = i;
        n_inp++;
    }

    if (n_inp != 1 || !node.inp_tok || !inp_h || inp_h->ne[0] != h->ne[0] || inp_h->ne[1] != n_rows || inp_h->type != h->type) {
        heads.refusal = "its graph does not take the hidden rows that it gives";
        return false;
    }

    // the place where the tokens are looked up
    ggml_tensor * lookup = nullptr;

    int n_lookup = 0;

    for (int i = i_node_begin; i < ggml_graph_n_nodes(gf); ++i) {
        ggml_tensor * cur = ggml_graph_node(gf, i);

        for (const auto * src : cur->src) {
            if (src == node.inp_tok) {
                lookup = cur;
                n_lookup++;
            }
        }
    }

    if (n_lookup != 1 || lookup->op != GGML_OP_GET_ROWS || lookup->src[1] != node.inp_tok || lookup->src[0] != weights) {
        heads.refusal = "its graph does not look up its tokens once, where its head has them";
        return false;
    }

    node.weights = weights;
    node.embd    = k > 0 ? embd : lookup;
    node.rows    = k > 0 ? rows : inp_h;

    if (k > 0) {
        int n_embd = 0;
        int n_h    = 0;

        for (int i = i_node_begin; i < ggml_graph_n_nodes(gf); ++i) {
            ggml_tensor * cur = ggml_graph_node(gf, i);

            if (cur->view_src == lookup || cur->view_src == inp_h) {
                heads.refusal = "its graph looks at parts of its inputs";
                return false;
            }

            for (auto & src : cur->src) {
                if (src == lookup) {
                    src = embd;
                    n_embd++;
                } else if (src == inp_h) {
                    src = rows;
                    n_h++;
                }
            }
        }

        if (n_embd == 0 || n_h == 0) {
            heads.refusal = "its graph does not use its inputs";
            return false;
        }
    } else {
        // read by all later steps
        ggml_set_output(lookup);
    }

    const int64_t n_vocab = logits->ne[0];
    const int32_t n_top   = std::min<int64_t>(LLAMA_NEXTN_FUSED_N_TOP, n_vocab);

    // where all rows are given, the output is the last one
    node.h          = ggml_nrows(h) == n_out ? h : ggml_cont(ctx, ggml_view_2d(ctx, h, h->ne[0], n_out, h->nb[1], (n_rows - n_out)*h->nb[1]));
    node.tok        = ggml_argmax(ctx, logits);
    node.top        = ggml_top_k(ctx, logits, n_top);
    node.top_logits = ggml_get_rows(ctx, ggml_reshape_3d(ctx, logits, 1, n_vocab, n_out), node.top);

    ggml_format_name(node.tok,        "nextn_heads_tok");
    ggml_format_name(node.top,        "nextn_heads_top");
    ggml_format_name(node.top_logits, "nextn_heads_top_logits");

    for (auto * out : { node.tok, node.h, node.top, node.top_logits }) {
        ggml_set_output(out);
        ggml_build_forward_expand(gf, out);
    }

    return true;
}
