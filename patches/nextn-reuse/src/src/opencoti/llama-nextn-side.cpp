#include "llama-nextn-side-impl.h"

#include "llama-batch.h"
#include "llama-impl.h"
#include "llama-model.h"
#include "llama-sampler.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

static bool llama_nextn_reuse_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_NEXTN_REUSE = getenv("OPENCOTI_NEXTN_REUSE");
        return OPENCOTI_NEXTN_REUSE && OPENCOTI_NEXTN_REUSE[0] && strcmp(OPENCOTI_NEXTN_REUSE, "0") != 0;
    }();

    return enabled;
}

void llama_nextn_side_deleter::operator()(llama_nextn_side * side) const {
    delete side;
}

size_t llama_nextn_lane::size() const {
    size_t res = 0;

    for (int i = 0; sched && i < ggml_backend_sched_get_n_backends(sched.get()); ++i) {
        res += ggml_backend_sched_get_buffer_size(sched.get(), ggml_backend_sched_get_backend(sched.get(), i));
    }

    return res;
}

llama_nextn_side & llama_nextn_access::side() {
    if (!ctx.opencoti_nextn) {
        ctx.opencoti_nextn.reset(new llama_nextn_side());
    }

    return *ctx.opencoti_nextn;
}

ggml_backend_sched_ptr llama_nextn_access::new_sched(size_t max_nodes) const {
    return ggml_backend_sched_ptr(ggml_backend_sched_new(ctx.backend_ptrs.data(), ctx.backend_buft.data(),
                ctx.backend_ptrs.size(), max_nodes, ctx.cparams.pipeline_parallel, ctx.cparams.op_offload));
}

void llama_nextn_access::exchange(llama_nextn_lane & lane, size_t i) {
    std::swap(sched(),  lane.sched);
    std::swap(res(i),   lane.res);
    std::swap(active(), lane.active);
}

size_t llama_nextn_access::n_nodes_sampling() const {
    size_t res = 0;

    for (const auto & [seq_id, sampler] : ctx.sampling.samplers) {
        res += 2*(size_t) llama_sampler_backend_n_nodes(sampler) + 8;
    }

    return res;
}

bool llama_nextn_access::reserve_catchup(llm_graph_result * res, uint32_t n_tokens) {
    const auto mctx = memory()->init_full();
    if (!mctx) {
        return false;
    }

    // as llama_context::graph_reserve()
    const uint32_t n_seqs = cparams().n_seq_max;

    n_tokens = (n_tokens + n_seqs - 1)/n_seqs*n_seqs;

    llama_batch_allocr balloc(ctx.get_model().hparams.n_pos_per_embd());
    llama_ubatch ubatch = balloc.ubatch_reserve(n_tokens/n_seqs, n_seqs);

    for (uint32_t s = 0; s < n_seqs; ++s) {
        for (uint32_t t = 0; t < n_tokens/n_seqs; ++t) {
            ubatch.n_seq_id[s*(n_tokens/n_seqs) + t] = 1;
            ubatch.seq_id  [s*(n_tokens/n_seqs) + t] = &ubatch.seq_id_unq[s];
        }
    }

    res->reset();

    // applying a sampler leaves traces in it, and this may be in the middle of a batch
    auto params = graph_params(res, ubatch, mctx.get());
    params.samplers.clear();

    auto * gf = ctx.get_model().build_graph(params);

    return gf && ggml_backend_sched_reserve(sched().get(), gf);
}

bool llama_nextn_access::reserve_catchup(llama_nextn_lane & lane, uint32_t n_tokens, size_t max_nodes) {
    lane.sched = new_sched(max_nodes);
    lane.res.reset(new llm_graph_result(max_nodes));

    llm_graph_result * res = lane.res.get();

    exchange(lane, 0);

    const bool ok = reserve_catchup(res, n_tokens);

    exchange(lane, 0);

    return ok;
}

bool llama_nextn_access::reserve_prompt() {
    const uint32_t n_tokens = std::min(cparams().n_ctx, cparams().n_ubatch);

    if (llama_nextn_reuse_enabled() && catchup(n_tokens)) {
        return true;
    }

    // what was allocated in this scheduler moves
    active() = nullptr;

    const auto save_n_outputs = n_outputs();

    n_outputs() = 0;

    ggml_backend_sched_reset(sched().get());

    const bool ok = reserve_catchup(ctx.get_gf_res_reserve(), n_tokens);

    n_outputs() = save_n_outputs;

    return ok;
}

llama_nextn_lane * llama_nextn_access::catchup(uint32_t n_tokens) {
    auto & side = this->side();

    const uint32_t n_tokens_max = std::min(cparams().n_ctx, cparams().n_ubatch);

    auto & large = side.catchup;

    if (!large.sched && !large.failed) {
        large.failed = !reserve_catchup(large, n_tokens_max, ctx.graph_max_nodes(n_tokens_max));

        if (large.failed) {
            large.sched.reset();
            large.res.reset();

            LLAMA_LOG_WARN("%s: no memory for a scheduler of its own; catch-up and drafts keep evicting each other\n", __func__);
        } else {
            // a small graph has the nodes of a large one, and those of the samplers, which no graph that is reserved has
            side.n_nodes = 2*(ggml_used_mem(large.res->get_ctx()) - ggml_graph_overhead_custom(large.res->get_max_nodes(), false))/ggml_tensor_overhead() + 64 + n_nodes_sampling();

            LLAMA_LOG_INFO("%s: compute buffers for the catch-up of the NextN context = %8.2f MiB\n", __func__, large.size()/1024.0/1024.0);
        }
    }

    if (large.failed) {
        return nullptr;
    }

    if (n_tokens > side.N_SMALL) {
        return &large;
    }

    // the lane that had this number of tokens before, else the one that was used least lately
    auto * lane = &side.small[0];
    for (auto & cur : side.small) {
        if (cur.n_tokens == n_tokens) {
            lane = &cur;
            break;
        }
        if (cur.i_use < lane->i_use) {
            lane = &cur;
        }
    }

    if (!lane->sched && (lane->failed || !reserve_catchup(*lane, side.N_SMALL, side.n_nodes))) {
        lane->failed = true;
        lane->sched.reset();
        lane->res.reset();

        return &large;
    }

    lane->n_tokens = n_tokens;
    lane->i_use    = ++side.n_use;

    return lane;
}

llama_nextn_catchup_scope::llama_nextn_catchup_scope(llama_context & ctx, bool is_mtp, uint32_t n_tokens) {
    if (!is_mtp || !llama_nextn_reuse_enabled()) {
        return;
    }

    llama_nextn_access access { ctx };

    if (ctx.opencoti_nextn && std::exchange(ctx.opencoti_nextn->turned, false)) {
        return;
    }

    const auto & cparams = access.cparams();

    const auto & layer_inp = cparams.embeddings_layer_inp;

    // what is read from the graph afterwards is looked up in the scheduler of the context, so nothing may be read
    if (access.n_outputs() > 0 || !cparams.embeddings_nextn_masked || !access.memory() ||
            std::find(layer_inp.begin(), layer_inp.end(), true) != layer_inp.end()) {
        return;
    }

    lane = access.catchup(n_tokens);
    if (!lane) {
        return;
    }

    access.exchange(*lane, 0);

    this->ctx = &ctx;
}

llama_nextn_catchup_scope::~llama_nextn_catchup_scope() {
    if (ctx) {
        llama_nextn_access { *ctx }.exchange(*lane, 0);
    }
}
