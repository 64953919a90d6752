#pragma once

#include "llama.h"

// Says in the log that drafts of this context are chained by the mended rows, where they are.
// env: OPENCOTI_HY_V3_CHAIN_ROW
void common_hy_v3_chain_row_say(const llama_context * ctx_dft);
