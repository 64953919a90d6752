#pragma once

#include "common.h"

#include "../../src/opencoti/llama-draft-vocab.h"

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <vector>

class common_json;

// What has happened to the part of the vocabulary that this process drafts over.
struct common_draft_vocab_counts {
    bool enabled = false;

    uint64_t missing  = 0; // tokens that the target has processed and the part had not
    uint64_t promoted = 0; // tokens that were given a slot

    // how much they have grown since
    common_draft_vocab_counts until_now() const;

    // adds members to an object, where drafts are over a part of the vocabulary
    void add_to(common_json & counters) const;
};

common_draft_vocab_counts common_draft_vocab_get_counts();

// The slots of a part of the vocabulary: which token has which, and which was of use longest ago. Knows of no context.
struct common_draft_vocab_slots {
    static constexpr size_t N_QUEUE = 4096; // tokens that may wait for a slot

    // `ids` in the order of the slots; `ranked`, best first, are those of them that may lose theirs
    void init(size_t n_vocab, const std::vector<llama_token> & ids, const std::vector<llama_token> & ranked);

    bool has(llama_token id) const;

    // the token is of use; where it has no slot, it waits for one
    void use(llama_token id);

    // gives a slot to the token that was of use last of those that wait; false: none waits, or no slot may be lost
    bool promote(int32_t & slot, llama_token & id, llama_token & old);

private:
    void enter(int32_t slot); // as the one that was of use last
    void leave(int32_t slot);

    std::vector<int32_t>     slot_of; // [n_vocab] -1: none
    std::vector<llama_token> id_of;   // [n_slots]
    std::vector<uint32_t>    waits;   // [n_vocab] since when, 0: it does not

    struct waiting {
        llama_token id;
        uint32_t    since; // another one than in `waits`: it has moved on
    };

    std::deque<waiting> queue;

    uint32_t now = 0;

    // a ring of the slots that may be lost, through one that stands for its beginning; is its own neighbour: not in it
    std::vector<int32_t> newer;
    std::vector<int32_t> older;
};

// Lets the NextN heads draft over a part of the vocabulary, and keeps that part up with the text. What the target makes
// of the drafts does not change.
//
// env: OPENCOTI_DRAFT_VOCAB       a file of token ids, best first; ":N" behind it: the first N of them; ":N" alone: ids below N
//      OPENCOTI_DRAFT_VOCAB_FIXED the part stays what it is
//      OPENCOTI_DRAFT_VOCAB_TRACE a file; what is in the part, and each change
struct common_draft_vocab {
    // the context is ready, and nothing was drafted; says in the log what the part takes, or why there is none
    void init(const common_params_speculative_draft & params);

    // the target has processed the batch
    void seen(const common_params_speculative_draft & params, const common_batch & batch);

    // sequences are about to be drafted for: tokens that are missing get slots, a bounded number of them
    void renew(const common_params_speculative_draft & params, int n_drafting);

private:
    struct file_close {
        void operator()(FILE * file) const {
            fclose(file);
        }
    };

    bool enabled = false;
    bool fixed   = false;

    common_draft_vocab_slots slots;

    int32_t n_watch = 0; // batches for which likely tokens are looked at, since one was missing not long ago

    uint64_t n_drafts = 0;

    std::vector<llama_token> likely;
    std::vector<int32_t>     new_slots;
    std::vector<llama_token> new_ids;

    std::unique_ptr<FILE, file_close> trace;
};
