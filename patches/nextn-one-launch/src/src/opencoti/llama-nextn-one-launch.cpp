#include "llama-nextn-one-launch.h"

#include "llama-nextn-side-impl.h"

#include "llama-batch.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
#include "llama-model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

static bool llama_nextn_one_launch_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_NEXTN_ONE_LAUNCH = getenv("OPENCOTI_NEXTN_ONE_LAUNCH");
        return OPENCOTI_NEXTN_ONE_LAUNCH && OPENCOTI_NEXTN_ONE_LAUNCH[0] && strcmp(OPENCOTI_NEXTN_ONE_LAUNCH, "0") != 0;
    }();

    return enabled;
}

// as process_ubatch(), for cells that are there already
static bool llama_nextn_one_launch_compute(llama_nextn_access & access, const llama_ubatch & ubatch, llama_memory_context_i * mctx) {
    // of heads that draft in turn the last one may have left its lane with the context
    if (access.side().turns) {
        access.side().turns->give_back(access);
    }

    const llama_nextn_catchup_scope scope(access.ctx, true, ubatch.n_tokens);

    auto * res   = access.res_prev();
    auto * sched = access.sched().get();

    const auto params = access.graph_params(res, ubatch, mctx);

    if (!access.reuse_disable() && access.active() == res && res->can_reuse(params)) {
        if (access.cparams().pipeline_parallel) {
            ggml_backend_sched_synchronize(sched);
        }

        access.n_reused()++;
        access.ctx.opencoti_counters.reused++;
    } else {
        access.active() = nullptr;

        res->reset();

        ggml_backend_sched_reset(sched);
        ggml_backend_sched_set_eval_callback(sched, access.cparams().cb_eval, access.cparams().cb_eval_user_data);

        auto * gf = access.ctx.get_model().build_graph(params);
        if (!gf || !ggml_backend_sched_alloc_graph(sched, gf)) {
            return false;
        }

        access.active() = res;
    }

    res->set_inputs(&ubatch);

    return access.ctx.graph_compute(res->get_gf(), ubatch.n_tokens > 1) == GGML_STATUS_SUCCESS;
}

// Are all cells free that the rows were given? Of a unified cache other sequences may have got them by a copy.
static bool llama_nextn_one_launch_is_free(const llama_kv_cache & kv, const llama_kv_cache_context & mctx, const llama_ubatch & ubatch) {
    ggml_init_params params = {
        /*.mem_size   =*/ ggml_tensor_overhead(),
        /*.mem_buffer =*/ nullptr,
        /*.no_alloc   =*/ true,
    };
    ggml_context_ptr ctx(ggml_init(params));

    ggml_tensor * idxs = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I64, ubatch.n_tokens);

    ggml_backend_buffer_ptr buf(ggml_backend_alloc_ctx_tensors_from_buft(ctx.get(), ggml_backend_cpu_buffer_type()));
    if (!buf) {
        return false;
    }

    mctx.set_input_k_idxs(idxs, &ubatch);

    const auto * data = (const int64_t *) idxs->data;

    for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
        // they count through all streams
        if (!kv.get_cells(ubatch.seq_id[i][0]).is_empty(data[i] % kv.get_size())) {
            return false;
        }
    }

    return true;
}

struct llama_nextn_one_launch_waiting : public llama_nextn_waiting {
    // A sequence that was cut off somewhere behind its first row still has rows that are read. Those of the others see the
    // cells before them, as do the rows of rejected tokens, which nobody reads. Only where one of several sequences was
    // emptied, rows that see nothing are computed: they give NaN, and nobody reads them either.
    bool is_in_vain(llama_nextn_access & access, bool copies_pending) const override {
        const auto & cparams = access.cparams();

        if (copies_pending && !cparams.kv_unified && cparams.n_seq_max > 1) {
            return false;
        }

        const auto & ubatch = mctx->get_ubatch();

        for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
            if (access.memory()->seq_pos_max(ubatch.seq_id[i][0]) >= ubatch.pos[i]) {
                return false;
            }
        }

        if (const auto * kv = dynamic_cast<const llama_kv_cache *>(access.memory())) {
            return llama_nextn_one_launch_is_free(*kv, static_cast<const llama_kv_cache_context &>(*mctx), ubatch);
        }

        if (const auto * kv = dynamic_cast<const llama_kv_cache_iswa *>(access.memory())) {
            return llama_nextn_one_launch_is_free(*kv->get_base(), *static_cast<const llama_kv_cache_iswa_context &>(*mctx).get_base(), ubatch);
        }

