#pragma once

#include "llama.h"

#include "llama-nextn-fused.h"

#include <cstddef>
#include <cstdint>

// All NextN heads of a model in one graph: what each of them catches up with, and a draft in which
// head k takes step k, over the rows of all steps before it.

// From now on a decode of this context without outputs writes keys and values of the first n_heads
// heads, in one graph. 0: of the head that is selected, as upstream has it.
LLAMA_API void llama_nextn_heads_set_catchup(llama_context * ctx, int32_t n_heads);

// makes compute buffers for a prompt of that many heads
// false: there is no memory for them, and the context is as it was before set_catchup()
LLAMA_API bool llama_nextn_heads_reserve_catchup(llama_context * ctx);

// why this context cannot draft with all heads in one graph, nullptr if it can
LLAMA_API const char * llama_nextn_heads_refusal(const llama_context * ctx);

// makes compute buffers for drafts of n_steps tokens of one sequence
// returns their size in bytes, 0 if there is no memory for them
LLAMA_API size_t llama_nextn_heads_reserve(llama_context * ctx, int32_t n_steps);

// Drafts n_steps tokens of one sequence; step k is that of head k. The cells [pos, pos + n_steps) are
// then in the memory, for the caller to remove; the outputs of the context are those of no batch.
// Returns false, and leaves the memory as it was, if it cannot be done now.
LLAMA_API bool llama_nextn_heads_run(llama_context * ctx, const llama_nextn_fused_seq & seq, int32_t n_steps, llama_nextn_fused_draft & draft);
