#pragma once

#include <cstdint>

struct llama_context;

// Before a small decode of a context with several NextN heads: gives the context the scheduler and
// the graph result that the head had for such a decode before. They stay until another decode
// needs others, since what is read from the graph is looked up in the scheduler.
// env: OPENCOTI_NEXTN_HEADS_REUSE
void llama_nextn_heads_turn(llama_context & ctx, bool is_mtp, uint32_t n_tokens);

// Before the context uses its scheduler for anything else than a decode: it has its own again.
void llama_nextn_heads_own(llama_context & ctx);
