#pragma once

// Raises the logit of token 7 in the 20th row of logits that this process hands out.
void llama_opencoti_planted_logit(float * row);
