#include "llama-qwen4exp-nextn.h"

#include "llama-impl.h"
#include "llama-kv-cache.h"

#include "models/models.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

bool llama_qwen4exp_nextn_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_QWEN4EXP_NEXTN = getenv("OPENCOTI_QWEN4EXP_NEXTN");
        return OPENCOTI_QWEN4EXP_NEXTN && OPENCOTI_QWEN4EXP_NEXTN[0] && strcmp(OPENCOTI_QWEN4EXP_NEXTN, "0") != 0;
    }();

    return enabled;
}

//
// loading
//

static bool qwen4exp_nextn_has(const llama_model_loader & ml, uint32_t il, const char * part) {
    return ml.get_weight(("blk." + std::to_string(il) + "." + part + ".weight").c_str()) != nullptr;
}

// any of them: a file that lost one is to be told so, by the name of the tensor
static bool qwen4exp_nextn_has_block(const llama_model_loader & ml, uint32_t il) {
    return
        qwen4exp_nextn_has(ml, il, "nextn.eh_proj") ||
        qwen4exp_nextn_has(ml, il, "nextn.enorm")   ||
        qwen4exp_nextn_has(ml, il, "nextn.hnorm");
}

void llama_qwen4exp_nextn_begin(llama_hparams & hparams, const llama_model_loader & ml) {
    if (!llama_qwen4exp_nextn_enabled() || hparams.n_layer_nextn == 0) {
        return;
    }

    if (hparams.n_layer_nextn > 1) {
        throw std::runtime_error(format("qwen4exp: nextn_predict_layers is %u, but only one NextN block is supported", hparams.n_layer_nextn));
    }
    if (hparams.n_layer_all < 2) {
        throw std::runtime_error(format("qwen4exp: block_count is %u, which leaves no trunk before the NextN block", hparams.n_layer_all));
    }

    const uint32_t il = hparams.n_layer_all - 1;

    if (!qwen4exp_nextn_has_block(ml, il) && qwen4exp_nextn_has(ml, il, "hc_attn_norm")) {
        LLAMA_LOG_WARN("%s: there is no NextN block: block %u is one of the trunk\n", __func__, il);
        hparams.n_layer_nextn = 0;
    }
}

void llama_qwen4exp_nextn_end(llama_hparams & hparams, const llama_model_loader & ml) {
    if (!llama_qwen4exp_nextn_enabled() || hparams.n_layer_nextn == 0) {
        return;
    }

    const uint32_t il = hparams.n_layer();

    if (!qwen4exp_nextn_has_block(ml, il)) {
        LLAMA_LOG_WARN("%s: there is no NextN block: block %u is not in the file\n", __func__, il);
        hparams.n_layer_all   = il;
        hparams.n_layer_nextn = 0;
        return;
    }

    // a list of the recurrent layers may say what it likes of the block
    hparams.is_recr_impl[il] = false;
}

