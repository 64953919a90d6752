#include "llama-ckpt-device.h"

#include "llama-ckpt-device-impl.h"

#include "llama-context.h"
#include "llama-ext.h"
#include "llama-impl.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>

struct llama_ckpt_device {
    static llama_ckpt_device_seqs & seqs(llama_context & ctx) { return ctx.opencoti_ckpt; }

    static std::map<llama_seq_id, llama_memory_buffers> & storage(llama_context & ctx) { return ctx.mem_storage; }

    static const std::map<llama_seq_id, llama_memory_buffers> & storage(const llama_context & ctx) { return ctx.mem_storage; }

    static ggml_backend_t backend(const llama_context & ctx, ggml_backend_dev_t dev) {
        for (const auto & backend : ctx.backends) {
            if (ggml_backend_get_device(backend.get()) == dev) {
                return backend.get();
            }
        }

        return nullptr;
    }
};

// the context that one of our saves or loads works on; its hooks are called from there and have no other way to know
static thread_local llama_context * llama_ckpt_device_ctx = nullptr;

struct llama_ckpt_device_scope {
    explicit llama_ckpt_device_scope(llama_context * ctx) { llama_ckpt_device_ctx = ctx; }

    ~llama_ckpt_device_scope() { llama_ckpt_device_ctx = nullptr; }

    llama_ckpt_device_scope(const llama_ckpt_device_scope &) = delete;
    llama_ckpt_device_scope & operator=(const llama_ckpt_device_scope &) = delete;
};

static bool llama_ckpt_device_fail_alloc() {
    static const bool enabled = [] {
        const char * OPENCOTI_SPEC_CKPT_FAIL_ALLOC = getenv("OPENCOTI_SPEC_CKPT_FAIL_ALLOC");
        return OPENCOTI_SPEC_CKPT_FAIL_ALLOC && OPENCOTI_SPEC_CKPT_FAIL_ALLOC[0] && strcmp(OPENCOTI_SPEC_CKPT_FAIL_ALLOC, "0") != 0;
    }();

    return enabled;
}

bool llama_ckpt_device_no_buffer(ggml_backend_buffer_ptr & buf) {
    if (!llama_ckpt_device_ctx) {
        return false;
    }

    if (llama_ckpt_device_fail_alloc()) {
        buf.reset();
    }

    return !buf;
}

bool llama_ckpt_device_copy(const std::vector<ggml_tensor *> & src, const std::vector<ggml_tensor *> & dst) {
    if (!llama_ckpt_device_ctx || src.empty() || src.size() != dst.size()) {
        return false;
    }

    const ggml_backend_dev_t dev = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(dst[0]->buffer));

    // the processor copies at once, and has no queue to put a copy into
    if (!dev || ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) {
        return false;
    }

    const ggml_backend_t backend = llama_ckpt_device::backend(*llama_ckpt_device_ctx, dev);
    if (!backend) {
        return false;
    }

    for (size_t i = 0; i < src.size(); ++i) {
        ggml_backend_tensor_copy_async(backend, backend, src[i], dst[i]);
    }

    // once for all of them: not every backend orders copies and graphs by itself
    ggml_backend_synchronize(backend);

    return true;
}

static size_t llama_ckpt_device_held(const llama_memory_buffers & bufs) {
    size_t res = 0;

    for (const auto & [_, mbuf] : bufs) {
        res += mbuf.buf ? ggml_backend_buffer_get_size(mbuf.buf.get()) : 0;
    }

    return res;
}

static size_t llama_ckpt_device_state(const llama_memory_buffers & bufs) {
    size_t res = 0;

    for (const auto & [_, mbuf] : bufs) {
        res += mbuf.total_size;
    }

    return res;
}

size_t llama_ckpt_device_size(const llama_context * ctx) {
    size_t res = 0;

    for (const auto & [_, bufs] : llama_ckpt_device::storage(*ctx)) {
        res += llama_ckpt_device_held(bufs);
    }

    return res;
}

void llama_ckpt_device_breakdown(const llama_context & ctx, std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> & res) {
    for (const auto & [_, bufs] : llama_ckpt_device::storage(ctx)) {
        for (const auto & [buft, mbuf] : bufs) {
            if (mbuf.buf) {
                res[buft].context += ggml_backend_buffer_get_size(mbuf.buf.get());
            }
        }
    }
}

// nullptr: a memory whose partial state is more than recurrent states, or another one
static const llama_memory_recurrent * llama_ckpt_device_recurrent(const llama_memory_i * mem) {
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(mem)) {
        return hybrid->get_mem_recr();
    }

    return dynamic_cast<const llama_memory_recurrent *>(mem);
}

