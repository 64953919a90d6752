#include "nextn-fused.h"

#include "spec-trace.h"

#include "log.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

// Longer drafts go on in the loop: each step of a launch has buffers of its own.
static const int32_t COMMON_NEXTN_FUSED_N_MAX = 16;

enum common_nextn_fused_mode {
    COMMON_NEXTN_FUSED_OFF,
    COMMON_NEXTN_FUSED_ADAPT,
    COMMON_NEXTN_FUSED_ALWAYS, // whatever it costs: for tests
};

static common_nextn_fused_mode common_nextn_fused_get_mode() {
    static const common_nextn_fused_mode mode = [] {
        const char * OPENCOTI_MTP_FUSED_NEXTN = getenv("OPENCOTI_MTP_FUSED_NEXTN");

        if (!OPENCOTI_MTP_FUSED_NEXTN || !OPENCOTI_MTP_FUSED_NEXTN[0] || strcmp(OPENCOTI_MTP_FUSED_NEXTN, "0") == 0) {
            return COMMON_NEXTN_FUSED_OFF;
        }
        return strcmp(OPENCOTI_MTP_FUSED_NEXTN, "always") == 0 ? COMMON_NEXTN_FUSED_ALWAYS : COMMON_NEXTN_FUSED_ADAPT;
    }();

    return mode;
}

void common_nextn_fused::prepare(common_params_sampling & params) {
    if (common_nextn_fused_get_mode() != COMMON_NEXTN_FUSED_OFF) {
        params.seed = 0;
    }
}

void common_nextn_fused::init(const common_params_speculative_draft & params, bool is_mem_shared, bool chain_heads) {
    if (common_nextn_fused_get_mode() == COMMON_NEXTN_FUSED_OFF) {
        return;
    }

    const char * refusal =
        is_mem_shared    ? "the draft context shares the memory of the target" :
        chain_heads      ? "the model has several NextN heads" :
        params.n_max < 1 ? "no token is drafted" :
        llama_nextn_fused_refusal(params.ctx_dft);

    if (!refusal && params.p_min > 0.0f && llama_nextn_fused_leaves_traces(params.ctx_dft)) {
        refusal = "p_min may end drafts early, and the cache has a window";
    }

    size_t size = 0;

    const int32_t n_max = std::min(params.n_max, COMMON_NEXTN_FUSED_N_MAX);

    if (!refusal) {
        size = llama_nextn_fused_reserve(params.ctx_dft, n_max);
        if (size == 0) {
            refusal = "no compute buffers";
        }
    }

    if (refusal) {
        LOG_INF("%s: NextN drafts are done in a loop: %s\n", __func__, refusal);
        return;
    }

    LOG_INF("%s: NextN drafts of up to %d tokens are done in one launch, buffers %.2f MiB\n", __func__, n_max, size/1024.0/1024.0);

    smpl.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(smpl.get(), llama_sampler_init_top_k(10));
    llama_sampler_chain_add(smpl.get(), llama_sampler_init_dist(0)); // the probabilities; what it selects is not looked at

    enabled = true;
}

bool common_nextn_fused::sample(size_t step) {
    for (size_t i = 0; i < seqs.size(); ++i) {
        const size_t row = step*seqs.size() + i;

        auto & data = cands[i].data;

        data.resize(out.n_top);
        for (int32_t j = 0; j < out.n_top; ++j) {
            data[j] = { out.top_ids[row*out.n_top + j], out.top_logits[row*out.n_top + j], 0.0f };
        }

        cands[i].cur_p = { data.data(), data.size(), -1, false };

        llama_sampler_apply(smpl.get(), &cands[i].cur_p);

        const auto & cur_p = cands[i].cur_p;

        // of equal logits each sampler takes another one
        if (cur_p.data[0].id != out.ids[row] || (cur_p.size > 1 && !(cur_p.data[0].logit > cur_p.data[1].logit))) {
            return false;
        }
    }

    return true;
}

