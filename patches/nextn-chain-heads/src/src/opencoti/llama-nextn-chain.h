#pragma once

#include "llama.h"

#include <cstdint>

// Selection of the NextN block that an MTP context runs, for models that have several of them.
//
// Upstream's MTP graph always runs the first block. While a chain is on, the graph is built for
// the block `n_layer() + block` instead, and only the rows that the batch marks as outputs reach
// the head and the hidden rows. Each block has a KV layer of its own, and all of them share the
// cells: who changes the block for positions that were decoded before removes these first.
//
// env: OPENCOTI_NEXTN_CHAIN_HEADS=1

// number of blocks to chain; 0: the switch is off, the model has less than two, or its
// architecture does not take part
LLAMA_API int32_t llama_nextn_chain_n_blocks(const struct llama_context * ctx);

// run this block from now on: 0 <= block < llama_nextn_chain_n_blocks(). Buffers are reserved
// once, with the first call
LLAMA_API void llama_nextn_chain_set_block(struct llama_context * ctx, int32_t block);