// why the state of a sequence cannot be kept on its devices; nullptr if it can
static const char * llama_ckpt_device_refuse(const llama_memory_i * mem, llama_seq_id seq_id, llama_state_seq_flags flags) {
    if ((flags & LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == 0) {
        return "it is a whole state";
    }

    const auto * recr = llama_ckpt_device_recurrent(mem);
    if (!recr) {
        return "it is not that of a recurrent memory alone";
    }

    // the library aborts where the cells of a sequence do not lie side by side
    uint32_t n_ranges = 0;
    bool inside = false;

    for (uint32_t i = 0; i < recr->size; ++i) {
        const bool has = recr->cells[i].has_seq_id(seq_id);

        n_ranges += has && !inside;
        inside = has;
    }

    if (n_ranges == 0) {
        return "the sequence is empty";
    }

    return n_ranges == 1 ? nullptr : "the cells of the sequence do not lie side by side";
}

static bool llama_ckpt_device_complete(const llama_memory_buffers & bufs) {
    for (const auto & [_, mbuf] : bufs) {
        if (!mbuf.buf) {
            return false;
        }
    }

    return !bufs.empty();
}

// once for each reason: the server would say it in every round. Each context may have a thread of its own
static void llama_ckpt_device_say(const char * reason) {
    static std::mutex mutex;
    static std::vector<const char *> said;

    const std::lock_guard<std::mutex> lock(mutex);

    for (const char * other : said) {
        if (strcmp(other, reason) == 0) {
            return;
        }
    }

    said.push_back(reason);
    LLAMA_LOG_WARN("%s: a speculative checkpoint goes through host memory: %s\n", __func__, reason);
}

// The counters are those of the patch spec-counters, which not every base has.
static void llama_ckpt_device_count_save(llama_context & ctx, size_t n_bytes) {
#if __has_include("llama-spec-counters.h")
    ctx.opencoti_counters.ckpt_saves++;
    ctx.opencoti_counters.ckpt_bytes_save += n_bytes;
#else
    GGML_UNUSED(ctx);
    GGML_UNUSED(n_bytes);
#endif
}

static void llama_ckpt_device_count_load(llama_context & ctx, size_t n_bytes) {
#if __has_include("llama-spec-counters.h")
    ctx.opencoti_counters.ckpt_loads++;
    ctx.opencoti_counters.ckpt_bytes_load += n_bytes;
#else
    GGML_UNUSED(ctx);
    GGML_UNUSED(n_bytes);
#endif
}

static bool llama_ckpt_device_keep(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, std::vector<uint8_t> & meta) {
    const llama_ckpt_device_scope scope(ctx);

    flags |= LLAMA_STATE_SEQ_FLAGS_ON_DEVICE;

    try {
        meta.resize(llama_state_seq_get_size_ext(ctx, seq_id, flags));

        const size_t n = llama_state_seq_get_data_ext(ctx, meta.data(), meta.size(), seq_id, flags);

        return n > 0 && n == meta.size() && llama_ckpt_device_complete(llama_ckpt_device::storage(*ctx)[seq_id]);
    } catch (const std::exception & err) {
        LLAMA_LOG_ERROR("%s: %s\n", __func__, err.what());
        return false;
    }
}

static bool llama_ckpt_device_back(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, const std::vector<uint8_t> & meta) {
    const llama_ckpt_device_scope scope(ctx);

    flags |= LLAMA_STATE_SEQ_FLAGS_ON_DEVICE;

    return llama_state_seq_set_data_ext(ctx, meta.data(), meta.size(), seq_id, flags) == meta.size();
}

bool llama_ckpt_device_save(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, llama_ckpt_snapshot & snap) {
    auto & seq = llama_ckpt_device::seqs(*ctx)[seq_id];

    if (seq.live != 0 && seq.live != snap.id) {
        GGML_ABORT("%s: sequence %d has a live snapshot already\n", __func__, seq_id);
    }

    const char * reason = seq.failed
        ? "no memory for it on the device"
        : llama_ckpt_device_refuse(ctx->get_memory(), seq_id, flags);

    if (!reason && !llama_ckpt_device_keep(ctx, seq_id, flags, snap.meta)) {
        reason = "no memory for it on the device";
        seq.failed = true;
    }

    if (reason) {
        const bool failed = seq.failed;

        llama_ckpt_device_say(reason);
        llama_ckpt_device_free(ctx, seq_id, snap);
        llama_ckpt_device::seqs(*ctx)[seq_id].failed = failed;

        return false;
    }

    static std::atomic<uint64_t> last { 0 };

    snap.id = ++last;
    seq.live = snap.id;

    llama_ckpt_device_count_save(*ctx, llama_ckpt_device_state(llama_ckpt_device::storage(*ctx)[seq_id]));

    return true;
}

bool llama_ckpt_device_load(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, const llama_ckpt_snapshot & snap) {
    if (snap.id == 0) {
        return false;
    }

    const auto & seqs = llama_ckpt_device::seqs(*ctx);
    const auto it = seqs.find(seq_id);

    if (it == seqs.end() || it->second.live != snap.id) {
        GGML_ABORT("%s: the snapshot of sequence %d is not there any more\n", __func__, seq_id);
    }

    if (!llama_ckpt_device_back(ctx, seq_id, flags, snap.meta)) {
        GGML_ABORT("%s: the snapshot of sequence %d could not be restored\n", __func__, seq_id);
    }

    llama_ckpt_device_count_load(*ctx, llama_ckpt_device_state(llama_ckpt_device::storage(*ctx)[seq_id]));

    return true;
}

void llama_ckpt_device_free(llama_context * ctx, llama_seq_id seq_id, llama_ckpt_snapshot & snap) {
    auto & seqs = llama_ckpt_device::seqs(*ctx);
    const auto it = seqs.find(seq_id);

    // another's is left alone
    if (it != seqs.end() && (it->second.live == snap.id || it->second.live == 0)) {
        llama_ckpt_device::storage(*ctx).erase(seq_id);
        seqs.erase(it);
    }

    snap = {};
}
