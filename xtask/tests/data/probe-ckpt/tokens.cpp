// What a token costs with each way to go back, for the measurement of docs/evaluations/checkpoints.md.
// Usage: tokens <model> <slots> <turns> <percent of drafted tokens that are accepted>; ends with "done".

#include "llama.h"
#include "llama-ext.h"
#include "llama-arch.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"
#include "opencoti/llama-ckpt-device.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

static const llama_state_seq_flags PARTIAL = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

static const int N_DRAFT = 3;

// The library's own function has not qwen3next in its list, whose graph is made of the same parts as that of qwen35.
static bool with_rollback = false;

bool llm_arch_supports_rs_rollback(const llm_arch &) {
    return with_rollback;
}

static void check(bool good, const char * what) {
    if (!good) {
        fprintf(stderr, "tokens probe: %s\n", what);
        exit(1);
    }
}

static std::mt19937 rng(1);

static int dice(int n) {
    return std::uniform_int_distribution<int>(0, n - 1)(rng);
}

static std::vector<llama_token> text(int n) {
    std::vector<llama_token> res(n);
    for (auto & token : res) {
        token = 4 + dice(500);
    }
    return res;
}

enum way { HOST, SNAPSHOT, ROLLBACK, N_WAYS };

struct seq {
    llama_pos n_past = 0;
    int n_tokens = 0;
    llama_ckpt_snapshot snap;
    std::vector<uint8_t> host;
};

struct path {
    llama_context * ctx = nullptr;
    std::vector<seq> seqs;
};

// each sequence has a piece of `all`, in one batch; gives the logits of the last row of each
static std::vector<float> decode(path & p, const std::vector<std::vector<llama_token>> & all) {
    int n = 0;
    for (const auto & tokens : all) {
        n += tokens.size();
    }
    llama_batch batch = llama_batch_init(n, 0, 1);
    std::vector<int> last;
    for (size_t s = 0; s < all.size(); ++s) {
        for (size_t i = 0; i < all[s].size(); ++i) {
            const int at = batch.n_tokens++;
            batch.token[at]     = all[s][i];
            batch.pos[at]       = p.seqs[s].n_past + i;
            batch.n_seq_id[at]  = 1;
            batch.seq_id[at][0] = s;
            batch.logits[at]    = true;
        }
        last.push_back(batch.n_tokens - 1);
    }
    check(llama_decode(p.ctx, batch) == 0, "a batch could not be decoded");
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(p.ctx)));
    std::vector<float> res;
    for (const int at : last) {
        const float * logits = llama_get_logits_ith(p.ctx, at);
        res.insert(res.end(), logits, logits + n_vocab);
    }
    llama_batch_free(batch);
    return res;
}

static void forget(path & p, llama_seq_id s, llama_pos from) {
    check(llama_memory_seq_rm(llama_get_memory(p.ctx), s, from, -1), "a tail could not be removed");
}

static path make(llama_model * model, way w, int n_seq) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx           = 4096*n_seq;
    params.n_batch         = 512;
    params.n_ubatch        = 64;
    params.n_seq_max       = n_seq;
    params.n_threads       = 1;
    params.n_threads_batch = 1;
    params.n_rs_seq        = w == ROLLBACK ? N_DRAFT : 0;
    with_rollback = w == ROLLBACK;
    path p;
    p.ctx = llama_init_from_model(model, params);
    check(p.ctx != nullptr, "no context");
    check(llama_n_rs_seq(p.ctx) == params.n_rs_seq, "no rollback");
    p.seqs.resize(n_seq);
    return p;
}

// One round of all sequences, of which each accepts `accepted` of its drafted tokens.
static void round(path & p, way w, const std::vector<int> & accepted, const std::vector<std::vector<llama_token>> & drafts) {
    const int n_seq = p.seqs.size();
    for (int s = 0; s < n_seq && w != ROLLBACK; ++s) {
        auto & q = p.seqs[s];
        if (w == SNAPSHOT) {
            check(llama_ckpt_device_save(p.ctx, s, PARTIAL, q.snap), "nothing was saved");
        } else {
            q.host.resize(llama_state_seq_get_size_ext(p.ctx, s, PARTIAL));
            llama_state_seq_get_data_ext(p.ctx, q.host.data(), q.host.size(), s, PARTIAL);
        }
    }
    decode(p, drafts);
    std::vector<std::vector<llama_token>> replay(n_seq);
    int n_replay = 0;
    for (int s = 0; s < n_seq; ++s) {
        auto & q = p.seqs[s];
        if (accepted[s] == N_DRAFT || w == ROLLBACK) {
            q.n_past   += accepted[s] + 1;
            q.n_tokens += accepted[s] + 1;
            if (accepted[s] < N_DRAFT) {
                forget(p, s, q.n_past);
            }
            continue;
        }
        if (w == SNAPSHOT) {
            check(llama_ckpt_device_load(p.ctx, s, PARTIAL, q.snap), "nothing was restored");
        } else {
            llama_state_seq_set_data_ext(p.ctx, q.host.data(), q.host.size(), s, PARTIAL);
        }
        forget(p, s, q.n_past);
        // the token sampled before, those accepted, and the one sampled in place of the rejected
        replay[s] = drafts[s];
        replay[s].resize(accepted[s] + 1);
        replay[s].push_back(7);
        n_replay++;
    }
    if (n_replay == 0) {
        return;
    }
    decode(p, replay);
    for (int s = 0; s < n_seq; ++s) {
        p.seqs[s].n_past   += replay[s].size();
        p.seqs[s].n_tokens += replay[s].size();
    }
}

