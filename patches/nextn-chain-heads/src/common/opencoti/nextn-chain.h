#pragma once

#include "common.h"
#include "sampling.h"
#include "speculative.h"

#include "llama.h"

#include <cstdint>
#include <memory>
#include <vector>

// Drafting with several NextN blocks ("heads") in turn: block k drafts token k.
//
// All blocks see the same positions, each through a KV layer of its own:
//
// - catch-up: every block decodes what the target decoded, fed with the target's hidden rows, so
//   that a round begins with keys and values that the target stands behind
// - step k of a draft: block k decodes the last accepted token and all tokens that were drafted in
//   this round, at their positions. Row 0 is fed with the target's hidden row, row j with that of
//   step j-1. Only the last row is an output. The rows before it are repeated under each block,
//   since only then has the block keys and values of its own for them
//
// The blocks share the cells. What a block has written is removed before the next one decodes the
// same positions, so that it is given the same cells again.
struct common_nextn_chain {
    // limits params.n_max to the number of blocks, and to what the drafter's batch has room for, with a warning
    void init(common_params_speculative_draft & params, uint32_t n_seq, int32_t n_embd, bool is_mem_shared);

    // catch-up of all blocks but the first; removes what it wrote from the cells, so that the
    // caller's decode, which is that of the first block, finds things as it left them. `batch`:
    // the caller's, filled. false: a decode failed
    bool catch_up(llama_context * ctx_dft, const llama_batch & batch);

    // a whole draft of all sequences that want one. false: no chain is on, nothing was done
    bool draft(
        const common_params_speculative_draft        & params,
              std::vector<common_speculative_draft_params> & dparams,
        const std::vector<std::vector<float>>        & pending_h,
              std::vector<common_sampler_ptr>        & smpls,
              llama_batch                            & batch,
              std::vector<uint16_t>                  & last_n_drafted);

private:
    int32_t n_heads = 0; // that a draft uses; 0: no chain
    int32_t n_embd  = 0;

    std::vector<bool>               drafting; // [n_seq]
    std::vector<int32_t>            i_out;    // [n_seq] row of the batch that is the sequence's output
    std::vector<std::vector<float>> rows;     // [n_seq][n_heads*n_embd] hidden rows that the tokens of the draft are fed with
    std::vector<llama_pos>          pos_min;  // [n_seq] first position of the batch, -1 if it has none

    bool decode_step(const common_params_speculative_draft & params, std::vector<common_speculative_draft_params> & dparams, llama_batch & batch, int32_t step);
};
