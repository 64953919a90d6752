#include "llama-draft-vocab-impl.h"

#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

void llama_draft_vocab_deleter::operator()(llama_draft_vocab * vocab) const {
    delete vocab;
}

// a buffer whose bytes are not those of the tensor, and cannot be read back
static bool llama_draft_vocab_is_repacked(const ggml_tensor * head) {
    const auto buft = ggml_backend_buffer_get_type(head->buffer);

    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        auto * dev = ggml_backend_dev_get(i);

        const auto get_extra = (ggml_backend_dev_get_extra_bufts_t)
            ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_dev_get_extra_bufts");

        for (auto * extra = get_extra ? get_extra(dev) : nullptr; extra && *extra; ++extra) {
            if (*extra == buft) {
                return true;
            }
        }
    }

    return false;
}

// what the NextN blocks of a model take for their heads, each one once
static std::vector<ggml_tensor *> llama_draft_vocab_heads(const llama_model & model) {
    std::vector<ggml_tensor *> res;

    for (uint32_t k = 0; k < model.hparams.n_layer_nextn; ++k) {
        const auto & nextn = model.layers[model.hparams.n_layer() + k].nextn;

        auto * head = nextn.shared_head_head ? nextn.shared_head_head : model.output;

        if (std::find(res.begin(), res.end(), head) == res.end()) {
            res.push_back(head);
        }
    }

    return res;
}

const char * llama_draft_vocab_refusal(const llama_context * ctx) {
    const auto & model = ctx->get_model();

    if (ctx->get_cparams().ctx_type != LLAMA_CONTEXT_TYPE_MTP || model.hparams.n_layer_nextn == 0 ||
            model.layers.size() < model.hparams.n_layer() + model.hparams.n_layer_nextn) {
        return "the draft context is not one of NextN";
    }
    if (model.split_mode() == LLAMA_SPLIT_MODE_TENSOR || model.split_mode() == LLAMA_SPLIT_MODE_ROW) {
        return "tensors are split over devices";
    }

    for (const auto * head : llama_draft_vocab_heads(model)) {
        if (!head || !head->buffer || ggml_n_dims(head) != 2 || !ggml_is_contiguous(head) || head->ne[1] != (int64_t) model.vocab.n_tokens()) {
            return "a head is not one matrix with a row for each token";
        }
        if (llama_draft_vocab_is_repacked(head)) {
            return "the head is kept in an order of the processor's own, and cannot be read back; --no-repack leaves it as it is in the file";
        }
    }

    return nullptr;
}

// copies the rows of n tokens that follow each other
static void llama_draft_vocab_copy(const llama_draft_vocab_head & head, llama_token id, size_t slot, size_t n, std::vector<uint8_t> & tmp) {
    const size_t n_row = head.full->nb[1];

    tmp.resize(n*n_row);

    ggml_backend_tensor_get(head.full, tmp.data(), id  *n_row, tmp.size());
    ggml_backend_tensor_set(head.rows, tmp.data(), slot*n_row, tmp.size());
}

