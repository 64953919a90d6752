#include "nextn-chain.h"

#include "../../src/llama-ext.h" // staging API, as in speculative.cpp
#include "../../src/opencoti/llama-nextn-chain.h"

#include "log.h"
#include "spec-trace.h"

#include <algorithm>
#include <cstring>

void common_nextn_chain::init(common_params_speculative_draft & params, uint32_t n_seq, int32_t n_embd, bool is_mem_shared) {
    const int32_t n_blocks = is_mem_shared ? 0 : llama_nextn_chain_n_blocks(params.ctx_dft);
    if (n_blocks == 0 || params.n_max < 1) {
        return;
    }

    if (params.n_max > n_blocks) {
        LOG_WRN("%s: n_max=%d, but the model has %d NextN blocks, and each drafts one token: n_max=%d\n", __func__,
                params.n_max, n_blocks, n_blocks);
        params.n_max = n_blocks;
    }

    // step k of a draft has k + 1 rows of each sequence, and the drafter's batch has room for one of the context
    const int32_t n_steps = llama_n_batch(params.ctx_dft)/std::max<uint32_t>(1, n_seq);
    if (n_steps < 1) {
        LOG_WRN("%s: the first NextN block drafts all tokens: a batch of %u tokens has no row for each of %u sequences\n", __func__,
                llama_n_batch(params.ctx_dft), n_seq);
        return;
    }

    if (params.n_max > n_steps) {
        LOG_WRN("%s: n_max=%d, but a batch of %u tokens has room for drafts of %d tokens of %u sequences: n_max=%d\n", __func__,
                params.n_max, llama_n_batch(params.ctx_dft), n_steps, n_seq, n_steps);
        params.n_max = n_steps;
    }

    this->n_heads = params.n_max;
    this->n_embd  = n_embd;

    drafting.resize(n_seq);
    i_out   .resize(n_seq);
    pos_min .resize(n_seq);
    rows.assign(n_seq, std::vector<float>((size_t) n_heads * n_embd));

    llama_nextn_chain_set_block(params.ctx_dft, 0);

    LOG_INF("%s: %d of %d NextN blocks draft one token each\n", __func__, n_heads, n_blocks);
}

// removes the positions from `pos` on, so that the next block gets their cells
static bool nextn_chain_rewind(llama_context * ctx_dft, llama_seq_id seq_id, llama_pos pos) {
    if (!llama_memory_seq_rm(llama_get_memory(ctx_dft), seq_id, pos, -1)) {
        LOG_ERR("%s: cannot remove the positions from %d on of sequence %d\n", __func__, pos, seq_id);
        return false;
    }

    return true;
}

bool common_nextn_chain::catch_up(llama_context * ctx_dft, const llama_batch & batch) {
    if (n_heads < 2) {
        return true;
    }

    std::fill(pos_min.begin(), pos_min.end(), -1);

    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        llama_pos & pos = pos_min[batch.seq_id[i][0]];

        pos = pos < 0 ? batch.pos[i] : std::min(pos, batch.pos[i]);
    }

    bool ok = true;

    for (int32_t head = n_heads - 1; head > 0 && ok; --head) {
        llama_nextn_chain_set_block(ctx_dft, head);

        const int32_t rc = llama_decode(ctx_dft, batch);
        if (rc != 0) {
            LOG_ERR("%s: llama_decode of NextN block %d failed, rc=%d\n", __func__, head, rc);
            ok = false;
        }

        for (size_t seq_id = 0; seq_id < pos_min.size(); ++seq_id) {
            if (pos_min[seq_id] >= 0) {
                ok = nextn_chain_rewind(ctx_dft, seq_id, pos_min[seq_id]) && ok;
            }
        }
    }

    llama_nextn_chain_set_block(ctx_dft, 0);

    return ok;
}

