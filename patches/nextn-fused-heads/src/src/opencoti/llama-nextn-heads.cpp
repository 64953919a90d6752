#include "llama-nextn-heads-impl.h"

#include "llama-hy-v3-chain-row.h"

#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
#include "llama-model.h"

#include <algorithm>
#include <memory>
#include <vector>

// Only what a fixture has shown to draft what the loop drafts.
static bool llama_nextn_heads_knows(llm_arch arch) {
    switch (arch) {
        case LLM_ARCH_STEP35:
        case LLM_ARCH_MIMO2:
        case LLM_ARCH_HY_V3:
            return true;
        default:
            return false;
    }
}

//
// draft
//

static llm_graph_params llama_nextn_heads_params(const llm_graph_params & params, int32_t step) {
    llm_graph_params res = params;

    res.cparams.nextn_layer_offset = step;

    return res;
}

// the catch-up that `whole` has room for
static llama_ubatch llama_nextn_heads_ubatch_catchup(llama_batch_allocr & balloc, uint32_t n_seqs) {
    const uint32_t n_seq_tokens = (llama_nextn_side::N_SMALL + n_seqs - 1)/n_seqs;

    llama_ubatch res = balloc.ubatch_reserve(n_seq_tokens, n_seqs);

    for (uint32_t i = 0; i < res.n_tokens; ++i) {
        res.n_seq_id[i] = 1;
        res.seq_id  [i] = &res.seq_id_unq[i/n_seq_tokens];
    }

    return res;
}

static bool llama_nextn_heads_reserve_chain(llama_nextn_access & access, llama_nextn_heads & heads, llama_nextn_heads_chain & chain, int32_t n_steps) {
    const auto & model = access.ctx.get_model();

    const auto mctx = access.memory()->init_full();
    if (!mctx) {
        return false;
    }

    const bool is_whole = &chain == &heads.whole;

    const auto save_n_outputs = access.n_outputs();

    // the memory as a whole has all streams
    const uint32_t n_seqs = access.cparams().kv_unified ? 1 : access.cparams().n_seq_max;

    access.n_outputs() = n_seqs;

    const size_t max_nodes = (n_steps + (is_whole ? 1 : 0))*(access.ctx.graph_max_nodes(n_steps) + 64);

    chain.lane.sched = access.new_sched(max_nodes);
    chain.lane.res.reset(new llm_graph_result(max_nodes));

    auto * res = chain.lane.res.get();

    bool ok = true;
    {
        llama_nextn_fused_scope scope(access, chain.lane);

        llama_batch_allocr balloc_catchup(model.hparams.n_pos_per_embd());
        if (is_whole) {
            auto params = access.graph_params(res, llama_nextn_heads_ubatch_catchup(balloc_catchup, n_seqs), mctx.get());
            params.samplers.clear();
            params.n_outputs = 0;

            ok = model.build_graph(params) != nullptr;
        }

        std::vector<llama_nextn_heads_node> nodes(n_steps);

        for (int32_t k = 0; k < n_steps && ok; ++k) {
            nodes[k].balloc.reset(new llama_batch_allocr(model.hparams.n_pos_per_embd()));

            llama_ubatch ubatch = nodes[k].balloc->ubatch_reserve(k + 1, n_seqs);

            for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
                ubatch.n_seq_id[i] = 1;
                ubatch.seq_id  [i] = &ubatch.seq_id_unq[i/(k + 1)];
                ubatch.output  [i] = i >= ubatch.n_tokens - n_seqs;
            }

            auto params = access.graph_params(res, ubatch, mctx.get());
            params.samplers.clear();

            ok = llama_nextn_heads_add_step(heads, model, llama_nextn_heads_params(params, k), nodes, k);
        }

        ok = ok && ggml_backend_sched_reserve(access.sched().get(), res->get_gf());
    }

    access.n_outputs() = save_n_outputs;

    return ok;
}

