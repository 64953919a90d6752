#pragma once

#include "common.h"
#include "speculative.h"

#include "llama-cpp.h"

#include "nextn-adapt.h"

#include "../../src/opencoti/llama-nextn-fused.h"

#include <vector>

// Does the first steps of a NextN draft in one launch, in place of the drafter's loop, which goes on
// from there if anything is left to do. What is drafted is what the loop would draft.
// env: OPENCOTI_MTP_FUSED_NEXTN ("always": also where it would cost more than the loop)
struct common_nextn_fused {
    // The drafter's samplers are reset for each draft, and each reset asks the system for a seed. Nothing
    // that they draw is looked at, so with the switch on they have a fixed one.
    static void prepare(common_params_sampling & params);

    // the drafter is complete; says in the log whether drafts are done in one launch, or why not
    void init(const common_params_speculative_draft & params, bool is_mem_shared, bool chain_heads);

    // The arguments are what the loop works with, as they are before its first step: `batch` holds that
    // step, `step` is 0. Afterwards they are as the loop has them before the step that is to be done next.
    void draft(
            const common_params_speculative_draft        & params,
            std::vector<common_speculative_draft_params> & dparams,
            const std::vector<std::vector<float>>        & pending_h,
            common_batch                                 & batch,
            std::vector<bool>                            & drafting,
            std::vector<int>                             & i_last,
            int                                          & n_drafting,
            int                                          & step);

    // the draft is complete, whoever did it; n_min has not been looked at
    void done(const common_params_speculative_draft & params, const std::vector<common_speculative_draft_params> & dparams);

private:
    struct candidates {
        std::vector<llama_token_data> data;
        llama_token_data_array        cur_p;
    };

    // the candidates of all sequences of a step; false: another sampler may order them otherwise
    bool sample(size_t step);

    bool enabled = false;

    int32_t n_tied = -1; // step of this draft at which logits were equal

    common_nextn_adapt adapt;

    llama_sampler_ptr smpl; // what the loop's samplers do with candidates

    std::vector<llama_nextn_fused_seq> seqs;
    std::vector<candidates>            cands;  // of each of seqs
    std::vector<std::vector<float>>    h_rows; // of each of seqs: the batch does not own its rows

    llama_nextn_fused_draft out;
};
