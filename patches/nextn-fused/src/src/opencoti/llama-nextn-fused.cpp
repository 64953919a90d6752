#include "llama-nextn-fused-impl.h"

#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
#include "llama-model.h"

#include <algorithm>

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
        case LLM_ARCH_QWEN4EXP:
            return true;
        default:
            return false;
    }
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

// the catch-up that `whole` has room for
static llama_ubatch llama_nextn_fused_ubatch_catchup(llama_batch_allocr & balloc, uint32_t n_seqs) {
    const uint32_t n_seq_tokens = (llama_nextn_side::N_SMALL + n_seqs - 1)/n_seqs;

    llama_ubatch res = balloc.ubatch_reserve(n_seq_tokens, n_seqs);

    for (uint32_t i = 0; i < res.n_tokens; ++i) {
        res.n_seq_id[i] = 1;
        res.seq_id  [i] = &res.seq_id_unq[i/n_seq_tokens];
    }

    return res;
}

static bool llama_nextn_fused_reserve_chain(llama_nextn_access & access, llama_nextn_fused & fused, llama_nextn_fused_chain & chain, int32_t n_steps) {
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

        chain.lane.sched = access.new_sched(n_one);
        chain.lane.res.reset(new llm_graph_result(n_one));

        auto * res = chain.lane.res.get();

        llama_nextn_fused_scope scope(access, chain.lane);

        auto params = access.graph_params(res, ubatch, mctx.get());
        params.samplers.clear();

        llama_nextn_fused_node node;
        if (llama_nextn_fused_add(fused, model, params, nullptr, node)) {
            // split streams: neighbours share a micro-batch, the others do not
            const size_t n_parts_max = access.cparams().kv_unified ? 1 : (n_seqs + 1)/2;

            max_nodes = 2*(n_steps*n_parts_max + 1)*(ggml_used_mem(res->get_ctx()) - ggml_graph_overhead_custom(n_one, false))/ggml_tensor_overhead() + 64;
        }
    }

    bool ok = false;

    if (max_nodes > 0) {
        chain.lane.sched = access.new_sched(max_nodes);
        chain.lane.res.reset(new llm_graph_result(max_nodes));

        auto * res = chain.lane.res.get();

        llama_nextn_fused_scope scope(access, chain.lane);

        auto params = access.graph_params(res, ubatch, mctx.get());
        params.samplers.clear();

        ok = true;

        llama_batch_allocr balloc_catchup(model.hparams.n_pos_per_embd());
        if (&chain == &fused.whole) {
            auto params_catchup = params;

            params_catchup.ubatch    = llama_nextn_fused_ubatch_catchup(balloc_catchup, n_seqs);
            params_catchup.n_outputs = 0;

            ok = model.build_graph(params_catchup) != nullptr;
        }

        std::vector<llama_nextn_fused_node> nodes(n_steps);

        for (int32_t k = 0; k < n_steps && ok; ++k) {
            ok = llama_nextn_fused_add(fused, model, params, k > 0 ? &nodes[k - 1] : nullptr, nodes[k]);
        }

        ok = ok && ggml_backend_sched_reserve(access.sched().get(), res->get_gf());
    }

    access.n_outputs() = save_n_outputs;

    return ok;
}

// From now on the context does without this graph, and without all of them where that of the steps alone is meant.
static void llama_nextn_fused_give_up(llama_nextn_fused & fused, llama_nextn_fused_chain & chain) {
    const bool is_whole = &chain == &fused.whole && fused.refusal.empty();

    LLAMA_LOG_WARN("%s: drafts in one graph %sare off: %s\n", __func__, is_whole ? "with the catch-up " : "",
            fused.refusal.empty() ? "no memory" : fused.refusal.c_str());

    const auto drop = [](llama_nextn_fused_chain & cur) {
        cur.lane.failed = true;
        cur.lane.active = nullptr;
        cur.lane.sched.reset();
        cur.lane.res.reset();

        cur.n_steps_max = 0;
    };

    drop(fused.whole);

    if (is_whole) {
        return;
    }

    drop(fused.plain);

    // no graph is left that looks it up
    fused.buf_embd.reset();
    fused.ctx_embd.reset();
    fused.src_embd = nullptr;
    fused.cpy_embd = nullptr;
}

