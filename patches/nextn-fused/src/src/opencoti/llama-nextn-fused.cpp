#include "llama-nextn-fused.h"

#include "llama-nextn-side-impl.h"

#include "llama-batch.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
#include "llama-model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

// candidates of a step: as many as the drafter's sampler looks at
static const int32_t LLAMA_NEXTN_FUSED_N_TOP = 10;

// Only what a fixture has shown to draft what the loop drafts.
static bool llama_nextn_fused_knows(llm_arch arch) {
    switch (arch) {
        case LLM_ARCH_QWEN35:
        case LLM_ARCH_QWEN35MOE:
        case LLM_ARCH_QWEN3NEXT:
        case LLM_ARCH_GLM4_MOE:
        case LLM_ARCH_COHERE2MOE:
        case LLM_ARCH_DEEPSEEK2:
        case LLM_ARCH_DEEPSEEK32:
        case LLM_ARCH_GLM_DSA:
        case LLM_ARCH_BAILINGMOE3:
        case LLM_ARCH_NEMOTRON_H_MOE:
            return true;
        default:
            return false;
    }
}

// One step of the sequences that are decoded in one micro-batch.
struct llama_nextn_fused_node {
    // what the loop has for one decode; the graph's inputs point into them
    std::unique_ptr<llama_batch_allocr> balloc;
    llama_memory_context_ptr            mctx;

    // inputs of the graph result that are this step's; the first is skipped where it comes from the step before
    size_t i_inp_begin = 0;
    size_t i_inp_end   = 0;
    size_t i_inp_embd  = 0;

    ggml_tensor * tok        = nullptr; // I32 [n_seqs]
    ggml_tensor * h          = nullptr; // F32 [n_embd, n_seqs]
    ggml_tensor * top        = nullptr; // I32 [n_top, n_seqs]
    ggml_tensor * top_logits = nullptr; // F32 [1, n_top, n_seqs]

    // of the first step, if the cache has a window: the mask of all its cells
    ggml_context_ptr        ctx_seen;
    ggml_backend_buffer_ptr buf_seen;
};

struct llama_nextn_fused : public llama_nextn_extra {
    llama_nextn_lane lane;

    int32_t n_steps_max = 0; // what the buffers are for

    // what the graph was built for
    int32_t n_steps = 0;
    std::vector<std::vector<llama_seq_id>> parts; // sequences of each micro-batch
    std::unique_ptr<llm_graph_params> params;     // of the first node

    std::vector<llama_nextn_fused_node> nodes; // [n_steps][parts]

    std::unique_ptr<llama_batch_ext> batch;

    // a copy of the token embeddings where the chain runs, if they are elsewhere
    ggml_context_ptr        ctx_embd;
    ggml_backend_buffer_ptr buf_embd;
    const ggml_tensor *     src_embd = nullptr;
    ggml_tensor *           cpy_embd = nullptr;

    std::string refusal; // not empty: the graph of this model cannot be chained
};

// while it lives, the context uses the lane
struct llama_nextn_fused_scope {
    llama_nextn_fused_scope(llama_nextn_access & access, llama_nextn_lane & lane) : access(access), lane(lane) {
        access.exchange(lane, 1);
    }

    ~llama_nextn_fused_scope() {
        access.exchange(lane, 1);
    }

    llama_nextn_fused_scope(const llama_nextn_fused_scope &) = delete;
    llama_nextn_fused_scope & operator=(const llama_nextn_fused_scope &) = delete;

private:
    llama_nextn_access & access;
    llama_nextn_lane   & lane;
};

