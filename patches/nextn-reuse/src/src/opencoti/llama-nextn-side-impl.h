#pragma once

#include "llama-nextn-side.h"

#include "llama-batch.h"
#include "llama-context.h"
#include "llama-graph.h"

#include "ggml-cpp.h"

#include <array>
#include <memory>

// a scheduler and a graph result that take the place of those of a context for a while
struct llama_nextn_lane {
    ggml_backend_sched_ptr sched;
    llm_graph_result_ptr   res;
    llm_graph_result *     active = nullptr; // res, if its graph is allocated and can be looked at for reuse

    bool failed = false; // there is no memory for it: the context does without

    uint32_t n_tokens = 0; // of the catch-up that it was used for last
    uint64_t i_use    = 0; // when that was

    size_t size() const; // bytes of the compute buffers
};

struct llama_nextn_access;

// what another patch keeps here
struct llama_nextn_extra {
    virtual ~llama_nextn_extra() = default;

    // whether it drafts, and so takes a catch-up that waits into its launch
    virtual bool can_draft() const {
        return false;
    }

    // if the context uses a lane of this, it no longer does
    virtual void give_back(llama_nextn_access & access) {
        GGML_UNUSED(access);
    }
};

// a catch-up that has its cells already, and is yet to be computed
struct llama_nextn_waiting {
    std::unique_ptr<llama_batch_allocr> balloc;
    llama_memory_context_ptr            mctx; // of one micro-batch

    virtual ~llama_nextn_waiting() = default;

    // in a launch of its own
    virtual void compute(llama_nextn_access & access) = 0;

    // whether nobody can read what it would compute, since its cells are free again. Where copies of whole streams may be
    // pending, a cell that is free here is no proof
    virtual bool is_in_vain(llama_nextn_access & access, bool copies_pending) const = 0;
};

struct llama_nextn_side {
    static constexpr uint32_t N_SMALL = 16; // tokens of the largest micro-batch that is a small one

    llama_nextn_lane catchup;

    // for small micro-batches: their number of tokens changes with each draft, and a graph has one
    std::array<llama_nextn_lane, 6> small;

    uint64_t n_use   = 0;
    size_t   n_nodes = 0; // what the graph of a small one may have

    std::unique_ptr<llama_nextn_extra>   extra;
    std::unique_ptr<llama_nextn_extra>   turns;
    bool                                 turned = false; // the decode that begins has been given a lane
    std::unique_ptr<llama_nextn_waiting> waiting;
    std::unique_ptr<llama_nextn_waiting> spare; // the one before, since making its parts takes longer than using them
};

// the parts of a context that are private to it
struct llama_nextn_access {
    llama_context & ctx;

    ggml_backend_sched_ptr & sched()         { return ctx.sched; }
    llm_graph_result_ptr   & res(size_t i)   { return ctx.gf_res_prev[i]; }
    llm_graph_result *       res_prev()      { return ctx.get_gf_res_prev(); } // made if there is none
    llm_graph_result *     & active()        { return ctx.gf_res_prev_active; }
    llama_cparams          & cparams()       { return ctx.cparams; }
    llama_memory_i         * memory()        { return ctx.memory.get(); }
    uint32_t               & n_outputs()     { return ctx.n_outputs; }
    std::vector<int32_t>   & output_ids()    { return ctx.output_ids; }
    bool                   & need_reserve()  { return ctx.sched_need_reserve; }
    bool                     reuse_disable() { return ctx.graph_reuse_disable; }
    int32_t                & n_reused()      { return ctx.n_reused; }
    int32_t                & n_eval()        { return ctx.n_eval; }
    int32_t                & n_p_eval()      { return ctx.n_p_eval; }
    int64_t                & t_eval_us()     { return ctx.t_eval_us; }
    int64_t                & t_p_eval_us()   { return ctx.t_p_eval_us; }
    int64_t                & n_queued()      { return ctx.n_queued_tokens; }
    int64_t                & t_queued_us()   { return ctx.t_compute_start_us; }

    // created on first use
    llama_nextn_side & side();

    llm_graph_params graph_params(llm_graph_result * res, const llama_ubatch & ubatch, const llama_memory_context_i * mctx) const {
        return ctx.graph_params(res, ubatch, mctx, LLM_GRAPH_TYPE_DECODER_MTP);
    }

    ggml_backend_sched_ptr new_sched(size_t max_nodes) const;

    // the context uses the lane, or no longer; res goes into the place i of the context's results
    void exchange(llama_nextn_lane & lane, size_t i);

    // compute buffers for a catch-up of up to n_tokens; the lane is exchanged while they are made
    bool reserve_catchup(llama_nextn_lane & lane, uint32_t n_tokens, size_t max_nodes);

    // the same in the scheduler that the context has; res is what the graph is built in
    bool reserve_catchup(llm_graph_result * res, uint32_t n_tokens);

    // nodes and leaves that the samplers may add to a graph
    size_t n_nodes_sampling() const;

    // compute buffers for a prompt, where it will be decoded; false: there is no memory for them
    bool reserve_prompt();

    // the lane for a catch-up of n_tokens, nullptr if there is no memory for it
    llama_nextn_lane * catchup(uint32_t n_tokens);
};
