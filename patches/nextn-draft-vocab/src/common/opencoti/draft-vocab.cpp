#include "draft-vocab.h"

#include "json.h"
#include "log.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

// slots that change hands before one draft: each costs a row read and a row written
static const size_t COMMON_DRAFT_VOCAB_N_RENEW = 16;

// how many of the most likely next tokens are looked at, and for how many batches after one was missing
static const size_t  COMMON_DRAFT_VOCAB_N_LIKELY = 64;
static const int32_t COMMON_DRAFT_VOCAB_N_WATCH  = 8;

// the drafter's sampler looks at ten candidates
static const size_t COMMON_DRAFT_VOCAB_N_MIN = 10;

// of one thread: that which drafts is that which asks, as with common_spec_times
static common_draft_vocab_counts common_draft_vocab_total;

common_draft_vocab_counts common_draft_vocab_get_counts() {
    return common_draft_vocab_total;
}

common_draft_vocab_counts common_draft_vocab_counts::until_now() const {
    common_draft_vocab_counts res = common_draft_vocab_total;

    res.missing  -= missing;
    res.promoted -= promoted;

    return res;
}

void common_draft_vocab_counts::add_to(common_json & counters) const {
    if (enabled) {
        counters["vocab_missing"]  = missing;
        counters["vocab_promoted"] = promoted;
    }
}

//
// slots
//

void common_draft_vocab_slots::init(size_t n_vocab, const std::vector<llama_token> & ids, const std::vector<llama_token> & ranked) {
    slot_of.assign(n_vocab, -1);
    waits  .assign(n_vocab, 0);
    queue  .clear();

    id_of = ids;

    for (size_t slot = 0; slot < ids.size(); ++slot) {
        slot_of[ids[slot]] = slot;
    }

    newer.resize(ids.size() + 1);
    older.resize(ids.size() + 1);

    for (size_t slot = 0; slot < newer.size(); ++slot) {
        newer[slot] = slot;
        older[slot] = slot;
    }

    for (auto it = ranked.rbegin(); it != ranked.rend(); ++it) {
        enter(slot_of[*it]);
    }
}

void common_draft_vocab_slots::enter(int32_t slot) {
    const int32_t begin = id_of.size();

    older[slot]  = older[begin];
    newer[slot]  = begin;
    newer[older[slot]] = slot;
    older[begin] = slot;
}

void common_draft_vocab_slots::leave(int32_t slot) {
    newer[older[slot]] = newer[slot];
    older[newer[slot]] = older[slot];

    newer[slot] = slot;
    older[slot] = slot;
}

bool common_draft_vocab_slots::has(llama_token id) const {
    return id < 0 || (size_t) id >= slot_of.size() || slot_of[id] >= 0;
}

void common_draft_vocab_slots::use(llama_token id) {
    if (!has(id)) {
        if (queue.size() == N_QUEUE) {
            if (waits[queue.front().id] == queue.front().since) {
                waits[queue.front().id] = 0;
            }
            queue.pop_front();
        }
        waits[id] = ++now;
        queue.push_back({ id, now });
    } else if (id >= 0 && (size_t) id < slot_of.size()) {
        const int32_t slot = slot_of[id];

        // special tokens are in no order
        if (newer[slot] != slot) {
            leave(slot);
            enter(slot);
        }
    }
}

bool common_draft_vocab_slots::promote(int32_t & slot, llama_token & id, llama_token & old) {
    const int32_t begin = id_of.size();

    while (!queue.empty() && waits[queue.back().id] != queue.back().since) {
        queue.pop_back();
    }

    if (queue.empty() || newer[begin] == begin) {
        return false;
    }

    id = queue.back().id;
    queue.pop_back();
    waits[id] = 0;

    slot = newer[begin]; // of use longest ago
    old  = id_of[slot];

    slot_of[old] = -1;
    slot_of[id]  = slot;
    id_of[slot]  = id;

    leave(slot);
    enter(slot);

    return true;
}

