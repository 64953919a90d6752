#include "hy-v3-chain-row.h"

#include "../../src/opencoti/llama-hy-v3-chain-row.h"

#include "log.h"

void common_hy_v3_chain_row_say(const llama_context * ctx_dft) {
    if (llama_hy_v3_chain_row_is_on(llama_get_model(ctx_dft))) {
        LOG_INF("%s: NextN heads of hy_v3 hand on the hidden row of the token that was drafted last\n", __func__);
    }
}
