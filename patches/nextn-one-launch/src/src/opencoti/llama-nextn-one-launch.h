#pragma once

#include "llama.h"

// With OPENCOTI_NEXTN_ONE_LAUNCH=1 a small catch-up of a NextN context that drafts in one launch is
// given its cells when it comes, and is computed in the launch of the next draft. Whatever else needs
// what it computes has it computed first.

// takes over a decode of the batch, or returns false and has done nothing
LLAMA_API bool llama_nextn_defer(llama_context * ctx, const llama_batch_ext * batch);

// Computes what waits, unless its cells are free again: the sequence was emptied for the next request. `copies_pending`:
// a copy of one stream to another may be yet to be carried out, and would bring along what is computed.
void llama_nextn_flush(llama_context & ctx, bool copies_pending = true);
