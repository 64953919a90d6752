#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// All steps of a NextN draft in one graph: the token and the hidden row of a step go into the next
// one without leaving the backend.

// a sequence to draft for
struct llama_nextn_fused_seq {
    llama_seq_id  seq_id;
    llama_token   id;  // the last token
    llama_pos     pos; // its position
    const float * h;   // the hidden row that it is paired with [n_embd_out]
};

// the result: for each step each sequence, in the order in which they were given
struct llama_nextn_fused_draft {
    int32_t n_top = 0;

    std::vector<llama_token> ids;        // [n_steps][n_seqs]        what the next step was given
    std::vector<llama_token> top_ids;    // [n_steps][n_seqs][n_top] in no particular order
    std::vector<float>       top_logits; // [n_steps][n_seqs][n_top]
};

// why this context cannot draft in one graph, nullptr if it can
LLAMA_API const char * llama_nextn_fused_refusal(const llama_context * ctx);

// Do steps that turn out to be in vain leave something behind? A cache with a window gives out cells
// that have left it, and what was in them is gone when the step is removed.
LLAMA_API bool llama_nextn_fused_leaves_traces(const llama_context * ctx);

// makes compute buffers for drafts of up to n_steps tokens of all sequences of the context
// returns their size in bytes, 0 if there is no memory for them
LLAMA_API size_t llama_nextn_fused_reserve(llama_context * ctx, int32_t n_steps);

// Drafts n_steps tokens. The sequences are in ascending order and differ. The cells [pos, pos + n_steps)
// are then in the memory, for the caller to remove; the outputs of the context are those of no batch.
// Returns false, and leaves the memory as it was, if it cannot be done now.
LLAMA_API bool llama_nextn_fused_run(llama_context * ctx, const llama_nextn_fused_seq * seqs, size_t n_seqs, int32_t n_steps, llama_nextn_fused_draft & draft);

// copies the hidden row that a step of the last run left for the sequence at i_seq [n_embd_out]
LLAMA_API void llama_nextn_fused_get_h(llama_context * ctx, int32_t step, size_t i_seq, float * dst);