void common_nextn_fused::draft(
        const common_params_speculative_draft        & params,
        std::vector<common_speculative_draft_params> & dparams,
        const std::vector<std::vector<float>>        & pending_h,
        common_batch                                 & batch,
        std::vector<bool>                            & drafting,
        std::vector<int>                             & i_last,
        int                                          & n_drafting,
        int                                          & step) {
    n_tied = -1;

    if (!enabled || n_drafting == 0) {
        return;
    }

    const int32_t n_choice = common_nextn_fused_get_mode() == COMMON_NEXTN_FUSED_ALWAYS ? params.n_max : adapt.choose(params.n_max, params.p_min);
    const int32_t n_steps  = std::min(n_choice, COMMON_NEXTN_FUSED_N_MAX);
    if (n_steps < 1) {
        return;
    }

    seqs.clear();
    for (llama_seq_id seq_id = 0; seq_id < (llama_seq_id) drafting.size(); ++seq_id) {
        if (drafting[seq_id]) {
            const auto & dp = dparams[seq_id];

            seqs.push_back({ seq_id, dp.id_last, dp.pos0, pending_h[seq_id].data() });
        }
    }

    if (!llama_nextn_fused_run(params.ctx_dft, seqs.data(), seqs.size(), n_steps, out)) {
        LOG_DBG("%s: the loop drafts at %d: no room for %d steps\n", __func__, seqs[0].pos, n_steps);
        return;
    }

    cands .resize(seqs.size());
    h_rows.resize(seqs.size());

    int n_done = 0;

    while (n_done < n_steps && n_drafting == (int) seqs.size()) {
        if (!sample(n_done)) {
            n_tied = n_done;
            break;
        }

        for (size_t i = 0; i < seqs.size(); ++i) {
            const auto   seq_id = seqs[i].seq_id;
            const auto & cur_p  = cands[i].cur_p;

            common_spec_trace_step(seq_id, n_done, seqs[i].pos + n_done, cur_p);

            if (cur_p.data[0].p < params.p_min) {
                drafting[seq_id] = false;
                n_drafting--;

                continue;
            }

            auto & result = *dparams[seq_id].result;

            result.push_back(cur_p.data[0].id);

            if (params.n_max <= (int) result.size()) {
                drafting[seq_id] = false;
                n_drafting--;
            }
        }

        n_done++;
    }

    // a step that the loop does not do leaves nothing behind
    auto * mem = llama_get_memory(params.ctx_dft);
    for (const auto & seq : seqs) {
        if (n_done < n_steps) {
            llama_memory_seq_rm(mem, seq.seq_id, seq.pos + n_done, -1);
        }
    }

    if (n_drafting == 0) {
        batch.clear();
        step = n_done - 1;

        return;
    }

    if (n_done == 0) {
        return;
    }

    // the loop goes on: sequences that stopped make the batch another one, and with it the rounding
    batch.clear();

    for (size_t i = 0; i < seqs.size(); ++i) {
        const auto seq_id = seqs[i].seq_id;

        if (!drafting[seq_id]) {
            continue;
        }

        h_rows[i].resize(pending_h[seq_id].size());
        llama_nextn_fused_get_h(params.ctx_dft, n_done - 1, i, h_rows[i].data());

        const int32_t idx = batch.add(dparams[seq_id].result->back(), seqs[i].pos + n_done, seq_id, true);
        batch.set_embd(idx, { h_rows[i].data(), 1, h_rows[i].size() });
        i_last[seq_id] = idx;
    }

    step = n_done;
}

void common_nextn_fused::done(const common_params_speculative_draft & params, const std::vector<common_speculative_draft_params> & dparams) {
    if (!enabled) {
        return;
    }

    int32_t n_steps = n_tied < 0 ? params.n_max : n_tied;
    for (const auto & dp : dparams) {
        if (dp.drafting) {
            // the step of the token that p_min cut off was done as well
            n_steps = std::min(n_steps, (int32_t) dp.result->size() + 1);
        }
    }

    adapt.observe(n_steps);
}
