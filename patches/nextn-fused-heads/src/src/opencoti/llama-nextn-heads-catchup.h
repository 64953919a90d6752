#pragma once

struct llama_model;
struct llm_graph_params;

// adds the graphs of the other heads to that of a catch-up
void llama_nextn_heads_add(const llama_model & model, const llm_graph_params & params);
