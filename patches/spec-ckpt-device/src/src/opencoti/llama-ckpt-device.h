#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// The state that a round of speculative decoding may have to go back to, kept where the context
// keeps it: a copy in memory of the same devices, on top of LLAMA_STATE_SEQ_FLAGS_ON_DEVICE.
//
// A context can hold one snapshot of a sequence at a time. Whoever saves another one while it is
// live, or loads one that is not there any more, has a fault in his program and is aborted.
struct llama_ckpt_snapshot {
    uint64_t id = 0; // 0: none

    std::vector<uint8_t> meta; // positions and shapes, no state
};

// Replaces what the snapshot held. False: this state cannot be kept on its devices now (the log says
// once why), the snapshot is empty, and the caller keeps the state on the host. What the context
// computes must be done, or be waited for, as with llama_state_seq_get_data_ext().
LLAMA_API bool llama_ckpt_device_save(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, llama_ckpt_snapshot & snap);

// False: the snapshot is empty. It stays as it is and can be loaded again.
LLAMA_API bool llama_ckpt_device_load(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, const llama_ckpt_snapshot & snap);

// Gives the memory of the snapshot back.
LLAMA_API void llama_ckpt_device_free(llama_context * ctx, llama_seq_id seq_id, llama_ckpt_snapshot & snap);

// bytes that the snapshots of a context hold on its devices
LLAMA_API size_t llama_ckpt_device_size(const llama_context * ctx);