// false: there is no memory, or the graph cannot be chained
static bool llama_nextn_fused_reserve_steps(llama_nextn_access & access, llama_nextn_fused & fused, llama_nextn_fused_chain & chain, int32_t n_steps) {
    auto & lane = chain.lane;

    if (lane.failed || !fused.refusal.empty()) {
        return false;
    }

    if (chain.n_steps_max < n_steps) {
        lane.active = nullptr;

        if (!llama_nextn_fused_reserve_chain(access, fused, chain, n_steps)) {
            llama_nextn_fused_give_up(fused, chain);

            return false;
        }

        chain.n_steps_max = n_steps;
    }

    return true;
}

// nullptr if there is no memory or the graph cannot be chained
static llama_nextn_fused * llama_nextn_fused_get(llama_nextn_access & access, int32_t n_steps) {
    auto & side = access.side();

    if (!side.extra) {
        side.extra.reset(new llama_nextn_fused());
    }

    auto * fused = static_cast<llama_nextn_fused *>(side.extra.get());

    return llama_nextn_fused_reserve_steps(access, *fused, fused->plain, n_steps) ? fused : nullptr;
}

//
// run
//

// The micro-batches into which the memory splits one token of each sequence. Split streams are
// decoded together where their numbers follow each other, a unified cache is decoded at once.
static llama_nextn_fused_parts llama_nextn_fused_split(const llama_nextn_fused_seq * seqs, size_t n_seqs, bool is_unified) {
    llama_nextn_fused_parts res;

    for (size_t i = 0; i < n_seqs; ++i) {
        if (i == 0 || (!is_unified && seqs[i].seq_id != seqs[i - 1].seq_id + 1)) {
            res.emplace_back();
        }
        res.back().push_back(seqs[i].seq_id);
    }

    return res;
}

// Which graph the steps go into, where a catch-up waits. Its number of tokens makes the shape, so
// the graph that has it is built for a number that keeps coming; others are computed by themselves.
static llama_nextn_fused_chain & llama_nextn_fused_choose(llama_nextn_access & access, llama_nextn_fused & fused, int32_t n_steps) {
    // catch-ups of a new number of tokens in a row, after which the graph is built for it
    const uint32_t n_same_min = 3;

    auto & waiting = access.side().waiting;

    if (!waiting) {
        return fused.plain;
    }

    // the update of the memory is behind us
    if (waiting->is_in_vain(access, false)) {
        access.side().spare = std::move(waiting);

        return fused.plain;
    }

    const uint32_t n_rows = waiting->mctx->get_ubatch().n_tokens;

    fused.n_rows_same = n_rows == fused.n_rows_last ? fused.n_rows_same + 1 : 1;
    fused.n_rows_last = n_rows;

    if ((n_rows == fused.whole.n_rows || fused.n_rows_same >= n_same_min) && n_rows <= llama_nextn_side::N_SMALL &&
            llama_nextn_fused_reserve_steps(access, fused, fused.whole, n_steps)) {
        return fused.whole;
    }

    waiting->compute(access);

    access.side().spare = std::move(waiting);

    return fused.plain;
}

// the parameters of the graph of the catch-up; those of the steps are made from `params`
static llm_graph_params llama_nextn_fused_params_catchup(const llm_graph_params & params, const llama_nextn_waiting & waiting) {
    llm_graph_params res = params;

    res.ubatch    = waiting.mctx->get_ubatch();
    res.mctx      = waiting.mctx.get();
    res.n_outputs = 0;

    return res;
}

