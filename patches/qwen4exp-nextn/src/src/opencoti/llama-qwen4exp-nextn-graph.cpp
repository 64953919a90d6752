#include "llama-qwen4exp-nextn.h"

#include "models/models.h"

ggml_tensor * llama_qwen4exp_nextn_defer(const llama_cparams & cparams, ggml_tensor *& out_ids) {
    ggml_tensor * res = nullptr;

    if (llama_qwen4exp_nextn_enabled() && cparams.embeddings_nextn && !cparams.embeddings_nextn_masked) {
        std::swap(res, out_ids);
    }

    return res;
}

static ggml_tensor * qwen4exp_nextn_pick(llm_graph_context & graph, ggml_tensor * res_hc, ggml_tensor * out_ids) {
    const int64_t n_embd = res_hc->ne[0];
    const int64_t hc     = res_hc->ne[1];

    ggml_tensor * rows = ggml_reshape_2d(graph.ctx0, res_hc, n_embd*hc, res_hc->ne[2]);

    rows = ggml_get_rows(graph.ctx0, rows, out_ids);

    return ggml_reshape_3d(graph.ctx0, rows, n_embd, hc, rows->ne[1]);
}

ggml_tensor * llama_qwen4exp_nextn_export(llm_graph_context & graph, ggml_tensor * res_hc, ggml_tensor * out_ids) {
    if (llama_qwen4exp_nextn_enabled() && graph.cparams.embeddings_nextn) {
        // not a view: the context asks the scheduler where it was computed, and views are computed nowhere
        graph.res->t_h_nextn = res_hc;
    }

    return out_ids ? qwen4exp_nextn_pick(graph, res_hc, out_ids) : res_hc;
}