//
// graph
//

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

        fused.buf_embd.reset(ggml_backend_alloc_ctx_tensors_from_buft(fused.ctx_embd.get(), ggml_backend_dev_buffer_type(dev)));
        if (!fused.buf_embd) {
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

// Adds a step to the graph. `prev` is the step before it, nullptr for the first one.
static bool llama_nextn_fused_add(
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

//
// buffers
//

static llama_ubatch llama_nextn_fused_ubatch_reserve(llama_batch_allocr & balloc, uint32_t n_seqs) {
    llama_ubatch res = balloc.ubatch_reserve(1, n_seqs);

    for (uint32_t s = 0; s < n_seqs; ++s) {
        res.n_seq_id[s] = 1;
        res.seq_id  [s] = &res.seq_id_unq[s];
        res.output  [s] = true;
    }

    return res;
}

static bool llama_nextn_fused_reserve_impl(llama_nextn_access & access, llama_nextn_fused & fused, int32_t n_steps) {
    const auto & model = access.ctx.get_model();

    const auto mctx = access.memory()->init_full();
    if (!mctx) {
        return false;
    }

    const uint32_t n_seqs = access.cparams().n_seq_max;

    llama_batch_allocr balloc(model.hparams.n_pos_per_embd());
    const llama_ubatch ubatch = llama_nextn_fused_ubatch_reserve(balloc, n_seqs);

    const auto save_n_outputs = access.n_outputs();

    access.n_outputs() = n_seqs;

    // a graph of one step says how large one of all steps has to be
    size_t max_nodes = 0;
    {
        const size_t n_one = access.ctx.graph_max_nodes(n_seqs) + 64;

        fused.lane.sched = access.new_sched(n_one);
        fused.lane.res.reset(new llm_graph_result(n_one));

        auto * res = fused.lane.res.get();

        llama_nextn_fused_scope scope(access, fused.lane);

        auto params = access.graph_params(res, ubatch, mctx.get());
        params.samplers.clear();

        llama_nextn_fused_node node;
        if (llama_nextn_fused_add(fused, model, params, nullptr, node)) {
            // split streams: neighbours share a micro-batch, the others do not
            const size_t n_parts_max = access.cparams().kv_unified ? 1 : (n_seqs + 1)/2;

            max_nodes = 2*n_steps*n_parts_max*(ggml_used_mem(res->get_ctx()) - ggml_graph_overhead_custom(n_one, false))/ggml_tensor_overhead() + 64;
        }
    }

    bool ok = false;

    if (max_nodes > 0) {
        fused.lane.sched = access.new_sched(max_nodes);
        fused.lane.res.reset(new llm_graph_result(max_nodes));

        auto * res = fused.lane.res.get();

        llama_nextn_fused_scope scope(access, fused.lane);

        auto params = access.graph_params(res, ubatch, mctx.get());
        params.samplers.clear();

        std::vector<llama_nextn_fused_node> nodes(n_steps);

        ok = true;
        for (int32_t k = 0; k < n_steps && ok; ++k) {
            ok = llama_nextn_fused_add(fused, model, params, k > 0 ? &nodes[k - 1] : nullptr, nodes[k]);
        }

        ok = ok && ggml_backend_sched_reserve(access.sched().get(), res->get_gf());
    }

    access.n_outputs() = save_n_outputs;

    return ok;
}

// nullptr if there is no memory or the graph cannot be chained
static llama_nextn_fused * llama_nextn_fused_get(llama_nextn_access & access, int32_t n_steps) {
    auto & side = access.side();

    if (!side.extra) {
        side.extra.reset(new llama_nextn_fused());
    }

    auto * fused = static_cast<llama_nextn_fused *>(side.extra.get());

    if (fused->lane.failed || !fused->refusal.empty()) {
        return nullptr;
    }

    if (fused->n_steps_max < n_steps) {
        fused->lane.active = nullptr;

        if (!llama_nextn_fused_reserve_impl(access, *fused, n_steps)) {
            fused->lane.failed = true;
            fused->lane.sched.reset();
            fused->lane.res.reset();

            LLAMA_LOG_WARN("%s: drafts in one graph are off: %s\n", __func__, fused->refusal.empty() ? "no memory" : fused->refusal.c_str());

            return nullptr;
        }

        fused->n_steps_max = n_steps;
    }

    return fused;
}

//
// run
//

// The micro-batches into which the memory splits one token of each sequence. Split streams are
// decoded together where their numbers follow each other, a unified cache is decoded at once.
static std::vector<std::vector<llama_seq_id>> llama_nextn_fused_parts(const llama_nextn_fused_seq * seqs, size_t n_seqs, bool is_unified) {
    std::vector<std::vector<llama_seq_id>> res;

    for (size_t i = 0; i < n_seqs; ++i) {
        if (i == 0 || (!is_unified && seqs[i].seq_id != seqs[i - 1].seq_id + 1)) {
            res.emplace_back();
        }
        res.back().push_back(seqs[i].seq_id);
    }

    return res;
}

// A cache with a window gives out cells again that have left the window of the newest token. All
// steps have their cells before any mask is written, so what a later step takes must not be what an
// earlier one, or the next catch-up if the draft ends early, looks at.
static bool llama_nextn_fused_see(llama_nextn_fused_node & first, const llama_kv_cache & kv, const llama_ubatch & ubatch, int64_t n_streams) {
    ggml_init_params params = {
        /*.mem_size   =*/ ggml_tensor_overhead(),
        /*.mem_buffer =*/ nullptr,
        /*.no_alloc   =*/ true,
    };
    first.ctx_seen.reset(ggml_init(params));

    ggml_tensor * seen = ggml_new_tensor_4d(first.ctx_seen.get(), GGML_TYPE_F32, kv.get_size(), ubatch.n_tokens/n_streams, 1, n_streams);

    if (!first.buf_seen || ggml_backend_buffer_get_size(first.buf_seen.get()) < ggml_nbytes(seen)) {
        first.buf_seen.reset(ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), ggml_nbytes(seen)));
    }
    if (!first.buf_seen ||
            ggml_backend_tensor_alloc(first.buf_seen.get(), seen, ggml_backend_buffer_get_base(first.buf_seen.get())) != GGML_STATUS_SUCCESS) {
        return false;
    }

    kv.set_input_kq_mask(seen, &ubatch, true);

    return true;
}