int main(int argc, char ** argv) {
    check(argc == 5, "usage: tokens <model> <slots> <turns> <percent>");
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    check(model != nullptr, "no model");
    const int n_seq = atoi(argv[2]), n_turns = atoi(argv[3]), percent = atoi(argv[4]);

    // what was rolled back is what was never decoded
    {
        const auto prompt = text(30), draft = text(4), other = text(3);
        path a = make(model, ROLLBACK, 1), b = make(model, HOST, 1);
        for (auto * p : { &a, &b }) {
            decode(*p, { prompt });
            p->seqs[0].n_past = 30;
        }
        decode(a, { draft });
        forget(a, 0, 32);
        decode(b, { { draft[0], draft[1] } });
        a.seqs[0].n_past = b.seqs[0].n_past = 32;
        const auto x = decode(a, { other }), y = decode(b, { other });
        check(x.size() == y.size() && memcmp(x.data(), y.data(), x.size()*sizeof(float)) == 0, "logits differ after a rollback");
        llama_free(a.ctx);
        llama_free(b.ctx);
    }

    std::vector<path> paths;
    for (int w = 0; w < N_WAYS; ++w) {
        paths.push_back(make(model, way(w), n_seq));
        decode(paths.back(), std::vector<std::vector<llama_token>>(n_seq, text(20)));
        for (auto & q : paths.back().seqs) {
            q.n_past = 20;
        }
    }
    const auto * hybrid = dynamic_cast<llama_memory_hybrid *>(llama_get_memory(paths[HOST].ctx));
    check(hybrid != nullptr, "the memory is no hybrid");
    for (const ggml_tensor * s : hybrid->get_mem_recr()->s_l) {
        if (s) {
            printf("memory %s\n", ggml_backend_buft_name(ggml_backend_buffer_get_type(s->buffer)));
            break;
        }
    }
    printf("state %zu\n", llama_state_seq_get_size_ext(paths[HOST].ctx, 0, PARTIAL));
    for (int turn = 0; turn < n_turns + 3; ++turn) {
        double t[N_WAYS];
        // the same drafts for all, of which the same are accepted
        std::vector<std::vector<int>> accepted;
        std::vector<std::vector<std::vector<llama_token>>> drafts;
        for (int i = 0; i < 6; ++i) {
            std::vector<int> a(n_seq, 0);
            std::vector<std::vector<llama_token>> d;
            for (auto & n : a) {
                while (n < N_DRAFT && dice(100) < percent) {
                    n++;
                }
                d.push_back(text(N_DRAFT + 1));
            }
            accepted.push_back(a);
            drafts.push_back(d);
        }
        for (int i = 0; i < N_WAYS; ++i) {
            const way w = way((i + turn) % N_WAYS);
            path & p = paths[w];
            for (auto & q : p.seqs) {
                q.n_tokens = 0;
            }
            llama_synchronize(p.ctx);
            const auto begin = std::chrono::steady_clock::now();
            for (size_t r = 0; r < drafts.size(); ++r) {
                round(p, w, accepted[r], drafts[r]);
            }
            llama_synchronize(p.ctx);
            t[w] = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
            int n_tokens = 0;
            for (const auto & q : p.seqs) {
                n_tokens += q.n_tokens;
            }
            t[w] /= n_tokens;
        }
        if (turn >= 3) {
            printf("turn %.1f %.1f %.1f\n", t[HOST], t[SNAPSHOT], t[ROLLBACK]);
        }
        for (auto & p : paths) {
            for (int s = 0; s < n_seq; ++s) {
                check(p.seqs[s].n_past < 4000, "too many turns for the context");
            }
        }
    }
    // what the second column was: where a switch does nothing, it is a copy
    const auto & kept = paths[SNAPSHOT].seqs[0].snap;
    check(kept.id != 0, "there is no snapshot");
    printf("device %zu\npath %s\n", llama_ckpt_device_size(paths[SNAPSHOT].ctx), kept.meta.empty() ? "swap" : "copy");
    for (auto & p : paths) {
        for (int s = 0; s < n_seq; ++s) {
            llama_ckpt_device_free(p.ctx, s, p.seqs[s].snap);
        }
        llama_free(p.ctx);
    }
    llama_model_free(model);
    puts("done");
    // a driver may end the process in its own way
    fflush(stdout);
    return 0;
}
