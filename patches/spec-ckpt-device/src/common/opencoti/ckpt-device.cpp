#include "ckpt-device.h"

#include <cstdlib>
#include <cstring>

static bool common_ckpt_device_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_SPEC_CKPT_DEVICE = getenv("OPENCOTI_SPEC_CKPT_DEVICE");
        return OPENCOTI_SPEC_CKPT_DEVICE && OPENCOTI_SPEC_CKPT_DEVICE[0] && strcmp(OPENCOTI_SPEC_CKPT_DEVICE, "0") != 0;
    }();

    return enabled;
}

void common_ckpt_device::live() {
    on = common_ckpt_device_enabled();
}

bool common_ckpt_device::save(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags) {
    if (!on) {
        return false;
    }

    for (auto & entry : entries) {
        if (entry.ctx == ctx && entry.seq_id == seq_id) {
            return llama_ckpt_device_save(ctx, seq_id, flags, entry.snap);
        }
    }

    entries.emplace_back();
    entries.back().ctx    = ctx;
    entries.back().seq_id = seq_id;

    return llama_ckpt_device_save(ctx, seq_id, flags, entries.back().snap);
}

bool common_ckpt_device::load(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags) const {
    for (const auto & entry : entries) {
        if (entry.ctx == ctx && entry.seq_id == seq_id) {
            return llama_ckpt_device_load(ctx, seq_id, flags, entry.snap);
        }
    }

    return false;
}

bool common_ckpt_device::holds() const {
    for (const auto & entry : entries) {
        if (entry.snap.id != 0) {
            return true;
        }
    }

    return false;
}

void common_ckpt_device::clear() {
    for (auto & entry : entries) {
        llama_ckpt_device_free(entry.ctx, entry.seq_id, entry.snap);
    }

    entries.clear();
}
