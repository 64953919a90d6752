#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <memory>

// Drafts over a part of the vocabulary: the rows of the NextN heads that belong to some tokens, side
// by side in tensors of their own. A token has a slot, the same one in all heads. Dropped with the context.
struct llama_draft_vocab;

struct llama_draft_vocab_deleter {
    void operator()(llama_draft_vocab * vocab) const;
};

using llama_draft_vocab_ptr = std::unique_ptr<llama_draft_vocab, llama_draft_vocab_deleter>;

// why the heads of this context cannot be cut down, nullptr if they can
LLAMA_API const char * llama_draft_vocab_refusal(const llama_context * ctx);

// From now on the heads of this context look at these tokens alone, the token in place i in slot i; for
// all others they give -inf. Returns the bytes that it took, 0 where it cannot be done: the log says why.
LLAMA_API size_t llama_draft_vocab_attach(llama_context * ctx, const llama_token * ids, size_t n_ids);

// gives n slots to other tokens
LLAMA_API void llama_draft_vocab_replace(llama_context * ctx, const int32_t * slots, const llama_token * ids, size_t n);

// The n most likely tokens at the output i of the last batch, the best one first. Returns how many there
// are, 0 where the logits have not been brought to the host. For any context, with or without a part of the vocabulary.
LLAMA_API size_t llama_draft_vocab_likely(llama_context * ctx, int32_t i, llama_token * ids, size_t n);