static bool llama_nextn_fused_takes_seen(const llama_nextn_fused_node & first, const llama_kv_cache & kv, const llama_ubatch & ubatch) {
    const ggml_tensor * seen = ggml_get_first_tensor(first.ctx_seen.get());

    const int64_t n_cells   = seen->ne[0];
    const int64_t n_rows    = seen->ne[1];
    const int64_t n_streams = seen->ne[3];

    const float * data = (const float *) seen->data;

    const auto sinfo = kv.find_slot(ubatch, false);

    for (size_t s = 0; s < sinfo.idxs.size(); ++s) {
        for (const uint32_t idx : sinfo.idxs[s]) {
            // one stream: the cell belongs to any of the sequences
            for (int64_t row = 0; row < n_rows; ++row) {
                if (data[((n_streams > 1 ? s : 0)*n_rows + row)*n_cells + idx] == 0.0f) {
                    return true;
                }
            }
        }
    }

    return sinfo.empty();
}

// gives each step its cells, in the order in which the loop would; false: they do not fit
static bool llama_nextn_fused_place(
        llama_nextn_access                           & access,
        llama_nextn_fused                            & fused,
        const std::vector<std::vector<llama_seq_id>> & parts,
        const llama_nextn_fused_seq                  * seqs,
        int32_t                                        n_steps) {
    const auto & model = access.ctx.get_model();

    if (fused.nodes.size() != n_steps*parts.size()) {
        // the tensors of the graph go with the nodes
        fused.nodes.resize(n_steps*parts.size());
        fused.lane.active = nullptr;
    }

    if (!fused.batch) {
        fused.batch.reset(new llama_batch_ext(&access.ctx));
    }

    const size_t n_embd = fused.batch->n_embd_inp;

    const auto * iswa = dynamic_cast<const llama_kv_cache_iswa *>(access.memory());

    for (int32_t k = 0; k < n_steps; ++k) {
        size_t i = 0;

        for (size_t p = 0; p < parts.size(); ++p) {
            auto & node = fused.nodes[k*parts.size() + p];

            auto & batch = *fused.batch;
            batch.clear();

            for (size_t r = 0; r < parts[p].size(); ++r, ++i) {
                // token and hidden row of the later steps are not known here, and are not looked at
                const llama_pos pos = seqs[i].pos + k;

                const int32_t idx = batch.add_token(seqs[i].seq_id);
                if (idx < 0 ||
                    !batch.set_token_id  (idx, seqs[i].id) ||
                    !batch.set_token_embd(idx, { seqs[i].h, 1, n_embd }) ||
                    !batch.set_token_pos (idx, &pos) ||
                    !batch.set_output    (idx, true)) {
                    return false;
                }
            }

            if (!node.balloc) {
                node.balloc.reset(new llama_batch_allocr(model.hparams.n_pos_per_embd()));
            }

            if (!node.balloc->init(batch, model.vocab, false)) {
                return false;
            }

            node.mctx = access.memory()->init_batch(*node.balloc, access.cparams().n_ubatch, false);
            if (!node.mctx || node.mctx->get_status() != LLAMA_MEMORY_STATUS_SUCCESS) {
                return false;
            }

            // the rows must be the sequences, in this order
            const auto & ubatch = node.mctx->get_ubatch();
            if (ubatch.n_tokens != parts[p].size()) {
                return false;
            }
            for (uint32_t r = 0; r < ubatch.n_tokens; ++r) {
                if (ubatch.seq_id[r][0] != parts[p][r]) {
                    return false;
                }
            }

            if (iswa) {
                auto & first = fused.nodes[p];

                const auto & swa = *iswa->get_swa();

                if (k == 0 ? !llama_nextn_fused_see       (first, swa, ubatch, access.cparams().kv_unified ? 1 : ubatch.n_tokens)
                           :  llama_nextn_fused_takes_seen(first, swa, ubatch)) {
                    return false;
                }
            }

            if (!node.mctx->apply()) {
                return false;
            }
        }
    }

    return true;
}

