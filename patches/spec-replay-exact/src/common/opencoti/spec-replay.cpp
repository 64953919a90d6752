#include "spec-replay.h"

#include "log.h"
#include "sampling.h"
#include "speculative.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

static bool common_spec_replay_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_SPEC_REPLAY_EXACT = getenv("OPENCOTI_SPEC_REPLAY_EXACT");
        return OPENCOTI_SPEC_REPLAY_EXACT && OPENCOTI_SPEC_REPLAY_EXACT[0] && strcmp(OPENCOTI_SPEC_REPLAY_EXACT, "0") != 0;
    }();

    return enabled;
}

enum common_spec_replay_fault_kind {
    COMMON_SPEC_REPLAY_FAULT_NONE,
    COMMON_SPEC_REPLAY_FAULT_TURNS,
    COMMON_SPEC_REPLAY_FAULT_DRAWS,
    COMMON_SPEC_REPLAY_FAULT_STAYS,
};

static bool common_spec_replay_faulty(common_spec_replay_fault_kind fault) {
    static const common_spec_replay_fault_kind kind = [] {
        const char * OPENCOTI_SPEC_REPLAY_FAULT = getenv("OPENCOTI_SPEC_REPLAY_FAULT");

        const auto is = [&](const char * name) {
            return OPENCOTI_SPEC_REPLAY_FAULT && strcmp(OPENCOTI_SPEC_REPLAY_FAULT, name) == 0;
        };

        return
            is("turns") ? COMMON_SPEC_REPLAY_FAULT_TURNS :
            is("draws") ? COMMON_SPEC_REPLAY_FAULT_DRAWS :
            is("stays") ? COMMON_SPEC_REPLAY_FAULT_STAYS :
                          COMMON_SPEC_REPLAY_FAULT_NONE;
    }();

    return kind == fault;
}

void common_spec_replay_save(common_speculative * spec, llama_seq_id seq_id, std::vector<uint8_t> & data) {
    if (!common_spec_replay_enabled()) {
        return;
    }

    data.clear();

    common_speculative_get_state(spec, seq_id, data);
}

bool common_spec_replay_begin(
        common_speculative * spec,
        llama_seq_id seq_id,
        common_sampler * smpl,
        const std::vector<llama_token> & accepted,
        const std::vector<uint8_t> & data,
        const common_sampler * before) {
    if (!common_spec_replay_enabled()) {
        return false;
    }

    static bool said = false;

    if (!said) {
        said = true;
        LOG_INF("%s: tokens that were accepted before a checkpoint was restored are not judged again\n", __func__);
    }

    const bool stays = common_sampler_set_replay(smpl, accepted) && !common_spec_replay_faulty(COMMON_SPEC_REPLAY_FAULT_DRAWS);

    if (!data.empty()) {
        common_speculative_set_state(spec, seq_id, data);
    }

    if (!stays && before) {
        common_sampler_copy(before, smpl);
        return true;
    }

    return stays;
}

bool common_spec_replay::begin(const std::vector<llama_token> & accepted) {
    tokens  = accepted;
    rewound = on_backend && !common_spec_replay_faulty(COMMON_SPEC_REPLAY_FAULT_STAYS);

    return !rewound;
}

bool common_spec_replay::take(common_sampler * smpl, llama_context * ctx, const std::vector<int> & idxs, const std::vector<llama_token> & draft) {
    if (!common_spec_replay_enabled()) {
        return false;
    }

    on_backend = !idxs.empty() && llama_get_sampled_token_ith(ctx, idxs[0]) != LLAMA_TOKEN_NULL;

    const bool is_replay = !tokens.empty() && tokens == draft;

    tokens.clear();

    if (is_replay) {
        LOG_DBG("%s: %zu tokens were accepted before the checkpoint was restored\n", __func__, draft.size());
    }

    if (is_replay && rewound) {
        for (const llama_token id : draft) {
            common_sampler_accept(smpl, id, true);
        }
    }

    return is_replay;
}

void common_spec_replay_fault(llama_context * ctx, const std::vector<int> & idxs) {
    // of one thread: for tests, which verify in one loop
    static bool odd = false;

    if (!common_spec_replay_faulty(COMMON_SPEC_REPLAY_FAULT_TURNS) || idxs.size() < 2) {
        return;
    }

    odd = !odd;
    if (!odd) {
        return;
    }

    llama_synchronize(ctx);

    float * logits = llama_get_logits_ith(ctx, idxs[0]);
    if (!logits) {
        return;
    }

    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));

    float * best = std::max_element(logits, logits + n_vocab);
    float * next = best == logits ? logits + 1 : logits;

    for (float * other = logits; other != logits + n_vocab; ++other) {
        if (other != best && *other > *next) {
            next = other;
        }
    }

    std::swap(*best, *next);
}

bool common_spec_replay_get(const std::vector<std::vector<float>> & rows, llama_seq_id seq_id, std::vector<uint8_t> & data) {
    if (!common_spec_replay_enabled() || seq_id < 0 || (size_t) seq_id >= rows.size()) {
        return false;
    }

    const auto & row = rows[seq_id];

    data.resize(row.size()*sizeof(float));
    memcpy(data.data(), row.data(), data.size());

    return true;
}

void common_spec_replay_set(std::vector<std::vector<float>> & rows, llama_seq_id seq_id, const std::vector<uint8_t> & data) {
    if (seq_id < 0 || (size_t) seq_id >= rows.size()) {
        return;
    }

    auto & row = rows[seq_id];

    // another drafter's state has another size
    if (data.size() == row.size()*sizeof(float)) {
        memcpy(row.data(), data.data(), data.size());
    }
}
