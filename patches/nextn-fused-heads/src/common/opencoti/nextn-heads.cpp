#include "nextn-heads.h"

#include "spec-trace.h"

#include "log.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

enum common_nextn_heads_mode {
    COMMON_NEXTN_HEADS_OFF,
    COMMON_NEXTN_HEADS_ADAPT,
    COMMON_NEXTN_HEADS_ALWAYS, // whatever it costs: for tests
};

static common_nextn_heads_mode common_nextn_heads_get_mode() {
    static const common_nextn_heads_mode mode = [] {
        const char * OPENCOTI_NEXTN_FUSED_HEADS = getenv("OPENCOTI_NEXTN_FUSED_HEADS");

        if (!OPENCOTI_NEXTN_FUSED_HEADS || !OPENCOTI_NEXTN_FUSED_HEADS[0] || strcmp(OPENCOTI_NEXTN_FUSED_HEADS, "0") == 0) {
            return COMMON_NEXTN_HEADS_OFF;
        }
        return strcmp(OPENCOTI_NEXTN_FUSED_HEADS, "always") == 0 ? COMMON_NEXTN_HEADS_ALWAYS : COMMON_NEXTN_HEADS_ADAPT;
    }();

    return mode;
}

void common_nextn_heads::init(const common_params_speculative_draft & params, bool is_mem_shared, bool chain_heads) {
    if (common_nextn_heads_get_mode() == COMMON_NEXTN_HEADS_OFF) {
        return;
    }

    const char * refusal =
        is_mem_shared    ? "the draft context shares the memory of the target" :
        !chain_heads     ? "the model has one NextN head" :
        params.n_max < 1 ? "no token is drafted" :
        llama_nextn_heads_refusal(params.ctx_dft);

    if (refusal) {
        LOG_INF("%s: NextN heads are not fused: %s\n", __func__, refusal);
        return;
    }

    // a head that drafts nothing has no use for keys and values
    llama_nextn_heads_set_catchup(params.ctx_dft, params.n_max);

    // no graph that upstream reserves has them, and the first prompt is too late to find that there is no memory
    if (!llama_nextn_heads_reserve_catchup(params.ctx_dft)) {
        LOG_WRN("%s: NextN heads are not fused: no compute buffers for a prompt of all heads\n", __func__);
        return;
    }

    enabled = true;

    // where a step takes cells that it would not take in the loop, a draft that ends early leaves others behind
    if (params.p_min > 0.0f && llama_nextn_fused_leaves_traces(params.ctx_dft)) {
        LOG_INF("%s: %d NextN heads catch up in one launch; they draft in a loop: p_min may end drafts early, and the cache has a window\n",
                __func__, params.n_max);
        return;
    }

    const size_t size = llama_nextn_heads_reserve(params.ctx_dft, params.n_max);
    if (size == 0) {
        LOG_INF("%s: %d NextN heads catch up in one launch; they draft in a loop: no compute buffers\n", __func__, params.n_max);
        return;
    }

    LOG_INF("%s: %d NextN heads catch up in one launch and draft in one, buffers %.2f MiB\n", __func__, params.n_max, size/1024.0/1024.0);

    smpl.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(smpl.get(), llama_sampler_init_top_k(10));
    llama_sampler_chain_add(smpl.get(), llama_sampler_init_dist(0)); // the probabilities; what it selects is not looked at

    can_draft = true;
}

int common_nextn_heads::catch_up(int n_heads) const {
    return enabled ? 1 : n_heads;
}

bool common_nextn_heads::sample(size_t step) {
    data.resize(out.n_top);
    for (int32_t j = 0; j < out.n_top; ++j) {
        data[j] = { out.top_ids[step*out.n_top + j], out.top_logits[step*out.n_top + j], 0.0f };
    }

    cur_p = { data.data(), data.size(), -1, false };

    llama_sampler_apply(smpl.get(), &cur_p);

    // of equal logits each sampler takes another one
    return cur_p.data[0].id == out.ids[step] && (cur_p.size < 2 || cur_p.data[0].logit > cur_p.data[1].logit);
}

void common_nextn_heads::draft(
        const common_params_speculative_draft        & params,
        std::vector<common_speculative_draft_params> & dparams,
        const std::vector<std::vector<float>>        & pending_h,
        common_batch                                 & batch,
        std::vector<bool>                            & drafting,
        int                                          & n_drafting) {
    is_tied = false;

    // the rows of several sequences would have to be interleaved in every step
    if (!can_draft || n_drafting != 1) {
        return;
    }

    if (common_nextn_heads_get_mode() != COMMON_NEXTN_HEADS_ALWAYS && adapt.choose(params.n_max, params.p_min) < params.n_max) {
        return;
    }

    const llama_seq_id seq_id = std::find(drafting.begin(), drafting.end(), true) - drafting.begin();

    auto & dp = dparams[seq_id];

    const llama_nextn_fused_seq seq = { seq_id, dp.id_last, dp.pos0, pending_h[seq_id].data() };

    if (!llama_nextn_heads_run(params.ctx_dft, seq, params.n_max, out)) {
        LOG_DBG("%s: the loop drafts at %d: no room for %d steps\n", __func__, seq.pos, params.n_max);
        return;
    }

    // nothing is told before it is known that the loop is not needed
    int n_done = 0;
    while (n_done < params.n_max) {
        if (!sample(n_done)) {
            is_tied = true;
            llama_memory_seq_rm(llama_get_memory(params.ctx_dft), seq_id, seq.pos, -1);
            return;
        }

        n_done++;

        if (cur_p.data[0].p < params.p_min) {
            break;
        }
    }

    for (int step = 0; step < n_done; ++step) {
        sample(step);

        common_spec_trace_step(seq_id, step, seq.pos + step, cur_p);

        if (cur_p.data[0].p >= params.p_min) {
            dp.result->push_back(cur_p.data[0].id);
        }
    }

    // a step that the loop does not do leaves nothing behind
    if (n_done < params.n_max) {
        llama_memory_seq_rm(llama_get_memory(params.ctx_dft), seq_id, seq.pos + n_done, -1);
    }

    drafting[seq_id] = false;
    n_drafting       = 0;

    batch.clear();
}

void common_nextn_heads::done(const common_params_speculative_draft & params, const std::vector<common_speculative_draft_params> & dparams) {
    if (!can_draft) {
        return;
    }

    int32_t n_steps = is_tied ? 0 : params.n_max;
    for (const auto & dp : dparams) {
        if (dp.drafting) {
            // the step of the token that p_min cut off was done as well
            n_steps = std::min(n_steps, (int32_t) dp.result->size() + 1);
        }
    }

    adapt.observe(n_steps);
}
