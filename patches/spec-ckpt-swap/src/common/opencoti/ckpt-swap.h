#pragma once

#include "llama.h"

// Says in the log, once, whether cells of recurrent state take turns where that is asked for; if not, why.
// env: OPENCOTI_SPEC_CKPT_SWAP
void common_ckpt_swap_say(llama_context * ctx);