// From now on the context does without this graph, and without both where that of the steps alone is meant.
static void llama_nextn_heads_give_up(llama_nextn_heads & heads, llama_nextn_heads_chain & chain) {
    const bool is_whole = &chain == &heads.whole && heads.refusal.empty();

    LLAMA_LOG_WARN("%s: drafts of all heads in one graph %sare off: %s\n", __func__, is_whole ? "with the catch-up " : "",
            heads.refusal.empty() ? "no memory" : heads.refusal.c_str());

    const auto drop = [](llama_nextn_heads_chain & cur) {
        cur.lane.failed = true;
        cur.lane.active = nullptr;
        cur.lane.sched.reset();
        cur.lane.res.reset();

        cur.n_steps_max = 0;
    };

    drop(heads.whole);

    if (!is_whole) {
        drop(heads.plain);
    }
}

// false: there is no memory, or the graph cannot be chained
static bool llama_nextn_heads_reserve_steps(llama_nextn_access & access, llama_nextn_heads & heads, llama_nextn_heads_chain & chain, int32_t n_steps) {
    auto & lane = chain.lane;

    if (lane.failed || !heads.refusal.empty()) {
        return false;
    }

    if (chain.n_steps_max < n_steps) {
        lane.active = nullptr;

        if (!llama_nextn_heads_reserve_chain(access, heads, chain, n_steps)) {
            llama_nextn_heads_give_up(heads, chain);

            return false;
        }

        chain.n_steps_max = n_steps;
    }

    return true;
}

// nullptr if there is no memory or the graph cannot be chained
static llama_nextn_heads * llama_nextn_heads_get(llama_nextn_access & access, int32_t n_steps) {
    auto & side = access.side();

    // a model has one head or several, so nobody else keeps something here
    if (!side.extra) {
        side.extra.reset(new llama_nextn_heads());
    }

    auto * heads = static_cast<llama_nextn_heads *>(side.extra.get());

    return llama_nextn_heads_reserve_steps(access, *heads, heads->plain, n_steps) ? heads : nullptr;
}

// Which graph the steps go into, where a catch-up waits: as for one head, that which has its number
// of tokens, or is built for a number that keeps coming.
static llama_nextn_heads_chain & llama_nextn_heads_choose(llama_nextn_access & access, llama_nextn_heads & heads, int32_t n_steps) {
    const uint32_t n_same_min = 3;

    auto & waiting = access.side().waiting;

    if (!waiting) {
        return heads.plain;
    }

    // the update of the memory is behind us
    if (waiting->is_in_vain(access, false)) {
        access.side().spare = std::move(waiting);

        return heads.plain;
    }

    const uint32_t n_rows = waiting->mctx->get_ubatch().n_tokens;

    heads.n_rows_same = n_rows == heads.n_rows_last ? heads.n_rows_same + 1 : 1;
    heads.n_rows_last = n_rows;

    if ((n_rows == heads.whole.n_rows || heads.n_rows_same >= n_same_min) && n_rows <= llama_nextn_side::N_SMALL &&
            llama_nextn_heads_reserve_steps(access, heads, heads.whole, n_steps)) {
        return heads.whole;
    }

    waiting->compute(access);

    access.side().spare = std::move(waiting);

    return heads.plain;
}