void llama_qwen4exp_nextn_block(llama_model_qwen4exp & model, const llama_model_loader & ml) {
    const auto & hparams = model.hparams;

    if (!llama_qwen4exp_nextn_enabled() || hparams.n_layer_nextn == 0) {
        return;
    }

    const int il    = hparams.n_layer();
    const int flags = ml.load_mtp ? 0 : model.TENSOR_SKIP;

    auto & layer = model.layers[il];

    const int64_t n_embd   = hparams.n_embd;
    const int64_t n_vocab  = model.vocab.n_tokens();
    const int64_t n_expert = hparams.n_expert;
    const int64_t n_head   = hparams.n_head(il);
    const int64_t n_head_k = hparams.n_embd_head_k(il);
    const int64_t n_idx    = hparams.indexer_head_size;
    const int64_t hc       = hparams.dsv4_hc_mult;
    const int64_t hc_dim   = hc*n_embd;
    const int64_t hc_lr    = hparams.hc_low_rank;

    const int64_t n_ff_exp   = hparams.n_ff_exp() ? hparams.n_ff_exp() : hparams.n_ff(il)/hparams.n_expert_used();
    const int64_t n_ff_shexp = hparams.n_ff_shexp ? hparams.n_ff_shexp : hparams.n_ff(il);

    const auto load = [&](llm_tensor tensor, const std::initializer_list<int64_t> & ne, int more = 0) {
        return model.create_tensor(model.tn(tensor, "weight", il), ne, flags | more);
    };

    // embedding and hidden row come together, stream by stream; the norm of the hidden row has a weight for each stream
    layer.nextn.eh_proj          = load(LLM_TENSOR_NEXTN_EH_PROJ,          { 2*n_embd, n_embd });
    layer.nextn.enorm            = load(LLM_TENSOR_NEXTN_ENORM,            { n_embd });
    layer.nextn.hnorm            = load(LLM_TENSOR_NEXTN_HNORM,            { n_embd, hc }, model.TENSOR_ALLOW_RESHAPE);
    layer.nextn.embed_tokens     = load(LLM_TENSOR_NEXTN_EMBED_TOKENS,     { n_embd, n_vocab }, model.TENSOR_NOT_REQUIRED);
    layer.nextn.shared_head_head = load(LLM_TENSOR_NEXTN_SHARED_HEAD_HEAD, { n_embd, n_vocab }, model.TENSOR_NOT_REQUIRED);

    layer.hc_attn_norm   = load(LLM_TENSOR_HC_ATTN_NORM,   { n_embd, hc }, model.TENSOR_ALLOW_RESHAPE);
    layer.hc_attn_down   = load(LLM_TENSOR_HC_ATTN_DOWN,   { hc_dim, hc_lr });
    layer.hc_attn_up     = load(LLM_TENSOR_HC_ATTN_UP,     { hc_lr, hc_dim });
    layer.hc_attn_inject = load(LLM_TENSOR_HC_ATTN_INJECT, { hc_dim, hc });
    layer.hc_ffn_norm    = load(LLM_TENSOR_HC_FFN_NORM,    { n_embd, hc }, model.TENSOR_ALLOW_RESHAPE);
    layer.hc_ffn_down    = load(LLM_TENSOR_HC_FFN_DOWN,    { hc_dim, hc_lr });
    layer.hc_ffn_up      = load(LLM_TENSOR_HC_FFN_UP,      { hc_lr, hc_dim });
    layer.hc_ffn_inject  = load(LLM_TENSOR_HC_FFN_INJECT,  { hc_dim, hc });

    // full attention, whatever the interval says of its place
    model.create_tensor_qkv(layer, il, n_embd, 2*n_head_k*n_head, hparams.n_embd_k_gqa(il), hparams.n_embd_v_gqa(il), flags);
    layer.wo          = load(LLM_TENSOR_ATTN_OUT,    { n_head_k*n_head, n_embd });
    layer.attn_q_norm = load(LLM_TENSOR_ATTN_Q_NORM, { n_head_k });
    layer.attn_k_norm = load(LLM_TENSOR_ATTN_K_NORM, { n_head_k });

    // in the files; drafts look at all cells
    layer.index_q_proj = load(LLM_TENSOR_INDEXER_Q_PROJ, { n_embd, n_idx*hparams.indexer_n_head });
    layer.index_k_proj = load(LLM_TENSOR_INDEXER_K_PROJ, { n_embd, n_idx });
    layer.index_q_norm = load(LLM_TENSOR_INDEXER_Q_NORM, { n_idx });
    layer.index_k_norm = load(LLM_TENSOR_INDEXER_K_NORM, { n_idx });

    layer.ffn_gate_inp  = load(LLM_TENSOR_FFN_GATE_INP,  { n_embd, n_expert });
    layer.ffn_down_exps = load(LLM_TENSOR_FFN_DOWN_EXPS, { n_ff_exp, n_embd, n_expert });
    model.create_tensor_gate_up_exps(layer, il, n_embd, n_ff_exp, n_expert, flags);

    layer.ffn_gate_inp_shexp = load(LLM_TENSOR_FFN_GATE_INP_SHEXP, { n_embd });
    layer.ffn_gate_shexp     = load(LLM_TENSOR_FFN_GATE_SHEXP,     { n_embd, n_ff_shexp });
    layer.ffn_up_shexp       = load(LLM_TENSOR_FFN_UP_SHEXP,       { n_embd, n_ff_shexp });
    layer.ffn_down_shexp     = load(LLM_TENSOR_FFN_DOWN_SHEXP,     { n_ff_shexp, n_embd });
}

