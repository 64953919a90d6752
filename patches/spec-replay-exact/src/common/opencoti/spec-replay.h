#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

struct common_sampler;
struct common_speculative;

// After a checkpoint was restored, the tokens that verification had accepted are decoded once more. They are
// not judged again: what their logits are now may differ in the last bit from what they were.
// env: OPENCOTI_SPEC_REPLAY_EXACT

// before a draft: what the drafter carries over from the round before
void common_spec_replay_save(common_speculative * spec, llama_seq_id seq_id, std::vector<uint8_t> & data);

// When the checkpoint is restored: the drafter has again what it had, and the sampler will accept these tokens, the
// last of which is its own, as they are. True: it is to stay as it is now. False: it is to be rewound, which is done here
// where it is said what it was `before`: what the sampler is told must not be lost with it.
bool common_spec_replay_begin(
        common_speculative * spec,
        llama_seq_id seq_id,
        common_sampler * smpl,
        const std::vector<llama_token> & accepted,
        const std::vector<uint8_t> & data,
        const common_sampler * before = nullptr);

// What a sampler knows of a replay. Where it draws its random numbers itself, it stays as the verification left it, since
// it must not draw them twice. On a backend row j of a batch has the j-th number after those of the accepted tokens,
// so the sampler is rewound, and as each token of the replay is accepted its number counts as used again.
struct common_spec_replay {
    std::vector<llama_token> tokens;

    bool on_backend = false; // the verdict before was given from what a backend sampled
    bool rewound    = false;

    // returns whether the sampler is to stay as it is
    bool begin(const std::vector<llama_token> & accepted);

    // whether the draft is what was accepted already, so that it is not to be judged; to be asked at every verdict
    bool take(common_sampler * smpl, llama_context * ctx, const std::vector<int> & idxs, const std::vector<llama_token> & draft);
};

// Faults for tests. "turns": a backend whose logits depend on more than the tokens, since in every second verification
// the two best tokens of the first row change places. "draws": the sampler is rewound all the same, so that random
// numbers are drawn twice. "stays": one that samples on a backend is not rewound. env: OPENCOTI_SPEC_REPLAY_FAULT
void common_spec_replay_fault(llama_context * ctx, const std::vector<int> & idxs);

// the hidden row that the first token of the next batch is paired with
bool common_spec_replay_get(const std::vector<std::vector<float>> & rows, llama_seq_id seq_id, std::vector<uint8_t> & data);
void common_spec_replay_set(std::vector<std::vector<float>> & rows, llama_seq_id seq_id, const std::vector<uint8_t> & data);

// in sampling.cpp, where the sampler is known; returns whether it is to stay as it is
bool common_sampler_set_replay(common_sampler * smpl, const std::vector<llama_token> & tokens);
