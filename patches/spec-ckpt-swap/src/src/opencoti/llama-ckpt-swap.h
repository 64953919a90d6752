#pragma once

#include "llama.h"

#include <cstdint>
#include <functional>

struct llama_hparams;

class llama_memory_recurrent;

// A snapshot of a recurrent state that copies nothing: an id of our own joins the cell of the sequence.
// The next graph finds the cell shared, reads it, and writes the new state to a free one, as it does for
// sequences that were copied. Going back is putting the sequence beside that id again.
//
// Ids from n_seq_max on are ours; a memory that is used so has two cells for each sequence.
// env: OPENCOTI_SPEC_CKPT_SWAP, OPENCOTI_SPEC_CKPT_SWAP_MIN

// whether the switch is on, be it of use or not
LLAMA_API bool llama_ckpt_swap_asked();

// why the cells of this context do not take turns; nullptr: they do
LLAMA_API const char * llama_ckpt_swap_refusal(llama_context * ctx);

// number of cells that a memory is to have; `filter` may be empty and says which layers have a state
uint32_t llama_ckpt_swap_cells(
        const llama_hparams & hparams,
        ggml_type type_r,
        ggml_type type_s,
        uint32_t n_cells,
        uint32_t n_seq_max,
        uint32_t n_rs_seq,
        const std::function<bool(int32_t il)> & filter);

// Which cell a graph clears for states that begin as zeros; -1 where all of [min, max] begin as another state: clearing
// one would cost as much as a copy.
int32_t llama_ckpt_swap_zero(const llama_memory_recurrent & mem, int32_t min, int32_t max, int32_t rs_z);

// false: this memory has no cells for it
bool llama_ckpt_swap_save(llama_context * ctx, llama_seq_id seq_id);

// false: there is no snapshot
bool llama_ckpt_swap_load(llama_context * ctx, llama_seq_id seq_id);

void llama_ckpt_swap_free(llama_context * ctx, llama_seq_id seq_id);