//
// drafting
//

static bool common_draft_vocab_is_on(const char * value) {
    return value && value[0] && strcmp(value, "0") != 0;
}

// Ids that the variable names, best first. An error says what is wrong with it.
static std::string common_draft_vocab_read(const std::string & text, llama_token n_vocab, std::vector<llama_token> & ids) {
    std::string path = text;
    size_t      n    = n_vocab;

    const size_t colon = text.rfind(':');
    if (colon != std::string::npos && colon + 1 < text.size() && text.size() - colon < 11 &&
            std::all_of(text.begin() + colon + 1, text.end(), [](unsigned char c) { return isdigit(c); })) {
        path = text.substr(0, colon);
        n    = std::strtoull(text.c_str() + colon + 1, nullptr, 10);
    }

    if (path.empty()) {
        for (llama_token id = 0; id < n_vocab && (size_t) id < n; ++id) {
            ids.push_back(id);
        }
        return "";
    }

    std::ifstream file(path);
    if (!file) {
        return "cannot read " + path + ": " + strerror(errno);
    }

    std::vector<bool> has(n_vocab, false);

    std::string line;
    for (size_t i_line = 1; std::getline(file, line); ++i_line) {
        line.resize(std::min(line.size(), line.find('#')));

        const char * cur = line.c_str();
        while (true) {
            cur += strspn(cur, " \t\r,");
            if (!*cur) {
                break;
            }

            char * end = nullptr;
            const long long id = strtoll(cur, &end, 10);

            if (end == cur || !strchr(" \t\r,", *end) || id < 0 || id >= n_vocab) {
                return path + ":" + std::to_string(i_line) + ": no token id of this model, which has " + std::to_string(n_vocab) + " tokens";
            }
            cur = end;

            if (!has[id] && ids.size() < n) {
                has[id] = true;
                ids.push_back(id);
            }
        }
    }

    if (file.bad()) {
        return "cannot read " + path;
    }

    return "";
}

void common_draft_vocab::init(const common_params_speculative_draft & params) {
    const char * OPENCOTI_DRAFT_VOCAB       = getenv("OPENCOTI_DRAFT_VOCAB");
    const char * OPENCOTI_DRAFT_VOCAB_FIXED = getenv("OPENCOTI_DRAFT_VOCAB_FIXED");
    const char * OPENCOTI_DRAFT_VOCAB_TRACE = getenv("OPENCOTI_DRAFT_VOCAB_TRACE");

    if (!common_draft_vocab_is_on(OPENCOTI_DRAFT_VOCAB)) {
        return;
    }

    const auto * vocab = llama_model_get_vocab(llama_get_model(params.ctx_dft));

    const llama_token n_vocab = llama_vocab_n_tokens(vocab);

    std::vector<llama_token> ranked;

    std::string refusal = common_draft_vocab_read(OPENCOTI_DRAFT_VOCAB, n_vocab, ranked);

    if (refusal.empty()) {
        const char * reason = llama_draft_vocab_refusal(params.ctx_dft);
        refusal = reason ? reason : "";
    }

    // special tokens are always in, whoever names them
    const auto is_special = [&](llama_token id) {
        return (llama_vocab_get_attr(vocab, id) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED)) || llama_vocab_is_eog(vocab, id);
    };

    const size_t n_named = ranked.size();

    ranked.erase(std::remove_if(ranked.begin(), ranked.end(), is_special), ranked.end());

    std::vector<llama_token> ids = ranked;
    for (llama_token id = 0; id < n_vocab; ++id) {
        if (is_special(id)) {
            ids.push_back(id);
        }
    }

    // as in the whole vocabulary, where logits are equal
    std::sort(ids.begin(), ids.end());

    if (refusal.empty()) {
        refusal =
            n_named == 0                           ? "no token is named" :
            ids.size() < COMMON_DRAFT_VOCAB_N_MIN ? "too few tokens are named" :
            ids.size() == (size_t) n_vocab        ? "all tokens are named" : "";
    }

    if (!refusal.empty()) {
        LOG_WRN("%s: drafts are over the whole vocabulary: %s\n", __func__, refusal.c_str());
        return;
    }

    const size_t size = llama_draft_vocab_attach(params.ctx_dft, ids.data(), ids.size());
    if (size == 0) {
        return;
    }

    fixed = common_draft_vocab_is_on(OPENCOTI_DRAFT_VOCAB_FIXED);

    LOG_INF("%s: drafts are over %zu of %d tokens, %zu of them special, %s; the rows of the head take %.2f MiB\n", __func__,
            ids.size(), n_vocab, ids.size() - ranked.size(), fixed ? "fixed" : "kept up with the text", size/1024.0/1024.0);

    slots.init(n_vocab, ids, ranked);

    enabled = true;

    common_draft_vocab_total.enabled = true;

    if (OPENCOTI_DRAFT_VOCAB_TRACE && OPENCOTI_DRAFT_VOCAB_TRACE[0]) {
        trace.reset(fopen(OPENCOTI_DRAFT_VOCAB_TRACE, "wb"));
        if (!trace) {
            LOG_ERR("%s: cannot write OPENCOTI_DRAFT_VOCAB_TRACE=%s: %s\n", __func__, OPENCOTI_DRAFT_VOCAB_TRACE, strerror(errno));
            return;
        }

        fprintf(trace.get(), "0");
        for (const auto id : ids) {
            fprintf(trace.get(), " %d", id);
        }
        fprintf(trace.get(), "\n");
        fflush(trace.get());
    }
}

