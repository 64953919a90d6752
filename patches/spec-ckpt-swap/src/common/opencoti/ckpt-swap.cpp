#include "ckpt-swap.h"

#include "../../src/opencoti/llama-ckpt-swap.h"

#include "log.h"

void common_ckpt_swap_say(llama_context * ctx) {
    static bool said = false;

    if (said || !llama_ckpt_swap_asked()) {
        return;
    }

    said = true;

    if (const char * refusal = llama_ckpt_swap_refusal(ctx)) {
        LOG_WRN("%s: cells of recurrent state stay where they are: %s\n", __func__, refusal);
    } else {
        LOG_INF("%s: cells of recurrent state take turns: a speculative checkpoint copies nothing\n", __func__);
    }
}