// The block: embedding of the newest token and hidden row of the one before come together in each stream, then one
// layer as in the trunk, dense, then the head of the trunk.
llama_model_qwen4exp::graph::graph(const llama_model & model, const llm_graph_params & params, const llama_qwen4exp_nextn &) :
    llm_build_delta_net_base(params), model(model) {
    const int64_t hc     = hparams.dsv4_hc_mult;
    const int64_t hc_dim = hc*n_embd;

    const int64_t n_embd_head = hparams.n_embd_head_k();

    GGML_ASSERT(ubatch.token && "a NextN block takes tokens");
    GGML_ASSERT(n_embd_head == hparams.n_embd_head_v());
    GGML_ASSERT(hc_dim == (int64_t) hparams.n_embd_out());

    const int il = hparams.n_layer();

    const auto & layer = model.layers[il];

    int sections[4];
    std::copy(hparams.rope_sections.begin(), hparams.rope_sections.begin() + 4, sections);

    ggml_tensor * embd = nullptr;
    ggml_tensor * h    = nullptr;
    {
        auto inp = std::make_unique<llm_graph_input_embd_h>(hc_dim);

        inp->tokens = ggml_new_tensor_1d(ctx0, GGML_TYPE_I32, n_tokens);
        inp->embd   = ggml_new_tensor_2d(ctx0, GGML_TYPE_F32, hc_dim, n_tokens);
        inp->h      = ggml_new_tensor_2d(ctx0, GGML_TYPE_F32, hc_dim, n_tokens);

        ggml_set_input(inp->tokens);
        ggml_set_input(inp->embd);
        ggml_set_input(inp->h);
        ggml_set_name (inp->h, "nextn_h_input");

        embd = ggml_get_rows(ctx0, layer.nextn.embed_tokens ? layer.nextn.embed_tokens : model.tok_embd, inp->tokens);

        // a copy: who chains graphs of steps puts another tensor in the place of the input, and views would stay behind
        h = ggml_cont_3d(ctx0, inp->h, n_embd, hc, n_tokens);

        res->add_input(std::move(inp));
    }
    cb(embd, "nextn_embd", il);
    cb(h,    "nextn_h",    il);

    auto * inp_attn = build_attn_inp_kv();

    ggml_tensor * inp_pos = build_inp_pos();
    ggml_tensor * out_ids = build_inp_out_ids();

    ggml_tensor * out_ids_late = llama_qwen4exp_nextn_defer(cparams, out_ids);

    // in
    ggml_tensor * res_hc = nullptr;
    {
        h = ggml_mul(ctx0, ggml_rms_norm(ctx0, h, hparams.f_norm_rms_eps), layer.nextn.hnorm);
        cb(h, "nextn_hnorm", il);

        embd = build_norm(embd, layer.nextn.enorm, nullptr, LLM_NORM_RMS, il);
        cb(embd, "nextn_enorm", il);

        embd = ggml_reshape_3d(ctx0, embd, n_embd, 1, n_tokens);
        embd = ggml_repeat_4d (ctx0, embd, n_embd, hc, n_tokens, 1);

        ggml_tensor * both = ggml_concat(ctx0, embd, h, 0);
        both = ggml_reshape_2d(ctx0, both, 2*n_embd, hc*n_tokens);
        cb(both, "nextn_both", il);

        res_hc = build_lora_mm(layer.nextn.eh_proj, both, layer.nextn.eh_proj_s);
        res_hc = ggml_reshape_3d(ctx0, res_hc, n_embd, hc, n_tokens);
        cb(res_hc, "nextn_eh_proj", il);
    }

    ggml_tensor * inject = nullptr;
    ggml_tensor * cur = build_hc_mix(res_hc,
            layer.hc_attn_norm, layer.hc_attn_down, layer.hc_attn_up, layer.hc_attn_inject,
            &inject, il);

    // dense attention, with a gate for each head
    {
        auto [q_gate, k, v] = build_qkv(layer, cur,
                2*n_embd_head, n_head,
                n_embd_head,   n_head_kv,
                n_embd_head,   n_head_kv,
                il, false);

        // per head the query, then the gate
        const size_t nb_part  = ggml_row_size(q_gate->type, n_embd_head);
        const size_t nb_token = 2*nb_part*n_head;

        ggml_tensor * q    = ggml_view_3d(ctx0, q_gate, n_embd_head, n_head, n_tokens, 2*nb_part, nb_token, 0);
        ggml_tensor * gate = ggml_view_3d(ctx0, q_gate, n_embd_head, n_head, n_tokens, 2*nb_part, nb_token, nb_part);

        gate = ggml_cont_2d(ctx0, gate, n_embd_head*n_head, n_tokens);
        cb(gate, "nextn_gate", il);

        k = ggml_reshape_3d(ctx0, k, n_embd_head, n_head_kv, n_tokens);
        v = ggml_reshape_3d(ctx0, v, n_embd_head, n_head_kv, n_tokens);

        q = build_norm(q, layer.attn_q_norm, nullptr, LLM_NORM_RMS, il);
        k = build_norm(k, layer.attn_k_norm, nullptr, LLM_NORM_RMS, il);

        for (ggml_tensor ** x : { &q, &k }) {
            *x = ggml_rope_multi(ctx0, *x, inp_pos, nullptr,
                    n_rot, sections, rope_type, n_ctx_orig, freq_base, freq_scale,
                    ext_factor, attn_factor, beta_fast, beta_slow);
        }
        cb(q, "nextn_q", il);
        cb(k, "nextn_k", il);
        cb(v, "nextn_v", il);

        const float kq_scale = hparams.f_attention_scale == 0.0f ? 1.0f/sqrtf(float(n_embd_head)) : hparams.f_attention_scale;

        cur = build_attn(inp_attn, nullptr, nullptr, nullptr, q, k, v, nullptr, nullptr, nullptr, kq_scale, il);
        cur = ggml_mul(ctx0, cur, ggml_sigmoid(ctx0, gate));
        cur = build_lora_mm(layer.wo, cur, layer.wo_s);
        cb(cur, "nextn_attn_out", il);
    }

    if (out_ids) {
        // what follows is per token, and only the outputs are asked for
        cur    = ggml_get_rows(ctx0, cur,    out_ids);
        inject = ggml_get_rows(ctx0, inject, out_ids);
        res_hc = qwen4exp_nextn_pick(*this, res_hc, out_ids);
    }

    res_hc = build_hc_combine(res_hc, cur, inject, il);

    cur = build_hc_mix(res_hc,
            layer.hc_ffn_norm, layer.hc_ffn_down, layer.hc_ffn_up, layer.hc_ffn_inject,
            &inject, il);
    cur = build_layer_ffn(cur, il);
    cb(cur, "nextn_ffn_out", il);

    res_hc = build_hc_combine(res_hc, cur, inject, il);
    cb(res_hc, "nextn_out", il);

    // out; one row for each token, as it comes in
    ggml_tensor * out = llama_qwen4exp_nextn_export(*this, res_hc, out_ids_late);
    if (res->t_h_nextn) {
        res->t_h_nextn = ggml_cont_2d(ctx0, res_hc, hc_dim, res_hc->ne[2]);
        cb(res->t_h_nextn, "h_nextn", -1);
        ggml_build_forward_expand(gf, res->t_h_nextn);
    }

    cur = build_hc_mix(out, model.hc_head_norm, model.hc_head_down, model.hc_head_up, nullptr, nullptr, -1);
    cb(cur, "result_norm", -1);
    res->t_embd = cur;

    const bool own_head = layer.nextn.shared_head_head != nullptr;

    cur = build_lora_mm(
            own_head ? layer.nextn.shared_head_head   : model.output, cur,
            own_head ? layer.nextn.shared_head_head_s : model.output_s);
    cb(cur, "result_output", -1);
    res->t_logits = cur;

    ggml_build_forward_expand(gf, cur);
}