static bool llama_nextn_fused_can_reuse(llama_nextn_access & access, llama_nextn_fused_chain & chain, llm_graph_params & params,
        const llama_nextn_fused_parts & parts, int32_t n_steps) {
    auto * res = access.res(1).get();

    if (access.reuse_disable() || access.active() != res || chain.n_steps != n_steps || chain.parts.size() != parts.size()) {
        return false;
    }

    for (size_t p = 0; p < parts.size(); ++p) {
        // a unified cache has one stream, whatever the sequences are
        if (access.cparams().kv_unified ? chain.parts[p].size() != parts[p].size() : chain.parts[p] != parts[p]) {
            return false;
        }
    }

    if (!chain.params->allow_reuse(params)) {
        return false;
    }

    if (chain.waiting) {
        const auto params_catchup = llama_nextn_fused_params_catchup(params, *chain.waiting);

        if (chain.n_rows != params_catchup.ubatch.n_tokens) {
            return false;
        }
        for (size_t j = 0; j < chain.i_inp_end; ++j) {
            if (!res->inputs[j]->can_reuse(params_catchup)) {
                return false;
            }
        }
    }

    for (size_t i = 0; i < chain.nodes.size(); ++i) {
        auto & node = chain.nodes[i];

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
static bool llama_nextn_fused_build(llama_nextn_access & access, llama_nextn_fused & fused, llama_nextn_fused_chain & chain,
        llama_nextn_fused_parts && parts, int32_t n_steps) {
    const auto & model   = access.ctx.get_model();
    const auto & cparams = access.cparams();

    auto * res   = access.res(1).get();
    auto * sched = access.sched().get();

    access.n_outputs() = parts[0].size();

    std::unique_ptr<llm_graph_params> params(new llm_graph_params(
                access.graph_params(res, chain.nodes[0].mctx->get_ubatch(), chain.nodes[0].mctx.get())));
    params->samplers.clear();

    if (llama_nextn_fused_can_reuse(access, chain, *params, parts, n_steps)) {
        // as process_ubatch(): the launch before may still read its inputs
        if (cparams.pipeline_parallel) {
            ggml_backend_sched_synchronize(sched);
        }

        access.n_reused()++;
        access.ctx.opencoti_counters.reused++;

        chain.parts = std::move(parts);

        return true;
    }

    access.active() = nullptr;

    res->reset();

    ggml_backend_sched_reset(sched);
    ggml_backend_sched_set_eval_callback(sched, cparams.cb_eval, cparams.cb_eval_user_data);

    if (chain.waiting) {
        if (!model.build_graph(llama_nextn_fused_params_catchup(*params, *chain.waiting))) {
            return false;
        }

        chain.n_rows    = chain.waiting->mctx->get_ubatch().n_tokens;
        chain.i_inp_end = res->inputs.size();
    }

    for (size_t i = 0; i < chain.nodes.size(); ++i) {
        auto & node = chain.nodes[i];

        params->ubatch    = node.mctx->get_ubatch();
        params->mctx      = node.mctx.get();
        params->n_outputs = params->ubatch.n_tokens;

        if (!llama_nextn_fused_add(fused, model, *params, i >= parts.size() ? &chain.nodes[i - parts.size()] : nullptr, node)) {
            return false;
        }
    }

    if (!ggml_backend_sched_alloc_graph(sched, res->get_gf())) {
        chain.lane.failed = true;

        return false;
    }

    params->ubatch    = chain.nodes[0].mctx->get_ubatch();
    params->mctx      = chain.nodes[0].mctx.get();
    params->n_outputs = params->ubatch.n_tokens;

    chain.params  = std::move(params);
    chain.parts   = std::move(parts);
    chain.n_steps = n_steps;

    access.active() = res;

    return true;
}

static void llama_nextn_fused_read(llama_nextn_access & access, const llama_nextn_fused_chain & chain, llama_nextn_fused_draft & draft) {
    auto * sched = access.sched().get();

    const auto get = [&](ggml_tensor * tensor, void * dst) {
        ggml_backend_tensor_get_async(ggml_backend_sched_get_tensor_backend(sched, tensor), tensor, dst, 0, ggml_nbytes(tensor));
    };

    size_t n_rows = 0;
    for (const auto & node : chain.nodes) {
        n_rows += node.tok->ne[0];
    }

    draft.n_top = chain.nodes[0].top->ne[0];
    draft.ids       .resize(n_rows);
    draft.top_ids   .resize(n_rows*draft.n_top);
    draft.top_logits.resize(n_rows*draft.n_top);

    size_t i = 0;
    for (const auto & node : chain.nodes) {
        get(node.tok,        draft.ids       .data() + i);
        get(node.top,        draft.top_ids   .data() + i*draft.n_top);
        get(node.top_logits, draft.top_logits.data() + i*draft.n_top);

        i += node.tok->ne[0];
    }

    ggml_backend_sched_synchronize(sched);
}

static bool llama_nextn_fused_run_impl(llama_nextn_access & access, llama_nextn_fused & fused, llama_nextn_fused_chain & chain,
        const llama_nextn_fused_seq * seqs, size_t n_seqs, int32_t n_steps, llama_nextn_fused_draft & draft) {
    auto parts = llama_nextn_fused_split(seqs, n_seqs, access.cparams().kv_unified);

    // a launch has one number of threads, and on the CPU flash attention depends on it
    const bool is_batched = parts[0].size() > 1;
    if (access.cparams().n_threads != access.cparams().n_threads_batch) {
        for (const auto & part : parts) {
            if (is_batched != (part.size() > 1)) {
                return false;
            }
        }
    }

    if (!llama_nextn_fused_place(access, fused, chain, parts, seqs, n_steps)) {
        return false;
    }

    llama_nextn_fused_scope scope(access, chain.lane);

    if (!llama_nextn_fused_build(access, fused, chain, std::move(parts), n_steps)) {
        return false;
    }

    auto * res = access.res(1).get();

    if (chain.waiting) {
        for (size_t j = 0; j < chain.i_inp_end; ++j) {
            res->inputs[j]->set_input(&chain.waiting->mctx->get_ubatch());
        }
    }

    for (size_t i = 0; i < chain.nodes.size(); ++i) {
        const auto & node = chain.nodes[i];

        for (size_t j = node.i_inp_begin; j < node.i_inp_end; ++j) {
            if (i < chain.parts.size() || j != node.i_inp_embd) {
                res->inputs[j]->set_input(&node.mctx->get_ubatch());
            }
        }
    }

    if (access.ctx.graph_compute(res->get_gf(), is_batched) != GGML_STATUS_SUCCESS) {
        return false;
    }

    llama_nextn_fused_read(access, chain, draft);

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

bool llama_nextn_fused_leaves_traces(const llama_context * ctx) {
    return dynamic_cast<const llama_kv_cache *>(ctx->get_memory()) == nullptr;
}

size_t llama_nextn_fused_reserve(llama_context * ctx, int32_t n_steps) {
    ctx->sched_reserve();

    llama_nextn_access access { *ctx };

    const auto * fused = llama_nextn_fused_get(access, n_steps);
    if (!fused) {
        return 0;
    }

    return fused->plain.lane.size() + (fused->buf_embd ? ggml_backend_buffer_get_size(fused->buf_embd.get()) : 0);
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

    auto & chain = llama_nextn_fused_choose(access, *fused, n_steps);

    fused->cur = &chain;

    chain.waiting = access.side().waiting.get();

    const bool ok = llama_nextn_fused_run_impl(access, *fused, chain, seqs, n_seqs, n_steps, draft);

    if (ok && chain.waiting) {
        access.side().spare = std::move(access.side().waiting);
    }
    chain.waiting = nullptr;

    // the outputs of the batch before are gone, as they would be after the first step of the loop
    access.n_outputs() = 0;
    std::fill(access.output_ids().begin(), access.output_ids().end(), -1);

    // the next draft would fail in the same way
    if (!ok && (chain.lane.failed || !fused->refusal.empty())) {
        llama_nextn_fused_give_up(*fused, chain);
    }

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

    const auto * chain = static_cast<const llama_nextn_fused *>(access.side().extra.get())->cur;

    size_t row = i_seq;
    for (size_t p = 0; p < chain->parts.size(); ++p) {
        if (row < chain->parts[p].size()) {
            const auto * h = chain->nodes[step*chain->parts.size() + p].h;

            ggml_backend_tensor_get(h, dst, row*h->nb[1], h->ne[0]*sizeof(float));
            return;
        }
        row -= chain->parts[p].size();
    }

    GGML_ABORT("no such sequence");
}