// block `step` decodes the tokens of this round, of all sequences that are still drafting
bool common_nextn_chain::decode_step(
        const common_params_speculative_draft     & params,
              std::vector<common_speculative_draft_params> & dparams,
              llama_batch                         & batch,
              int32_t                               step) {
    common_batch_clear(batch);

    for (size_t seq_id = 0; seq_id < drafting.size(); ++seq_id) {
        if (!drafting[seq_id]) {
            continue;
        }

        const auto & dp = dparams[seq_id];

        if (!nextn_chain_rewind(params.ctx_dft, seq_id, dp.n_past)) {
            return false;
        }

        std::memcpy(batch.embd + (size_t) batch.n_tokens * n_embd, rows[seq_id].data(), (size_t) (step + 1) * n_embd * sizeof(float));

        for (int32_t i = 0; i <= step; ++i) {
            const llama_token token = i == 0 ? dp.id_last : (*dp.result)[i - 1];

            common_batch_add(batch, token, dp.n_past + i, { (llama_seq_id) seq_id }, i == step);
        }

        i_out[seq_id] = batch.n_tokens - 1;
    }

    llama_nextn_chain_set_block(params.ctx_dft, step);

    const int32_t rc = llama_decode(params.ctx_dft, batch);
    if (rc != 0) {
        LOG_WRN("%s: llama_decode of NextN block %d returned %d\n", __func__, step, rc);
    }

    return rc == 0;
}

bool common_nextn_chain::draft(
        const common_params_speculative_draft     & params,
              std::vector<common_speculative_draft_params> & dparams,
        const std::vector<std::vector<float>>     & pending_h,
              std::vector<common_sampler_ptr>     & smpls,
              llama_batch                         & batch,
              std::vector<uint16_t>               & last_n_drafted) {
    if (n_heads == 0) {
        return false;
    }

    const size_t row_bytes = (size_t) n_embd * sizeof(float);

    int32_t n_drafting = 0;

    for (size_t seq_id = 0; seq_id < drafting.size(); ++seq_id) {
        drafting[seq_id] = dparams[seq_id].drafting;

        if (drafting[seq_id]) {
            n_drafting++;
            common_sampler_reset(smpls[seq_id].get());
            std::memcpy(rows[seq_id].data(), pending_h[seq_id].data(), row_bytes);
        }
    }

    for (int32_t step = 0; step < n_heads && n_drafting > 0; ++step) {
        if (!decode_step(params, dparams, batch, step)) {
            break;
        }

        for (size_t seq_id = 0; seq_id < drafting.size(); ++seq_id) {
            if (!drafting[seq_id]) {
                continue;
            }

            auto * smpl = smpls[seq_id].get();
            auto & dp   = dparams[seq_id];

            common_sampler_sample(smpl, params.ctx_dft, i_out[seq_id], true);

            const auto * cur_p = common_sampler_get_candidates(smpl, true);
            common_spec_trace_step(seq_id, step, dp.n_past + step, *cur_p);

            const llama_token id = cur_p->data[0].id;

            if (cur_p->data[0].p < params.p_min) {
                drafting[seq_id] = false;
                n_drafting--;
                continue;
            }

            common_sampler_accept(smpl, id, true);
            dp.result->push_back(id);

            if (step + 1 < n_heads) {
                const float * h = llama_get_embeddings_nextn_ith(params.ctx_dft, i_out[seq_id]);
                std::memcpy(rows[seq_id].data() + (size_t) (step + 1) * n_embd, h, row_bytes);
            }
        }
    }

    llama_nextn_chain_set_block(params.ctx_dft, 0);

    for (size_t seq_id = 0; seq_id < drafting.size(); ++seq_id) {
        auto & dp = dparams[seq_id];

        if (!dp.drafting) {
            continue;
        }

        if (dp.result->size() < (size_t) params.n_min) {
            dp.result->clear();
        }

        last_n_drafted[seq_id] = (uint16_t) dp.result->size();
    }

    return true;
}