static bool llama_draft_vocab_alloc(llama_draft_vocab_head & head, size_t n_slots) {
    ggml_init_params params = {
        /*.mem_size   =*/ 2*ggml_tensor_overhead(),
        /*.mem_buffer =*/ nullptr,
        /*.no_alloc   =*/ true,
    };
    head.ctx.reset(ggml_init(params));

    head.rows = ggml_new_tensor_2d(head.ctx.get(), head.full->type, head.full->ne[0], n_slots);
    head.ids  = ggml_new_tensor_1d(head.ctx.get(), GGML_TYPE_I32, n_slots);

    ggml_format_name(head.rows, "%s (draft-vocab)", head.full->name);
    ggml_format_name(head.ids,  "%s (draft-vocab ids)", head.full->name);

    auto * buft = ggml_backend_buffer_get_type(head.full->buffer);

    const size_t size = ggml_backend_alloc_ctx_tensors_from_buft_size(head.ctx.get(), buft);

    // a device says what is free; a host lets everything be promised
    if (auto * dev = ggml_backend_buft_get_device(buft)) {
        size_t free  = 0;
        size_t total = 0;
        ggml_backend_dev_memory(dev, &free, &total);

        if (total > 0 && size > free) {
            LLAMA_LOG_WARN("%s: drafts are over the whole vocabulary: the rows of %zu tokens take %.2f MiB, and %.2f MiB are free on %s; name fewer\n",
                    __func__, n_slots, size/1024.0/1024.0, free/1024.0/1024.0, ggml_backend_dev_name(dev));
            return false;
        }
    }

    head.buf.reset(ggml_backend_alloc_ctx_tensors_from_buft(head.ctx.get(), buft));
    if (!head.buf) {
        LLAMA_LOG_WARN("%s: drafts are over the whole vocabulary: no %.2f MiB for the rows of %zu tokens in %s; name fewer\n",
                __func__, size/1024.0/1024.0, n_slots, ggml_backend_buft_name(buft));
        return false;
    }

    ggml_backend_buffer_set_usage(head.buf.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

    return true;
}

size_t llama_draft_vocab_attach(llama_context * ctx, const llama_token * ids, size_t n_ids) {
    llama_draft_vocab_access access { *ctx };

    llama_draft_vocab_ptr vocab(new llama_draft_vocab());

    vocab->n_slots = n_ids;

    size_t size = 0;

    std::vector<uint8_t> tmp;

    for (auto * full : llama_draft_vocab_heads(ctx->get_model())) {
        llama_draft_vocab_head head;

        head.full = full;

        if (!llama_draft_vocab_alloc(head, n_ids)) {
            return 0;
        }

        // neighbours at once
        const size_t n_max = std::max<size_t>(1, (16u << 20)/full->nb[1]);

        for (size_t i = 0; i < n_ids;) {
            size_t n = 1;
            while (n < n_max && i + n < n_ids && ids[i + n] == ids[i] + (llama_token) n) {
                n++;
            }

            llama_draft_vocab_copy(head, ids[i], i, n, tmp);

            i += n;
        }

        ggml_backend_tensor_set(head.ids, ids, 0, n_ids*sizeof(llama_token));

        size += ggml_backend_buffer_get_size(head.buf.get());

        vocab->heads.push_back(std::move(head));
    }

    access.vocab() = std::move(vocab);

    access.cparams().opencoti_draft_vocab = access.vocab().get();

    // graphs that are there have the whole head
    access.need_reserve() = true;

    return size;
}

void llama_draft_vocab_replace(llama_context * ctx, const int32_t * slots, const llama_token * ids, size_t n) {
    llama_draft_vocab_access access { *ctx };

    // the launch before may still read them
    access.synchronize();

    std::vector<uint8_t> tmp;

    for (const auto & head : access.vocab()->heads) {
        for (size_t i = 0; i < n; ++i) {
            llama_draft_vocab_copy(head, ids[i], slots[i], 1, tmp);
            ggml_backend_tensor_set(head.ids, &ids[i], slots[i]*sizeof(llama_token), sizeof(llama_token));
        }
    }
}

size_t llama_draft_vocab_likely(llama_context * ctx, int32_t i, llama_token * ids, size_t n) {
    ctx->synchronize();

    if (n == 0 || !llama_draft_vocab_access { *ctx }.has_logits()) {
        return 0;
    }

    const float * logits = ctx->get_logits_ith(i);
    if (!logits) {
        return 0;
    }

    using likely = std::pair<float, llama_token>;

    std::vector<likely> best; // a heap, the least one in front

    float least = -INFINITY;

    const llama_token n_vocab = ctx->get_model().vocab.n_tokens();

    for (llama_token id = 0; id < n_vocab; ++id) {
        if (!(logits[id] > least)) {
            continue;
        }

        if (best.size() == n) {
            std::pop_heap(best.begin(), best.end(), std::greater<likely>());
            best.pop_back();
        }
        best.push_back({ logits[id], id });
        std::push_heap(best.begin(), best.end(), std::greater<likely>());

        if (best.size() == n) {
            least = best.front().first;
        }
    }

    std::sort_heap(best.begin(), best.end(), std::greater<likely>());
    std::transform(best.begin(), best.end(), ids, [](const likely & cur) { return cur.second; });

    return best.size();
}
