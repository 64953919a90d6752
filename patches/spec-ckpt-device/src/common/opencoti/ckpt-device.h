#pragma once

#include "../../src/opencoti/llama-ckpt-device.h"

#include <vector>

// What a checkpoint keeps on devices instead of in its own bytes. Only one that lives for a round of
// speculation and no longer may do so: of those of the prompt cache several are kept of one sequence.
// env: OPENCOTI_SPEC_CKPT_DEVICE
struct common_ckpt_device {
    // from now on it is one of those
    void live();

    // false: to be kept on the host
    bool save(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags);

    // false: there is nothing on the device
    bool load(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags) const;

    bool holds() const;

    void clear();

private:
    struct entry {
        llama_context * ctx = nullptr;
        llama_seq_id seq_id = -1;

        llama_ckpt_snapshot snap;
    };

    bool on = false;

    std::vector<entry> entries; // of the target and of the drafter
};
