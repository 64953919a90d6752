#pragma once

// What the hooks in llama_context need; not for users of the library.

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

struct llama_memory_breakdown_data;

// what a context knows of the snapshot of one sequence
struct llama_ckpt_device_seq {
    uint64_t live = 0; // id of the snapshot, 0: none

    bool failed = false; // there was no memory for it: not tried again before it is freed
};

using llama_ckpt_device_seqs = std::map<llama_seq_id, llama_ckpt_device_seq>;

// Whether a save of ours lacks the buffer that it has just asked for. Saves of others are left alone.
bool llama_ckpt_device_no_buffer(ggml_backend_buffer_ptr & buf);

// Queues the copies of all tensors and waits once, if a save or load of ours runs and the backend of these
// tensors has a queue. False: nothing was done.
bool llama_ckpt_device_copy(const std::vector<ggml_tensor *> & src, const std::vector<ggml_tensor *> & dst);

// adds the snapshots of a context to its memory
void llama_ckpt_device_breakdown(const llama_context & ctx, std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> & res);
