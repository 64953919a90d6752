#include "llama-nextn-fused-impl.h"

#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
#include "llama-model.h"

bool llama_nextn_fused_seen::look(const llama_kv_cache & kv, const llama_ubatch & ubatch, int64_t n_streams) {
    ggml_init_params params = {
        /*.mem_size   =*/ ggml_tensor_overhead(),
        /*.mem_buffer =*/ nullptr,
        /*.no_alloc   =*/ true,
    };
    ctx.reset(ggml_init(params));

    ggml_tensor * seen = ggml_new_tensor_4d(ctx.get(), GGML_TYPE_F32, kv.get_size(), ubatch.n_tokens/n_streams, 1, n_streams);

    if (!buf || ggml_backend_buffer_get_size(buf.get()) < ggml_nbytes(seen)) {
        buf.reset(ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), ggml_nbytes(seen)));
    }
    if (!buf ||
            ggml_backend_tensor_alloc(buf.get(), seen, ggml_backend_buffer_get_base(buf.get())) != GGML_STATUS_SUCCESS) {
        return false;
    }

    kv.set_input_kq_mask(seen, &ubatch, true);

    return true;
}

bool llama_nextn_fused_seen::takes(const llama_kv_cache & kv, const llama_ubatch & ubatch) const {
    const ggml_tensor * seen = ggml_get_first_tensor(ctx.get());

    const int64_t n_cells   = seen->ne[0];
    const int64_t n_rows    = seen->ne[1];
    const int64_t n_streams = seen->ne[3];

    const float * data = (const float *) seen->data;

    const auto sinfo = kv.find_slot(ubatch, false);

    for (size_t s = 0; s < sinfo.idxs.size(); ++s) {
        for (const uint32_t idx : sinfo.idxs[s]) {
            // one stream: the cell belongs to any of the sequences
            for (int64_t row = 0; row < n_rows; ++row) {
                if (data[((n_streams > 1 ? s : 0)*n_rows + row)*n_cells + idx] == 0.0f) {
                    return true;
                }
            }
        }
    }

    return sinfo.empty();
}

bool llama_nextn_fused_place(
        llama_nextn_access            & access,
        llama_nextn_fused             & fused,
        llama_nextn_fused_chain       & chain,
        const llama_nextn_fused_parts & parts,
        const llama_nextn_fused_seq   * seqs,
        int32_t                         n_steps) {
    const auto & model = access.ctx.get_model();

    // The memory must not be asked for a plan that is not carried out: with several streams it may not find back to where it
    // looked for the next cell.
    for (const auto & part : parts) {
        if (part.size() > access.cparams().n_ubatch) {
            return false;
        }
    }

    if (chain.nodes.size() != n_steps*parts.size()) {
        // the tensors of the graph go with the nodes
        chain.nodes.resize(n_steps*parts.size());
        chain.lane.active = nullptr;
    }

    if (!fused.batch) {
        fused.batch.reset(new llama_batch_ext(&access.ctx));
    }

    const size_t n_embd = fused.batch->n_embd_inp;

    const auto * iswa = dynamic_cast<const llama_kv_cache_iswa *>(access.memory());

    for (int32_t k = 0; k < n_steps; ++k) {
        size_t i = 0;

        for (size_t p = 0; p < parts.size(); ++p) {
            auto & node = chain.nodes[k*parts.size() + p];

            auto & batch = *fused.batch;
            batch.clear();

            for (size_t r = 0; r < parts[p].size(); ++r, ++i) {
                // token and hidden row of the later steps are not known here, and are not looked at
                const llama_pos pos = seqs[i].pos + k;

                const int32_t idx = batch.add_token(seqs[i].seq_id);
                if (idx < 0 ||
                    !batch.set_token_id  (idx, seqs[i].id) ||
                    !batch.set_token_embd(idx, { seqs[i].h, 1, n_embd }) ||
                    !batch.set_token_pos (idx, &pos) ||
                    !batch.set_output    (idx, true)) {
                    return false;
                }
            }

            if (!node.balloc) {
                node.balloc.reset(new llama_batch_allocr(model.hparams.n_pos_per_embd()));
            }

            if (!node.balloc->init(batch, model.vocab, false)) {
                return false;
            }

            node.mctx = access.memory()->init_batch(*node.balloc, access.cparams().n_ubatch, false);
            if (!node.mctx || node.mctx->get_status() != LLAMA_MEMORY_STATUS_SUCCESS) {
                return false;
            }

            // the rows must be the sequences, in this order
            const auto & ubatch = node.mctx->get_ubatch();
            if (ubatch.n_tokens != parts[p].size()) {
                return false;
            }
            for (uint32_t r = 0; r < ubatch.n_tokens; ++r) {
                if (ubatch.seq_id[r][0] != parts[p][r]) {
                    return false;
                }
            }

            if (iswa) {
                auto & first = chain.nodes[p];

                const auto & swa = *iswa->get_swa();

                if (k == 0 ? !first.seen.look (swa, ubatch, access.cparams().kv_unified ? 1 : ubatch.n_tokens)
                           :  first.seen.takes(swa, ubatch)) {
                    return false;
                }
            }

            if (!node.mctx->apply()) {
                return false;
            }
        }
    }

    return true;
}
