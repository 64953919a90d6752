#pragma once

#include "common.h"
#include "speculative.h"

#include "llama-cpp.h"

#include "nextn-adapt.h"

#include "../../src/opencoti/llama-nextn-heads.h"

#include <vector>

// For models with several NextN heads, in place of the drafter's loops over them: the catch-up of all
// heads in one launch, and the draft of one sequence in one launch. What is drafted is what the loop
// would draft.
// env: OPENCOTI_NEXTN_FUSED_HEADS ("always": also where it would cost more than the loop)
struct common_nextn_heads {
    // the drafter is complete; says in the log what is done in one launch, or why not
    void init(const common_params_speculative_draft & params, bool is_mem_shared, bool chain_heads);

    // heads that the drafter has to catch up with, one decode each, of the n_heads that the model has
    int catch_up(int n_heads) const;

    // The arguments are what the loop works with, as they are before its first step. Does nothing, or
    // all of the draft, so that the loop finds nothing to do.
    void draft(
            const common_params_speculative_draft        & params,
            std::vector<common_speculative_draft_params> & dparams,
            const std::vector<std::vector<float>>        & pending_h,
            common_batch                                 & batch,
            std::vector<bool>                            & drafting,
            int                                          & n_drafting);

    // the draft is complete, whoever did it; n_min has not been looked at
    void done(const common_params_speculative_draft & params, const std::vector<common_speculative_draft_params> & dparams);

private:
    // the candidates of a step, in the order of the drafter's sampler; false: equal logits leave it open
    bool sample(size_t step);

    bool enabled   = false; // the catch-up
    bool can_draft = false;

    bool is_tied = false; // this draft had equal logits

    common_nextn_adapt adapt;

    llama_sampler_ptr smpl; // what the loop's samplers do with candidates

    std::vector<llama_token_data> data;
    llama_token_data_array        cur_p = {};

    llama_nextn_fused_draft out;
};
