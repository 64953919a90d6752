#pragma once

// Changes the logit of token 7 in the 20th row of logits that this process hands out: raises it so
// that the token is the most likely one, or, with OPENCOTI_PLANTED_LOGIT=ulp, only by its last bit.
void llama_opencoti_planted_logit(float * row);