static bool llama_nextn_fused_can_reuse(llama_nextn_access & access, llama_nextn_fused & fused, llm_graph_params & params,
        const std::vector<std::vector<llama_seq_id>> & parts, int32_t n_steps) {
    auto * res = access.res(1).get();

    if (access.reuse_disable() || access.active() != res || fused.n_steps != n_steps || fused.parts.size() != parts.size()) {
        return false;
    }

    for (size_t p = 0; p < parts.size(); ++p) {
        // a unified cache has one stream, whatever the sequences are
        if (access.cparams().kv_unified ? fused.parts[p].size() != parts[p].size() : fused.parts[p] != parts[p]) {
            return false;
        }
    }

    if (!fused.params->allow_reuse(params)) {
        return false;
    }

    for (size_t i = 0; i < fused.nodes.size(); ++i) {
        auto & node = fused.nodes[i];

        params.ubatch    = node.mctx->get_ubatch();
        params.mctx      = node.mctx.get();
        params.n_outputs = params.ubatch.n_tokens;

        for (size_t j = node.i_inp_begin; j < node.i_inp_end; ++j) {
            if (!res->inputs[j]->can_reuse(params)) {
                return false;
            }
        }
    }

    return true;
}

// the graph for what was placed: the one of the run before, or a new one
static bool llama_nextn_fused_build(llama_nextn_access & access, llama_nextn_fused & fused,
        std::vector<std::vector<llama_seq_id>> && parts, int32_t n_steps) {
    const auto & model   = access.ctx.get_model();
    const auto & cparams = access.cparams();

    auto * res   = access.res(1).get();
    auto * sched = access.sched().get();

    access.n_outputs() = parts[0].size();

    std::unique_ptr<llm_graph_params> params(new llm_graph_params(
                access.graph_params(res, fused.nodes[0].mctx->get_ubatch(), fused.nodes[0].mctx.get())));
    params->samplers.clear();

    if (llama_nextn_fused_can_reuse(access, fused, *params, parts, n_steps)) {
        // as process_ubatch(): the launch before may still read its inputs
        if (cparams.pipeline_parallel) {
            ggml_backend_sched_synchronize(sched);
        }

        access.n_reused()++;
        access.ctx.opencoti_counters.reused++;

        fused.parts = std::move(parts);

        return true;
    }

    access.active() = nullptr;

    res->reset();

    ggml_backend_sched_reset(sched);
    ggml_backend_sched_set_eval_callback(sched, cparams.cb_eval, cparams.cb_eval_user_data);

    for (size_t i = 0; i < fused.nodes.size(); ++i) {
        auto & node = fused.nodes[i];

        params->ubatch    = node.mctx->get_ubatch();
        params->mctx      = node.mctx.get();
        params->n_outputs = params->ubatch.n_tokens;

        if (!llama_nextn_fused_add(fused, model, *params, i >= parts.size() ? &fused.nodes[i - parts.size()] : nullptr, node)) {
            return false;
        }
    }

    if (!ggml_backend_sched_alloc_graph(sched, res->get_gf())) {
        return false;
    }

    params->ubatch    = fused.nodes[0].mctx->get_ubatch();
    params->mctx      = fused.nodes[0].mctx.get();
    params->n_outputs = params->ubatch.n_tokens;

    fused.params  = std::move(params);
    fused.parts   = std::move(parts);
    fused.n_steps = n_steps;

    access.active() = res;

    return true;
}

