#include "llama-nextn-heads-reuse.h"

#include "llama-nextn-side-impl.h"

#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

static bool llama_nextn_heads_reuse_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_NEXTN_HEADS_REUSE = getenv("OPENCOTI_NEXTN_HEADS_REUSE");
        return OPENCOTI_NEXTN_HEADS_REUSE && OPENCOTI_NEXTN_HEADS_REUSE[0] && strcmp(OPENCOTI_NEXTN_HEADS_REUSE, "0") != 0;
    }();

    return enabled;
}

namespace {

// what a head decodes with
struct llama_nextn_turn {
    int32_t  head      = 0;
    uint32_t n_tokens  = 0;
    bool     is_draft  = false; // with outputs

    uint64_t i_use = 0;

    llama_nextn_lane lane; // while the context uses it, that which the context had

    bool is(const llama_nextn_turn & other) const {
        return head == other.head && n_tokens == other.n_tokens && is_draft == other.is_draft;
    }
};

struct llama_nextn_turns : public llama_nextn_extra {
    // a head has one kind of draft, and as many kinds of catch-up as there are tokens in a draft
    static constexpr size_t N_PER_HEAD = 8;

    std::vector<std::unique_ptr<llama_nextn_turn>> turns;

    llama_nextn_turn * cur = nullptr; // that which the context uses

    uint64_t n_use = 0;

    bool failed = false; // no memory: the heads keep evicting each other

    void give_back(llama_nextn_access & access) override {
        if (cur) {
            access.exchange(cur->lane, cur->is_draft);
            cur = nullptr;
        }
    }
};

} // namespace

static llama_nextn_turn * llama_nextn_heads_find(llama_nextn_access & access, llama_nextn_turns & turns, const llama_nextn_turn & wanted) {
    for (auto & turn : turns.turns) {
        if (turn->is(wanted)) {
            return turn.get();
        }
    }

    const size_t n_max = llama_nextn_turns::N_PER_HEAD*access.ctx.get_model().hparams.n_layer_nextn;

    if (turns.turns.size() < n_max) {
        std::unique_ptr<llama_nextn_turn> turn(new llama_nextn_turn());

        // as many outputs as a draft can have
        const auto save_n_outputs = access.n_outputs();

        if (wanted.is_draft) {
            access.n_outputs() = access.cparams().n_seq_max;
        }

        const uint32_t n_tokens = std::max<uint32_t>(llama_nextn_side::N_SMALL, access.n_outputs());

        const bool ok = access.reserve_catchup(turn->lane, n_tokens, access.ctx.graph_max_nodes(n_tokens));

        access.n_outputs() = save_n_outputs;

        if (!ok) {
            LLAMA_LOG_WARN("%s: no memory for another scheduler; NextN heads keep evicting each other's graphs\n", __func__);

            turns.failed = true;
            return nullptr;
        }

        if (turns.turns.empty()) {
            LLAMA_LOG_INFO("%s: compute buffers for each head and number of tokens = %8.2f MiB, at most %zu of them\n",
                    __func__, turn->lane.size()/1024.0/1024.0, n_max);
        }

        turns.turns.push_back(std::move(turn));
    } else {
        // the one that was used least lately comes last, of those that were reserved for this if there are any
        std::sort(turns.turns.begin(), turns.turns.end(), [&](const auto & a, const auto & b) {
            const bool a_fits = a->is_draft == wanted.is_draft;
            const bool b_fits = b->is_draft == wanted.is_draft;

            return a_fits != b_fits ? b_fits : a->i_use > b->i_use;
        });
    }

    auto * turn = turns.turns.back().get();

    turn->head     = wanted.head;
    turn->n_tokens = wanted.n_tokens;
    turn->is_draft = wanted.is_draft;

    return turn;
}

void llama_nextn_heads_turn(llama_context & ctx, bool is_mtp, uint32_t n_tokens) {
    if (!is_mtp || !llama_nextn_heads_reuse_enabled() || ctx.get_model().hparams.n_layer_nextn < 2) {
        return;
    }

    llama_nextn_access access { ctx };

    if (!access.memory() || !access.cparams().embeddings_nextn_masked) {
        return;
    }

    auto & side = access.side();

    if (!side.turns) {
        side.turns.reset(new llama_nextn_turns());
    }

    auto & turns = static_cast<llama_nextn_turns &>(*side.turns);

    const bool is_draft = access.n_outputs() > 0;

    llama_nextn_turn wanted;

    wanted.head     = access.cparams().nextn_layer_offset;
    wanted.n_tokens = n_tokens;
    wanted.is_draft = is_draft;

    if (!turns.cur || !turns.cur->is(wanted)) {
        turns.give_back(access);

        if (n_tokens <= llama_nextn_side::N_SMALL && !turns.failed) {
            turns.cur = llama_nextn_heads_find(access, turns, wanted);
        }

        if (turns.cur) {
            access.exchange(turns.cur->lane, is_draft);
        }
    }

    if (turns.cur) {
        turns.cur->i_use = ++turns.n_use;
    }

    side.turned = turns.cur;
}

void llama_nextn_heads_own(llama_context & ctx) {
    if (ctx.opencoti_nextn && ctx.opencoti_nextn->turns) {
        llama_nextn_access access { ctx };

        ctx.opencoti_nextn->turns->give_back(access);
    }
}
