#pragma once

struct llm_graph_params;
class llm_graph_result;

// Cuts the graph of a NextN context that has no outputs down to what its writes to the memory need.
// Called when the graph is complete; leaves it as it is where that is not known to be safe.
// env: OPENCOTI_NEXTN_KV_ONLY
void llama_nextn_kv_only(const llm_graph_params & params, llm_graph_result & res);