static void llama_nextn_fused_read(llama_nextn_access & access, const llama_nextn_fused & fused, llama_nextn_fused_draft & draft) {
    auto * sched = access.sched().get();

    const auto get = [&](ggml_tensor * tensor, void * dst) {
        ggml_backend_tensor_get_async(ggml_backend_sched_get_tensor_backend(sched, tensor), tensor, dst, 0, ggml_nbytes(tensor));
    };

    size_t n_rows = 0;
    for (const auto & node : fused.nodes) {
        n_rows += node.tok->ne[0];
    }

    draft.n_top = fused.nodes[0].top->ne[0];
    draft.ids       .resize(n_rows);
    draft.top_ids   .resize(n_rows*draft.n_top);
    draft.top_logits.resize(n_rows*draft.n_top);

    size_t i = 0;
    for (const auto & node : fused.nodes) {
        get(node.tok,        draft.ids       .data() + i);
        get(node.top,        draft.top_ids   .data() + i*draft.n_top);
        get(node.top_logits, draft.top_logits.data() + i*draft.n_top);

        i += node.tok->ne[0];
    }

    ggml_backend_sched_synchronize(sched);
}

static bool llama_nextn_fused_run_impl(llama_nextn_access & access, llama_nextn_fused & fused,
        const llama_nextn_fused_seq * seqs, size_t n_seqs, int32_t n_steps, llama_nextn_fused_draft & draft) {
    auto parts = llama_nextn_fused_parts(seqs, n_seqs, access.cparams().kv_unified);

    // a launch has one number of threads, and on the CPU flash attention depends on it
    const bool is_batched = parts[0].size() > 1;
    if (access.cparams().n_threads != access.cparams().n_threads_batch) {
        for (const auto & part : parts) {
            if (is_batched != (part.size() > 1)) {
                return false;
            }
        }
    }

    if (!llama_nextn_fused_place(access, fused, parts, seqs, n_steps)) {
        return false;
    }

    llama_nextn_fused_scope scope(access, fused.lane);

    if (!llama_nextn_fused_build(access, fused, std::move(parts), n_steps)) {
        return false;
    }

    auto * res = access.res(1).get();

    for (size_t i = 0; i < fused.nodes.size(); ++i) {
        const auto & node = fused.nodes[i];

        for (size_t j = node.i_inp_begin; j < node.i_inp_end; ++j) {
            if (i < fused.parts.size() || j != node.i_inp_embd) {
                res->inputs[j]->set_input(&node.mctx->get_ubatch());
            }
        }
    }

    if (access.ctx.graph_compute(res->get_gf(), is_batched) != GGML_STATUS_SUCCESS) {
        return false;
    }

    llama_nextn_fused_read(access, fused, draft);

    return true;
}

//
// interface
//