void common_draft_vocab::seen(const common_params_speculative_draft & params, const common_batch & batch) {
    if (!enabled) {
        return;
    }

    const int32_t n_missing = std::count_if(batch.tokens.begin(), batch.tokens.end(), [&](const common_batch::token & token) {
        return !slots.has(token.id);
    });

    common_draft_vocab_total.missing += n_missing;

    if (fixed) {
        return;
    }

    n_watch = n_missing > 0 ? COMMON_DRAFT_VOCAB_N_WATCH : std::max(0, n_watch - 1);

    // The text has turned to what the part has not: then the tokens that could have come next are not far. Only the
    // first token of each sequence is known to be one of the text, the others were drafted.
    for (int32_t i = 0; n_watch > 0 && i < batch.size(); ++i) {
        if (!batch.tokens[i].output || (i > 0 && batch.tokens[i].seq_id == batch.tokens[i - 1].seq_id)) {
            continue;
        }

        likely.resize(COMMON_DRAFT_VOCAB_N_LIKELY);
        likely.resize(llama_draft_vocab_likely(params.ctx_tgt, i, likely.data(), likely.size()));

        std::for_each(likely.rbegin(), likely.rend(), [&](llama_token id) { slots.use(id); });
    }

    // what came goes before what could have come
    for (const auto & token : batch.tokens) {
        slots.use(token.id);
    }
}

void common_draft_vocab::renew(const common_params_speculative_draft & params, int n_drafting) {
    if (!enabled || n_drafting == 0) {
        return;
    }

    n_drafts++;

    if (fixed) {
        return;
    }

    new_slots.clear();
    new_ids  .clear();

    int32_t     slot = -1;
    llama_token id   = -1;
    llama_token old  = -1;

    while (new_ids.size() < COMMON_DRAFT_VOCAB_N_RENEW && slots.promote(slot, id, old)) {
        new_slots.push_back(slot);
        new_ids  .push_back(id);

        if (trace) {
            fprintf(trace.get(), "%" PRIu64 " %d %d %d\n", n_drafts, slot, old, id);
        }
    }

    if (new_ids.empty()) {
        return;
    }

    if (trace) {
        fflush(trace.get());
    }

    llama_draft_vocab_replace(params.ctx_dft, new_slots.data(), new_ids.data(), new_ids.size());

    common_draft_vocab_total.promoted += new_ids.size();
}