        return false;
    }

    void compute(llama_nextn_access & access) override {
        const auto & ubatch = mctx->get_ubatch();

        const auto save_n_outputs = access.n_outputs();

        access.n_outputs() = 0;

        if (!llama_nextn_one_launch_compute(access, ubatch, mctx.get())) {
            LLAMA_LOG_ERROR("%s: the catch-up could not be computed; its tokens are removed\n", __func__);

            for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
                access.memory()->seq_rm(ubatch.seq_id[i][0], ubatch.pos[i], -1);
            }
        }

        access.n_outputs() = save_n_outputs;
    }
};

// Does the memory decode the batch at once? It must not be asked: a cache of several streams plans
// micro-batches by giving out cells and taking them back, and takes back the place at which it looks for
// the next one only for streams whose numbers begin at 0 (llama_kv_cache::prepare()). A plan that is not
// carried out would leave other cells to later tokens.
static bool llama_nextn_one_launch_is_whole(const llama_batch_ext & batch, bool is_unified, uint32_t n_ubatch) {
    if (batch.tokens.size() > n_ubatch) {
        return false;
    }

    if (is_unified) {
        return true;
    }

    // streams with neighbouring numbers and as many tokens each
    std::map<llama_seq_id, size_t> n_tokens;

    for (const auto & tok : batch.tokens) {
        if (tok.seq_ids.size() != 1) {
            return false;
        }
        n_tokens[*tok.seq_ids.begin()]++;
    }

    const auto first = *n_tokens.begin();

    return std::all_of(n_tokens.begin(), n_tokens.end(), [&](const auto & cur) { return cur.second == first.second; }) &&
        n_tokens.rbegin()->first - first.first + 1 == (llama_seq_id) n_tokens.size();
}

bool llama_nextn_defer(llama_context * ctx, const llama_batch_ext * batch) {
    if (!llama_nextn_one_launch_enabled() || !ctx->opencoti_nextn || batch->tokens.empty() || batch->tokens.size() > llama_nextn_side::N_SMALL) {
        return false;
    }

    llama_nextn_access access { *ctx };

    const auto & cparams   = access.cparams();
    const auto & layer_inp = cparams.embeddings_layer_inp;

    // nothing may be read from the graph
    if (!access.side().extra || !access.side().extra->can_draft() || !llama_nextn_one_launch_is_whole(*batch, cparams.kv_unified, cparams.n_ubatch) || cparams.embeddings || !cparams.embeddings_nextn_masked ||
            std::find(layer_inp.begin(), layer_inp.end(), true) != layer_inp.end() ||
            std::any_of(batch->tokens.begin(), batch->tokens.end(), [](const auto & tok) { return tok.output; })) {
        return false;
    }

    // as decode()
    ctx->sched_reserve();
    ctx->memory_update(false);

    // it is gone if the scheduler was made anew
    if (!ctx->opencoti_nextn) {
        return false;
    }
    llama_nextn_flush(*ctx, false);

    const auto & model = ctx->get_model();

    auto waiting = std::move(access.side().spare);
    if (!waiting) {
        waiting.reset(new llama_nextn_one_launch_waiting());
        waiting->balloc.reset(new llama_batch_allocr(model.hparams.n_pos_per_embd()));
    }

    if (!waiting->balloc->init(*batch, model.vocab, false)) {
        return false;
    }

    waiting->mctx = access.memory()->init_batch(*waiting->balloc, cparams.n_ubatch, false);

    if (!waiting->mctx || waiting->mctx->get_status() != LLAMA_MEMORY_STATUS_SUCCESS ||
            waiting->mctx->get_ubatch().n_tokens != waiting->balloc->get_n_tokens()) {
        return false;
    }

    if (!waiting->mctx->apply()) {
        return false;
    }

    if (access.t_queued_us() == 0) {
        access.t_queued_us() = ggml_time_us();
    }
    access.n_queued() += waiting->balloc->get_n_tokens();

    access.n_outputs() = 0;
    std::fill(access.output_ids().begin(), access.output_ids().end(), -1);

    access.side().waiting = std::move(waiting);

    return true;
}

void llama_nextn_flush(llama_context & ctx, bool copies_pending) {
    if (!ctx.opencoti_nextn || !ctx.opencoti_nextn->waiting) {
        return;
    }

    llama_nextn_access access { ctx };

    auto waiting = std::move(ctx.opencoti_nextn->waiting);

    if (!waiting->is_in_vain(access, copies_pending)) {
        waiting->compute(access);
    }

    ctx.opencoti_nextn->spare = std::move(waiting);
}
