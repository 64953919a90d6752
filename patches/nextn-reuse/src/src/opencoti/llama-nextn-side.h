#pragma once

#include <cstdint>
#include <memory>

struct llama_context;
struct llama_nextn_lane;

// What a NextN draft context has beside its scheduler and its graph results, so that work of one
// kind does not evict the graph of another. Dropped with the scheduler of the context.
struct llama_nextn_side;

struct llama_nextn_side_deleter {
    void operator()(llama_nextn_side * side) const;
};

using llama_nextn_side_ptr = std::unique_ptr<llama_nextn_side, llama_nextn_side_deleter>;

// While it lives, a decode of the NextN context without outputs (the catch-up with the target) uses
// a scheduler and a graph result of its own: one for prompts, and one for each number of verified
// tokens that came up lately. Does nothing for any other decode.
// env: OPENCOTI_NEXTN_REUSE
struct llama_nextn_catchup_scope {
    llama_nextn_catchup_scope(llama_context & ctx, bool is_mtp, uint32_t n_tokens);
    ~llama_nextn_catchup_scope();

    llama_nextn_catchup_scope(const llama_nextn_catchup_scope &) = delete;
    llama_nextn_catchup_scope & operator=(const llama_nextn_catchup_scope &) = delete;

private:
    llama_context    * ctx  = nullptr; // null: nothing was exchanged
    llama_nextn_lane * lane = nullptr;
};