const char * llama_nextn_fused_refusal(const llama_context * ctx) {
    const auto & model   = ctx->get_model();
    const auto & cparams = ctx->get_cparams();

    if (cparams.ctx_type != LLAMA_CONTEXT_TYPE_MTP || model.hparams.n_layer_nextn == 0) {
        return "the draft context is not one of NextN";
    }
    if (!llama_nextn_fused_knows(model.arch)) {
        return "the architecture has not been shown to draft the same";
    }
    if (model.hparams.n_layer_nextn != 1) {
        return "the model has several NextN heads";
    }
    if (cparams.pooling_type != LLAMA_POOLING_TYPE_NONE || cparams.embeddings || !cparams.embeddings_nextn || !cparams.embeddings_nextn_masked) {
        return "the context gives other embeddings than hidden rows of its outputs";
    }
    if (!cparams.causal_attn) {
        return "attention is not causal";
    }
    if (model.split_mode() == LLAMA_SPLIT_MODE_TENSOR) {
        return "tensors are split over devices";
    }
    if (!dynamic_cast<const llama_kv_cache *>(ctx->get_memory()) && !dynamic_cast<const llama_kv_cache_iswa *>(ctx->get_memory())) {
        return "the memory is not a KV cache";
    }

    return nullptr;
}

size_t llama_nextn_fused_reserve(llama_context * ctx, int32_t n_steps) {
    ctx->sched_reserve();

    llama_nextn_access access { *ctx };

    const auto * fused = llama_nextn_fused_get(access, n_steps);
    if (!fused) {
        return 0;
    }

    return fused->lane.size() + (fused->buf_embd ? ggml_backend_buffer_get_size(fused->buf_embd.get()) : 0);
}

bool llama_nextn_fused_run(llama_context * ctx, const llama_nextn_fused_seq * seqs, size_t n_seqs, int32_t n_steps, llama_nextn_fused_draft & draft) {
    if (n_seqs == 0 || n_steps < 1) {
        return false;
    }

    llama_nextn_access access { *ctx };

    // as decode()
    ctx->sched_reserve();
    ctx->memory_update(false);

    auto * fused = llama_nextn_fused_get(access, n_steps);
    if (!fused) {
        return false;
    }

    const int64_t t_begin_us = ggml_time_us();

    // what was queued before ends here for the statistics, as it would with the first step of the loop
    if (access.n_queued() > 0) {
        access.t_p_eval_us() += t_begin_us - access.t_queued_us();
        access.n_p_eval()    += access.n_queued();
        access.n_queued()     = 0;
        access.t_queued_us()  = 0;
    }

    const bool ok = llama_nextn_fused_run_impl(access, *fused, seqs, n_seqs, n_steps, draft);

    // the outputs of the batch before are gone, as they would be after the first step of the loop
    access.n_outputs() = 0;
    std::fill(access.output_ids().begin(), access.output_ids().end(), -1);

    if (!ok) {
        for (size_t i = 0; i < n_seqs; ++i) {
            access.memory()->seq_rm(seqs[i].seq_id, seqs[i].pos, -1);
        }
        return false;
    }

    const int64_t t_run_us = ggml_time_us() - t_begin_us;

    if (n_seqs == 1) {
        access.t_eval_us() += t_run_us;
        access.n_eval()    += n_steps;
    } else {
        access.t_p_eval_us() += t_run_us;
        access.n_p_eval()    += n_steps*n_seqs;
    }

    return true;
}

void llama_nextn_fused_get_h(llama_context * ctx, int32_t step, size_t i_seq, float * dst) {
    llama_nextn_access access { *ctx };

    const auto * fused = static_cast<const llama_nextn_fused *>(access.side().extra.get());

    size_t row = i_seq;
    for (size_t p = 0; p < fused->parts.size(); ++p) {
        if (row < fused->parts[p].size()) {
            const auto * h = fused->nodes[step*fused->parts.size() + p].h;

            ggml_backend_tensor_get(h, dst, row*h->nb[1], h->ne[0]*sizeof(float));
            return;
        }
        row -= fused->parts[p].size();
    }

    GGML_ABORT("no such sequence");
}
