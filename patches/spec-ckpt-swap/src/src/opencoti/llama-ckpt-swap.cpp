#include "llama-ckpt-swap.h"

#include "llama-context.h"
#include "llama-hparams.h"
#include "llama-impl.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"

#include <cstdlib>
#include <cstring>

// Below this a copy costs no more than the graph that is built anew because its cell is another one, but where all
// drafts are accepted, which takes 4; in MiB.
static constexpr double LLAMA_CKPT_SWAP_MIN = 2.0;

bool llama_ckpt_swap_asked() {
    static const bool asked = [] {
        const char * OPENCOTI_SPEC_CKPT_SWAP = getenv("OPENCOTI_SPEC_CKPT_SWAP");
        return OPENCOTI_SPEC_CKPT_SWAP && OPENCOTI_SPEC_CKPT_SWAP[0] && strcmp(OPENCOTI_SPEC_CKPT_SWAP, "0") != 0;
    }();

    return asked;
}

static bool llama_ckpt_swap_enabled() {
    static const bool enabled = [] {
        // checkpoints that stay on the device are what swaps: else cells would be doubled for nothing
        const char * OPENCOTI_SPEC_CKPT_DEVICE = getenv("OPENCOTI_SPEC_CKPT_DEVICE");
        return llama_ckpt_swap_asked() &&
            OPENCOTI_SPEC_CKPT_DEVICE && OPENCOTI_SPEC_CKPT_DEVICE[0] && strcmp(OPENCOTI_SPEC_CKPT_DEVICE, "0") != 0;
    }();

    return enabled;
}

static double llama_ckpt_swap_min() {
    static const double min = [] {
        const char * OPENCOTI_SPEC_CKPT_SWAP_MIN = getenv("OPENCOTI_SPEC_CKPT_SWAP_MIN");
        return OPENCOTI_SPEC_CKPT_SWAP_MIN && OPENCOTI_SPEC_CKPT_SWAP_MIN[0] ? atof(OPENCOTI_SPEC_CKPT_SWAP_MIN) : LLAMA_CKPT_SWAP_MIN;
    }();

    return min;
}

uint32_t llama_ckpt_swap_cells(
        const llama_hparams & hparams,
        ggml_type type_r,
        ggml_type type_s,
        uint32_t n_cells,
        uint32_t n_seq_max,
        uint32_t n_rs_seq,
        const std::function<bool(int32_t il)> & filter) {
    // where attention has a window, the partial state is not the recurrent one alone, so that nothing could swap
    if (hparams.swa_type != LLAMA_SWA_TYPE_NONE) {
        return n_cells;
    }

    // with bounded rollback each cell has several states, of which a graph writes all
    if (!llama_ckpt_swap_enabled() || n_rs_seq > 0 || n_cells != n_seq_max) {
        return n_cells;
    }

    size_t n_bytes = 0;

    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        if (!filter || filter(il)) {
            n_bytes += ggml_row_size(type_r, hparams.n_embd_r()) + ggml_row_size(type_s, hparams.n_embd_s());
        }
    }

    const double size = n_bytes/1024.0/1024.0;

    if (n_bytes == 0 || size < llama_ckpt_swap_min()) {
        return n_cells;
    }

    LLAMA_LOG_INFO("%s: two cells for each sequence, a state has %.2f MiB\n", __func__, size);

    return 2*n_cells;
}

int32_t llama_ckpt_swap_zero(const llama_memory_recurrent & mem, int32_t min, int32_t max, int32_t rs_z) {
    if (!llama_ckpt_swap_enabled()) {
        return rs_z;
    }

    for (int32_t i = min; i <= max; ++i) {
        if (mem.cells[i].src < 0) {
            return rs_z;
        }
    }

    return -1;
}

static llama_memory_recurrent * llama_ckpt_swap_memory(llama_context * ctx) {
    auto * mem = ctx->get_memory();

    if (const auto * hybrid = dynamic_cast<llama_memory_hybrid *>(mem)) {
        return hybrid->get_mem_recr();
    }

    return dynamic_cast<llama_memory_recurrent *>(mem);
}

const char * llama_ckpt_swap_refusal(llama_context * ctx) {
    if (!llama_ckpt_swap_enabled()) {
        return "OPENCOTI_SPEC_CKPT_DEVICE is not set, without which OPENCOTI_SPEC_CKPT_SWAP does nothing";
    }

    const auto * mem = llama_ckpt_swap_memory(ctx);

    if (!mem) {
        return "it has no recurrent memory, or its attention has a window";
    }

    if (mem->size == 2*mem->rs_idx.size()) {
        return nullptr;
    }

    return llama_n_rs_seq(ctx) > 0
        ? "the memory goes back by states of its own (bounded rollback)"
        : "the state is smaller than OPENCOTI_SPEC_CKPT_SWAP_MIN";
}

// our id for a sequence; -1: the memory has no cells for it
static llama_seq_id llama_ckpt_swap_keeper(const llama_memory_recurrent * mem, llama_seq_id seq_id) {
    if (!mem || !llama_ckpt_swap_enabled()) {
        return -1;
    }

    const uint32_t n_seq_max = mem->rs_idx.size();

    if (mem->size != 2*n_seq_max || seq_id < 0 || (uint32_t) seq_id >= n_seq_max) {
        return -1;
    }

    return n_seq_max + seq_id;
}

// takes an id out of its cell
static void llama_ckpt_swap_leave(llama_memory_recurrent & mem, llama_seq_id id) {
    const int32_t tail = mem.cells[id].tail;

    if (tail < 0) {
        return;
    }

    auto & cell = mem.cells[tail];

    cell.seq_id.erase(id);
    mem.cells[id].tail = -1;

    if (cell.is_empty()) {
        cell.pos = -1;
        cell.src = -1;
        mem.used--;
    }
}

static void llama_ckpt_swap_join(llama_memory_recurrent & mem, llama_seq_id id, int32_t tail) {
    llama_ckpt_swap_leave(mem, id);

    mem.cells[tail].seq_id.insert(id);
    mem.cells[id].tail = tail;
}

bool llama_ckpt_swap_save(llama_context * ctx, llama_seq_id seq_id) {
    auto * mem = llama_ckpt_swap_memory(ctx);

    const llama_seq_id keeper = llama_ckpt_swap_keeper(mem, seq_id);

    if (keeper < 0 || mem->cells[seq_id].tail < 0) {
        return false;
    }

    llama_ckpt_swap_join(*mem, keeper, mem->cells[seq_id].tail);

    return true;
}

bool llama_ckpt_swap_load(llama_context * ctx, llama_seq_id seq_id) {
    auto * mem = llama_ckpt_swap_memory(ctx);

    const llama_seq_id keeper = llama_ckpt_swap_keeper(mem, seq_id);

    if (keeper < 0 || mem->cells[keeper].tail < 0) {
        return false;
    }

    llama_ckpt_swap_join(*mem, seq_id, mem->cells[keeper].tail);

    return true;
}

void llama_ckpt_swap_free(llama_context * ctx, llama_seq_id seq_id) {
    auto * mem = llama_ckpt_swap_memory(ctx);

    const llama_seq_id keeper = llama_ckpt_swap_keeper(mem, seq_id);

    if (keeper >= 0) {
        llama_ckpt_swap_leave(*mem, keeper);
    }
}
