#pragma once

struct ggml_tensor;
struct llama_cparams;
struct llm_graph_params;

// What is done to the graph of a NextN context that drafts over a part of the vocabulary. Nothing is done to any
// other graph.

// Cuts the head down. Called when the graph is complete but for sampling. From here on logits are those of slots.
void llama_draft_vocab_narrow(const llm_graph_params & params);

// ids of the slots, for samplers, nullptr where logits are those of all tokens
ggml_tensor * llama_draft_vocab_candidates(const llama_cparams & cparams);

// Makes logits of all tokens again where the host reads them. Called when samplers have seen those of slots.
void llama_draft_vocab_widen(const llm_graph_params & params);

// Makes ids of slots: of the best one of each row [n_rows], and of the best ones [n_top, n_rows]. Does nothing where the
// graph that was built last has logits of all tokens.
void llama_draft_vocab_map(const llm_graph_params & params, ggml_tensor *& tok, ggml_tensor *& top);

// while it lives, nobody on the host reads logits, and they are not made wide again
struct llama_draft_vocab_scope {
    explicit llama_draft_vocab_scope(const llm_graph_params & params);
    ~llama_draft_vocab_scope();

    llama_draft_vocab_scope(const llama_draft_vocab_scope &) = delete;
    llama_draft_vocab_scope & operator=(const llama_draft_vocab_scope &) = delete;

private:
    const llm_graph_params & params;
};
