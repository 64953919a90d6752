#pragma once

#include "llama.h"

#include <cstdint>

// Writes one line for each drafted step to a file, so that two ways of drafting can be compared bit
// for bit. Tokens that p_min cuts off are written as well: the line comes before the cut.
//
//   <seq> <cycle> <step> <pos> <id> <n> <id>:<logit bits> ... <id>:<logit bits>
//
// `cycle` counts the drafts of the sequence, `pos` is the position of the token that the step was
// given, `id` is the drafted token, and the n candidates are in the order of the sampler. The logits
// are the eight hex digits of their float32.
//
// env: OPENCOTI_SPEC_TRACE (the file; written anew by each process)
void common_spec_trace_step(llama_seq_id seq_id, int32_t step, llama_pos pos, const llama_token_data_array & cur_p);