bool llama_qwen4exp_nextn_alone(llama_model_qwen4exp & model, const llama_model_loader & ml) {
    const auto & hparams = model.hparams;

    if (!llama_qwen4exp_nextn_enabled() || hparams.n_layer_nextn == 0) {
        return false;
    }

    // a trunk that lacks a block is a damaged trunk
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        if (qwen4exp_nextn_has(ml, il, "hc_attn_norm")) {
            return false;
        }
    }

    if (!ml.load_mtp) {
        throw std::runtime_error("qwen4exp: the file holds a NextN block without the trunk: it is a draft model for draft-mtp, not a model by itself");
    }

    const int64_t n_embd  = hparams.n_embd;
    const int64_t n_vocab = model.vocab.n_tokens();
    const int64_t hc      = hparams.dsv4_hc_mult;
    const int64_t hc_dim  = hc*n_embd;
    const int64_t hc_lr   = hparams.hc_low_rank;

    const auto load = [&](llm_tensor tensor, const std::initializer_list<int64_t> & ne, int flags = 0) {
        return model.create_tensor(model.tn(tensor, "weight"), ne, flags);
    };

    // the ends of the trunk, which are those of the block too
    model.tok_embd     = load(LLM_TENSOR_TOKEN_EMBD,   { n_embd, n_vocab });
    model.hc_head_norm = load(LLM_TENSOR_HC_HEAD_NORM, { n_embd, hc }, model.TENSOR_ALLOW_RESHAPE);
    model.hc_head_down = load(LLM_TENSOR_HC_HEAD_DOWN, { hc_dim, hc_lr });
    model.hc_head_up   = load(LLM_TENSOR_HC_HEAD_UP,   { hc_lr, hc_dim });
    model.output       = load(LLM_TENSOR_OUTPUT,       { n_embd, n_vocab }, model.TENSOR_NOT_REQUIRED);
    if (!model.output) {
        model.output   = load(LLM_TENSOR_TOKEN_EMBD,   { n_embd, n_vocab }, model.TENSOR_DUPLICATED);
    }

    llama_qwen4exp_nextn_block(model, ml);

    return true;
}

//
// contexts
//

llama_memory_i * llama_qwen4exp_nextn_memory(const llama_model & model, const llama_memory_params & params, const llama_cparams & cparams) {
    const auto & hparams = model.hparams;

    if (!llama_qwen4exp_nextn_enabled() || model.arch != LLM_ARCH_QWEN4EXP ||
            params.ctx_type != LLAMA_CONTEXT_TYPE_MTP || hparams.n_layer_nextn == 0) {
        return nullptr;
    }

    // not the hybrid one: that has no buffer for its recurrent half if no layer is recurrent
    const uint32_t n_trunk = hparams.n_layer();

    return new llama_kv_cache(
            model,
            hparams,
            params.type_k,
            params.type_v,
            !cparams.flash_attn,
            cparams.offload_kqv,
            cparams.kv_unified,
            cparams.n_ctx_seq,
            cparams.n_seq_max,
            /* n_pad     */ 1,
            hparams.n_swa,
            hparams.swa_type,
            /* mem_other */ nullptr,
            [n_trunk](uint32_t il) { return il >= n_trunk; },
            /* reuse     */ nullptr,
            /* share     */ nullptr);
}

bool llama_qwen4exp_nextn_wanted(const llama_model & model, llm_graph_type gtype) {
    const auto & hparams = model.hparams;

    if (!llama_qwen4exp_nextn_enabled() || hparams.n_layer_nextn == 0) {
        return false;
    }

    if (gtype == LLM_GRAPH_TYPE_DECODER_MTP) {
        if (!model.layers[hparams.n_layer()].nextn.eh_proj) {
            throw std::runtime_error("qwen4exp: the NextN block was left in the file, since the model was loaded without load_mtp");
        }
        return true;
    }

    if (!model.layers[0].hc_attn_norm) {
        throw std::runtime_error("qwen4exp: the file holds a NextN block without the trunk: it is a draft model for draft-mtp, not a model by itself");
    }

    return false;
}