// gives each step its cells: all of them get the same ones, since a step removes what the one before it has
static bool llama_nextn_heads_place(llama_nextn_access & access, llama_nextn_heads & heads, llama_nextn_heads_chain & chain, const llama_nextn_fused_seq & seq, int32_t n_steps) {
    const auto & model = access.ctx.get_model();

    // as for one head: no plan that is not carried out; the last step has a row for each
    if ((uint32_t) n_steps > access.cparams().n_ubatch) {
        return false;
    }

    if (chain.nodes.size() != (size_t) n_steps) {
        // the tensors of the graph go with the nodes
        chain.nodes.clear();
        chain.nodes.resize(n_steps);
        chain.lane.active = nullptr;
    }

    if (!heads.batch) {
        heads.batch.reset(new llama_batch_ext(&access.ctx));
    }

    const size_t n_embd = heads.batch->n_embd_inp;

    const auto * iswa = dynamic_cast<const llama_kv_cache_iswa *>(access.memory());

    for (int32_t k = 0; k < n_steps; ++k) {
        auto & node  = chain.nodes[k];
        auto & batch = *heads.batch;

        if (k > 0 && !access.memory()->seq_rm(seq.seq_id, seq.pos, -1)) {
            return false;
        }

        batch.clear();

        for (int32_t i = 0; i <= k; ++i) {
            // tokens and hidden rows of the later rows are not known here, and are not looked at
            const llama_pos pos = seq.pos + i;

            const int32_t idx = batch.add_token(seq.seq_id);
            if (idx < 0 ||
                !batch.set_token_id  (idx, seq.id) ||
                !batch.set_token_embd(idx, { seq.h, 1, n_embd }) ||
                !batch.set_token_pos (idx, &pos) ||
                !batch.set_output    (idx, i == k)) {
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

        const auto & ubatch = node.mctx->get_ubatch();
        if (ubatch.n_tokens != (uint32_t) k + 1 || !ubatch.output[k]) {
            return false;
        }

        if (iswa) {
            const auto & swa = *iswa->get_swa();

            if (k == 0 ? !heads.seen.look(swa, ubatch, 1) : heads.seen.takes(swa, ubatch)) {
                return false;
            }
        }

        if (!node.mctx->apply()) {
            return false;
        }
    }

    return true;
}

// the parameters of the graph of the catch-up; those of the steps are made from `params`
static llm_graph_params llama_nextn_heads_params_catchup(const llm_graph_params & params, const llama_nextn_waiting & waiting) {
    llm_graph_params res = params;

    res.ubatch    = waiting.mctx->get_ubatch();
    res.mctx      = waiting.mctx.get();
    res.n_outputs = 0;

    return res;
}

static bool llama_nextn_heads_can_reuse(llama_nextn_access & access, llama_nextn_heads_chain & chain, const llm_graph_params & params, int32_t n_steps) {
    auto * res = access.res(1).get();

    if (access.reuse_disable() || access.active() != res || chain.n_steps != n_steps || !chain.params->allow_reuse(params)) {
        return false;
    }

    if (chain.waiting) {
        const auto params_catchup = llama_nextn_heads_params_catchup(params, *chain.waiting);

        if (chain.n_rows != params_catchup.ubatch.n_tokens) {
            return false;
        }
        for (size_t j = 0; j < chain.i_inp_end; ++j) {
            if (!res->inputs[j]->can_reuse(params_catchup)) {
                return false;
            }
        }
    }

    for (int32_t k = 0; k < n_steps; ++k) {
        auto & node = chain.nodes[k];

        auto cur = llama_nextn_heads_params(params, k);

        cur.ubatch = node.mctx->get_ubatch();
        cur.mctx   = node.mctx.get();

        for (size_t j = node.i_inp_begin; j < node.i_inp_end; ++j) {
            if (!res->inputs[j]->can_reuse(cur)) {
                return false;
            }
        }
    }

    return true;
}

// the graph for what was placed: the one of the run before, or a new one
static bool llama_nextn_heads_build(llama_nextn_access & access, llama_nextn_heads & heads, llama_nextn_heads_chain & chain, int32_t n_steps) {
    const auto & model   = access.ctx.get_model();
    const auto & cparams = access.cparams();

    auto * res   = access.res(1).get();
    auto * sched = access.sched().get();

    access.n_outputs() = 1;

    std::unique_ptr<llm_graph_params> params(new llm_graph_params(
                access.graph_params(res, chain.nodes[0].mctx->get_ubatch(), chain.nodes[0].mctx.get())));
    params->samplers.clear();

    if (llama_nextn_heads_can_reuse(access, chain, *params, n_steps)) {
        // as process_ubatch(): the launch before may still read its inputs
        if (cparams.pipeline_parallel) {
            ggml_backend_sched_synchronize(sched);
        }

        access.n_reused()++;
        access.ctx.opencoti_counters.reused++;

        return true;
    }

    access.active() = nullptr;

    res->reset();

    ggml_backend_sched_reset(sched);
    ggml_backend_sched_set_eval_callback(sched, cparams.cb_eval, cparams.cb_eval_user_data);

    if (chain.waiting) {
        if (!model.build_graph(llama_nextn_heads_params_catchup(*params, *chain.waiting))) {
            return false;
        }

        chain.n_rows    = chain.waiting->mctx->get_ubatch().n_tokens;
        chain.i_inp_end = res->inputs.size();
    }

    for (int32_t k = 0; k < n_steps; ++k) {
        auto cur = llama_nextn_heads_params(*params, k);

        cur.ubatch = chain.nodes[k].mctx->get_ubatch();
        cur.mctx   = chain.nodes[k].mctx.get();

        if (!llama_nextn_heads_add_step(heads, model, cur, chain.nodes, k)) {
            return false;
        }
    }

    if (!ggml_backend_sched_alloc_graph(sched, res->get_gf())) {
        chain.lane.failed = true;

        return false;
    }

    chain.params  = std::move(params);
    chain.n_steps = n_steps;

    access.active() = res;

    return true;
}

static void llama_nextn_heads_set_inputs(const llama_nextn_heads_chain & chain, llm_graph_result & res) {
    if (chain.waiting) {
        for (size_t j = 0; j < chain.i_inp_end; ++j) {
            res.inputs[j]->set_input(&chain.waiting->mctx->get_ubatch());
        }
    }

    for (size_t k = 0; k < chain.nodes.size(); ++k) {
        const auto & node   = chain.nodes[k];
        const auto & ubatch = node.mctx->get_ubatch();

        for (size_t j = node.i_inp_begin; j < node.i_inp_end; ++j) {
            if (k == 0 || j != node.i_inp_embd) {
                res.inputs[j]->set_input(&ubatch);
            }
        }

        // looked up in vain, but looked up
        if (k > 0 && node.inp_tok->buffer) {
            ggml_backend_tensor_set(node.inp_tok, ubatch.token, 0, ggml_nbytes(node.inp_tok));
        }
    }
}

static void llama_nextn_heads_read(llama_nextn_access & access, const llama_nextn_heads_chain & chain, llama_nextn_fused_draft & draft) {
    auto * sched = access.sched().get();

    const auto get = [&](ggml_tensor * tensor, void * dst) {
        ggml_backend_tensor_get_async(ggml_backend_sched_get_tensor_backend(sched, tensor), tensor, dst, 0, ggml_nbytes(tensor));
    };

    const size_t n_steps = chain.nodes.size();

    draft.n_top = chain.nodes[0].top->ne[0];
    draft.ids       .resize(n_steps);
    draft.top_ids   .resize(n_steps*draft.n_top);
    draft.top_logits.resize(n_steps*draft.n_top);

    for (size_t k = 0; k < n_steps; ++k) {
        const auto & node = chain.nodes[k];

        get(node.tok,        draft.ids       .data() + k);
        get(node.top,        draft.top_ids   .data() + k*draft.n_top);
        get(node.top_logits, draft.top_logits.data() + k*draft.n_top);
    }

    ggml_backend_sched_synchronize(sched);
}

static bool llama_nextn_heads_run_impl(llama_nextn_access & access, llama_nextn_heads & heads, llama_nextn_heads_chain & chain, const llama_nextn_fused_seq & seq, int32_t n_steps, llama_nextn_fused_draft & draft) {
    if (!llama_nextn_heads_place(access, heads, chain, seq, n_steps)) {
        return false;
    }

    llama_nextn_fused_scope scope(access, chain.lane);

    if (!llama_nextn_heads_build(access, heads, chain, n_steps)) {
        return false;
    }

    auto * res = access.res(1).get();

    llama_nextn_heads_set_inputs(chain, *res);

    if (access.ctx.graph_compute(res->get_gf(), n_steps > 1) != GGML_STATUS_SUCCESS) {
        return false;
    }

    llama_nextn_heads_read(access, chain, draft);

    return true;
}

//
// interface
//

void llama_nextn_heads_set_catchup(llama_context * ctx, int32_t n_heads) {
    llama_nextn_access access { *ctx };

    if (access.cparams().opencoti_nextn_heads != n_heads) {
        access.cparams().opencoti_nextn_heads = n_heads;
        access.need_reserve() = true;
    }
}

bool llama_nextn_heads_reserve_catchup(llama_context * ctx) {
    ctx->sched_reserve();

    llama_nextn_access access { *ctx };

    if (access.reserve_prompt()) {
        return true;
    }

    // without the other heads it fits, as it does in upstream
    llama_nextn_heads_set_catchup(ctx, 0);

    return false;
}

const char * llama_nextn_heads_refusal(const llama_context * ctx) {
    const auto & model   = ctx->get_model();
    const auto & cparams = ctx->get_cparams();

    if (cparams.ctx_type != LLAMA_CONTEXT_TYPE_MTP || model.hparams.n_layer_nextn < 2) {
        return "the draft context has not several NextN heads";
    }
    if (!llama_nextn_heads_knows(model.arch)) {
        return "the architecture has not been shown to draft the same";
    }
    if (model.arch == LLM_ARCH_HY_V3 && !llama_hy_v3_chain_row_enabled()) {
        return "the loop takes another hidden row than that of the token before (OPENCOTI_HY_V3_CHAIN_ROW=1 mends it)";
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

size_t llama_nextn_heads_reserve(llama_context * ctx, int32_t n_steps) {
    ctx->sched_reserve();

    llama_nextn_access access { *ctx };

    const auto * heads = llama_nextn_heads_get(access, n_steps);

    return heads ? heads->plain.lane.size() : 0;
}

bool llama_nextn_heads_run(llama_context * ctx, const llama_nextn_fused_seq & seq, int32_t n_steps, llama_nextn_fused_draft & draft) {
    llama_nextn_access access { *ctx };

    // as decode()
    ctx->sched_reserve();
    ctx->memory_update(false);

    auto * heads = llama_nextn_heads_get(access, n_steps);
    if (!heads) {
        return false;
    }

    // the loop has one row in its first step and several in the others; a launch has one number of threads,
    // and on the CPU flash attention depends on it
    if (access.cparams().n_threads != access.cparams().n_threads_batch) {
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

    auto & chain = llama_nextn_heads_choose(access, *heads, n_steps);

    chain.waiting = access.side().waiting.get();

    const bool ok = llama_nextn_heads_run_impl(access, *heads, chain, seq, n_steps, draft);

    if (ok && chain.waiting) {
        access.side().spare = std::move(access.side().waiting);
    }
    chain.waiting = nullptr;

    // the outputs of the batch before are gone, as they would be after the first step of the loop
    access.n_outputs() = 0;
    std::fill(access.output_ids().begin(), access.output_ids().end(), -1);

    // the next draft would fail in the same way
    if (!ok && (chain.lane.failed || !heads->refusal.empty())) {
        llama_nextn_heads_give_up(*heads, chain);
    }

    if (!ok) {
        access.memory()->seq_rm(seq.seq_id, seq.pos, -1);
        return false;
    }

    access.t_p_eval_us() += ggml_time_us() - t_begin_us;
    access.n_p_eval()    += n_steps;

    return true;
}
