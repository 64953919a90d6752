#include "llama-nextn-fused-impl.h"

#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>

// the embeddings that `node` looks up come from the device on which the chain runs
static void llama_nextn_fused_move_embd(llama_nextn_fused & fused, const llama_model & model, ggml_tensor * node) {
    ggml_tensor * embd = node->src[0];

    auto * dev = model.dev_layer(model.hparams.n_layer());

    if (!dev || ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU || !embd->buffer || !ggml_backend_buffer_is_host(embd->buffer)) {
        return;
    }

    if (fused.src_embd != embd) {
        fused.src_embd = embd;
        fused.cpy_embd = nullptr;
        fused.buf_embd.reset();

        ggml_init_params params = {
            /*.mem_size   =*/ ggml_tensor_overhead(),
            /*.mem_buffer =*/ nullptr,
            /*.no_alloc   =*/ true,
        };
        fused.ctx_embd.reset(ggml_init(params));

        ggml_tensor * cpy = ggml_dup_tensor(fused.ctx_embd.get(), embd);
        ggml_format_name(cpy, "%s (nextn-fused)", embd->name);

        node->src[0] = cpy;
        const bool supported = ggml_backend_dev_supports_op(dev, node);
        node->src[0] = embd;

        if (!supported) {
            return;
        }

        auto * buft = ggml_backend_dev_buffer_type(dev);

        // a device says what is free; some let more be promised
        size_t free  = 0;
        size_t total = 0;
        ggml_backend_dev_memory(dev, &free, &total);

        const size_t size = ggml_backend_alloc_ctx_tensors_from_buft_size(fused.ctx_embd.get(), buft);

        if (total == 0 || size <= free) {
            fused.buf_embd.reset(ggml_backend_alloc_ctx_tensors_from_buft(fused.ctx_embd.get(), buft));
        }
        if (!fused.buf_embd) {
            LLAMA_LOG_WARN("%s: no %.2f MiB for a copy of the token embeddings in %s: each step looks them up on the host\n", __func__,
                    size/1024.0/1024.0, ggml_backend_buft_name(buft));
            return;
        }
        ggml_backend_buffer_set_usage(fused.buf_embd.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ggml_backend_tensor_set(cpy, embd->data, 0, ggml_nbytes(embd));

        fused.cpy_embd = cpy;
    }

    if (fused.cpy_embd) {
        node->src[0] = fused.cpy_embd;
    }
}

bool llama_nextn_fused_add(
        llama_nextn_fused            & fused,
        const llama_model            & model,
        const llm_graph_params       & params,
        const llama_nextn_fused_node * prev,
        llama_nextn_fused_node       & node) {
    auto * res = params.res;
    auto * gf  = res->get_gf();
    auto * ctx = res->get_ctx();

    const int i_node_begin = ggml_graph_n_nodes(gf);

    node.i_inp_begin = res->inputs.size();

    res->t_logits  = nullptr;
    res->t_h_nextn = nullptr;

    model.build_graph(params);

    node.i_inp_end = res->inputs.size();

    ggml_tensor * logits = res->t_logits;

    node.h = res->t_h_nextn;

    const int64_t n_rows = params.ubatch.n_tokens;

    if (!logits || !node.h || logits->ne[1] != n_rows || ggml_nrows(node.h) != n_rows || !ggml_is_contiguous(logits) || !ggml_is_contiguous(node.h)) {
        fused.refusal = "its graph has not one row of logits and of the hidden state for each sequence";
        return false;
    }

    ggml_tensor * inp_tok = nullptr;
    ggml_tensor * inp_h   = nullptr;

    int n_inp = 0;

    for (size_t i = node.i_inp_begin; i < node.i_inp_end; ++i) {
        auto * inp = res->inputs[i].get();

        if (auto * cur = dynamic_cast<llm_graph_input_embd_h *>(inp)) {
            inp_tok = cur->tokens;
            inp_h   = cur->h;
        } else if (auto * cur = dynamic_cast<llm_graph_input_embd *>(inp)) {
            // the hidden row is where a batch without tokens has its embeddings
            inp_tok = cur->tokens;
            inp_h   = cur->embd;
        } else {
            continue;
        }

        node.i_inp_embd = i;
        n_inp++;
    }

    if (n_inp > 1) {
        fused.refusal = "its graph has more than one input of tokens";
        return false;
    }

    if (!inp_tok || !inp_h || !ggml_are_same_shape(inp_h, node.h) || inp_h->type != node.h->type) {
        fused.refusal = "its graph does not take the hidden row that it gives";
        return false;
    }

    int n_tok = 0;
    int n_h   = 0;

    for (int i = i_node_begin; i < ggml_graph_n_nodes(gf); ++i) {
        ggml_tensor * cur = ggml_graph_node(gf, i);

        if (cur->view_src == inp_tok || cur->view_src == inp_h) {
            fused.refusal = "its graph looks at parts of its inputs";
            return false;
        }

        for (auto & src : cur->src) {
            if (src == inp_tok) {
                n_tok++;
                if (cur->op == GGML_OP_GET_ROWS && &src == &cur->src[1]) {
                    llama_nextn_fused_move_embd(fused, model, cur);
                }
                if (prev) {
                    src = prev->tok;
                }
            } else if (src == inp_h) {
                n_h++;
                if (prev) {
                    src = prev->h;
                }
            }
        }
    }

    if (n_tok == 0 || n_h == 0) {
        fused.refusal = "its graph does not use its inputs";
        return false;
    }

    const int64_t n_vocab = logits->ne[0];
    const int32_t n_top   = std::min<int64_t>(LLAMA_NEXTN_FUSED_N_TOP, n_vocab);

    node.tok        = ggml_argmax(ctx, logits);
    node.top        = ggml_top_k(ctx, logits, n_top);
    node.top_logits = ggml_get_rows(ctx, ggml_reshape_3d(ctx, logits, 1, n_vocab, n_rows), node.top);

    ggml_format_name(node.tok,        "nextn_fused_tok");
    ggml_format_name(node.top,        "nextn_fused_top");
    ggml_format_name(node.top_logits, "nextn_fused_top_logits");

    // what the next step and the host read must outlive the use counts, which do not know of the rewiring
    for (auto * out : { node.tok, node.h, node.top, node.top_logits }) {
        ggml_set_output(out);
        ggml_build_forward_expand(gf, out);
    }

    return true;
}
