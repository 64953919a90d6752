// Snapshots of a recurrent state, held against states that are read to the host and against a context that goes through the
// host. Usage: ckpt <model> <what>; ends with "done", or says what was wrong and fails.

#include "llama.h"
#include "llama-ext.h"
#include "llama-context.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"
#include "opencoti/llama-ckpt-device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

static const llama_state_seq_flags PARTIAL = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

static void fail(const std::string & what) {
    fprintf(stderr, "ckpt probe: %s\n", what.c_str());
    exit(1);
}

static void check(bool good, const std::string & what) {
    if (!good) {
        fail(what);
    }
}

using bytes = std::vector<uint8_t>;

static bytes state(llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags = PARTIAL) {
    bytes res(llama_state_seq_get_size_ext(ctx, seq_id, flags));
    check(llama_state_seq_get_data_ext(ctx, res.data(), res.size(), seq_id, flags) == res.size(), "a state could not be read");
    return res;
}

static void restore(llama_context * ctx, llama_seq_id seq_id, const bytes & data, llama_state_seq_flags flags = PARTIAL) {
    check(llama_state_seq_set_data_ext(ctx, data.data(), data.size(), seq_id, flags) == data.size(), "a state could not be written");
}

struct rows {
    llama_seq_id seq_id;
    llama_pos pos;
    std::vector<llama_token> tokens;
};

// decodes them in one batch and gives the logits of each last token
static std::vector<float> decode(llama_context * ctx, const std::vector<rows> & all) {
    size_t n = 0;
    for (const auto & r : all) {
        n += r.tokens.size();
    }
    llama_batch batch = llama_batch_init(n, 0, 1);
    std::vector<int> last;
    for (const auto & r : all) {
        for (size_t i = 0; i < r.tokens.size(); ++i) {
            const int at = batch.n_tokens++;
            batch.token[at]     = r.tokens[i];
            batch.pos[at]       = r.pos + i;
            batch.n_seq_id[at]  = 1;
            batch.seq_id[at][0] = r.seq_id;
            batch.logits[at]    = i + 1 == r.tokens.size();
        }
        last.push_back(batch.n_tokens - 1);
    }
    check(llama_decode(ctx, batch) == 0, "a batch could not be decoded");
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    std::vector<float> res;
    for (const int at : last) {
        const float * logits = llama_get_logits_ith(ctx, at);
        res.insert(res.end(), logits, logits + n_vocab);
    }
    llama_batch_free(batch);
    return res;
}

static bool same(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size()*sizeof(float)) == 0;
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

static llama_context * context(llama_model * model, int n_seq, int n_ubatch = 64) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx           = 4096*n_seq;
    params.n_batch         = 512;
    params.n_ubatch        = n_ubatch;
    params.n_seq_max       = n_seq;
    params.n_threads       = 1;
    params.n_threads_batch = 1;
    llama_context * ctx = llama_init_from_model(model, params);
    check(ctx != nullptr, "no context");
    return ctx;
}

static llama_memory_recurrent & recurrent(llama_context * ctx) {
    auto * hybrid = dynamic_cast<llama_memory_hybrid *>(llama_get_memory(ctx));
    check(hybrid != nullptr, "the memory is no hybrid");
    return *hybrid->get_mem_recr();
}

// where the states lie; those of several layers may lie on several devices
static void where(llama_context * ctx) {
    std::vector<std::string> said;
    for (const ggml_tensor * s : recurrent(ctx).s_l) {
        const std::string name = s ? ggml_backend_buft_name(ggml_backend_buffer_get_type(s->buffer)) : "";
        if (s && std::find(said.begin(), said.end(), name) == said.end()) {
            said.push_back(name);
            printf("memory %s\n", name.c_str());
        }
    }
}

static void forget(llama_context * ctx, llama_seq_id seq_id, llama_pos from) {
    check(llama_memory_seq_rm(llama_get_memory(ctx), seq_id, from, -1), "a tail could not be removed");
}

// what was saved comes back to the last bit, as often as it is asked for
static void equal(llama_model * model) {
    llama_context * ctx = context(model, 2);
    llama_context * ref = context(model, 2);
    const auto prompt = text(40), draft = text(4), other = text(3);
    where(ctx);
    for (auto * c : { ctx, ref }) {
        decode(c, { { 0, 0, prompt } });
    }
    const bytes before = state(ctx, 0);
    check(before == state(ref, 0), "two contexts differ before anything was saved");
    llama_ckpt_snapshot snap;
    check(llama_ckpt_device_save(ctx, 0, PARTIAL, snap), "nothing was saved");
    check(state(ctx, 0) == before, "a save changed the state");
    for (int i = 0; i < 3; ++i) {
        decode(ctx, { { 0, 40, draft } });
        const bytes after = state(ctx, 0);
        check(after.size() == before.size() && after != before, "a draft left the state as it was: nothing would be shown");
        check(llama_ckpt_device_load(ctx, 0, PARTIAL, snap), "nothing was restored");
        check(state(ctx, 0) == before, "what was restored is not what was saved");
        forget(ctx, 0, 40);
    }
    check(same(decode(ctx, { { 0, 40, other } }), decode(ref, { { 0, 40, other } })), "logits differ after a restore");
    check(state(ctx, 0) == state(ref, 0), "states differ after a restore and a decode");
    llama_ckpt_device_free(ctx, 0, snap);
    check(!llama_ckpt_device_load(ctx, 0, PARTIAL, snap), "an empty snapshot was restored");
    llama_free(ctx);
    llama_free(ref);
}

struct seq {
    llama_pos n_past = 0;
    llama_token last = 4;
    llama_ckpt_snapshot snap;
    bytes host;
};

// Rounds of all sequences in two contexts, one of which goes through the host. Every rejection is forced.
static void rounds(llama_model * model, int n_seq, int n_rounds) {
    llama_context * ctx = context(model, n_seq);
    llama_context * ref = context(model, n_seq);
    std::vector<seq> seqs(n_seq);
    int n_saves = 0, n_loads = 0, n_cancelled = 0, n_slots = 0;
    std::vector<int> rejected_at(6, 0);
    const auto both = [&](const std::vector<rows> & all) {
        check(same(decode(ctx, all), decode(ref, all)), "logits differ");
    };
    const auto restart = [&](llama_seq_id s) {
        llama_ckpt_device_free(ctx, s, seqs[s].snap);
        for (auto * c : { ctx, ref }) {
            forget(c, s, -1);
        }
        // Upstream clears a cell by a multiplication with 0, which leaves the signs of what another sequence has left there. They
        // are gone when the convolution has seen nothing but the prompt.
        const auto prompt = text(4 + dice(90));
        both({ { s, 0, prompt } });
        seqs[s].n_past = prompt.size();
    };
    for (int s = 0; s < n_seq; ++s) {
        restart(s);
    }
    for (int round = 0; round < n_rounds; ++round) {
        // which sequences draft in this round, how long, and how much of it is accepted
        std::vector<rows> verify, replay;
        std::vector<int> drafting;
        for (int s = 0; s < n_seq; ++s) {
            auto & q = seqs[s];
            if (q.n_past > 3000) {
                restart(s);
            }
            if (n_seq > 1 && dice(4) == 0) {
                continue;
            }
            const int n_draft = 1 + round % 5;
            auto tokens = text(n_draft + 1);
            tokens[0] = q.last;
            q.host = state(ref, s);
            check(llama_ckpt_device_save(ctx, s, PARTIAL, q.snap), "nothing was saved");
            n_saves++;
            drafting.push_back(s);
            verify.push_back({ s, q.n_past, tokens });
        }
        if (verify.empty()) {
            continue;
        }
        both(verify);
        for (size_t i = 0; i < drafting.size(); ++i) {
            const int s = drafting[i];
            auto & q = seqs[s];
            const int n_draft = verify[i].tokens.size() - 1;
            const int fate = dice(40);
            if (fate == 0) {
                // cancelled in the middle of a round: the slot is used again
                n_cancelled++;
                restart(s);
                continue;
            }
            const int n_accepted = dice(n_draft + 1);
            if (n_accepted == n_draft) {
                q.n_past += n_draft + 1;
            } else {
                rejected_at[n_accepted]++;
                n_loads++;
                check(llama_ckpt_device_load(ctx, s, PARTIAL, q.snap), "nothing was restored");
                restore(ref, s, q.host);
                check(state(ctx, s) == q.host, "what was restored is not what was saved");
                for (auto * c : { ctx, ref }) {
                    forget(c, s, q.n_past);
                }
                auto tokens = verify[i].tokens;
                tokens.resize(n_accepted + 1);
                tokens.push_back(4 + dice(500));
                replay.push_back({ s, q.n_past, tokens });
                q.n_past += tokens.size();
            }
            q.last = 4 + dice(500);
        }
        if (!replay.empty()) {
            both(replay);
        }
        const int s = dice(n_seq);
        if (dice(20) == 0) {
            // the slot is saved, and another one loads it
            n_slots++;
            const int t = dice(n_seq);
            const bytes whole = state(ctx, s, 0);
            check(whole == state(ref, s, 0), "whole states differ");
            llama_ckpt_device_free(ctx, s, seqs[s].snap);
            llama_ckpt_device_free(ctx, t, seqs[t].snap);
            for (auto * c : { ctx, ref }) {
                restore(c, t, whole, 0);
            }
            seqs[t].n_past = seqs[s].n_past;
            seqs[t].last   = seqs[s].last;
        } else if (n_seq > 1 && dice(20) == 0) {
            // a completion of the same prompt in another slot: the state is shared until one of them goes on
            const int t = (s + 1) % n_seq;
            llama_ckpt_device_free(ctx, t, seqs[t].snap);
            for (auto * c : { ctx, ref }) {
                forget(c, t, -1);
                llama_memory_seq_cp(llama_get_memory(c), s, t, -1, -1);
            }
            seqs[t].n_past = seqs[s].n_past;
            seqs[t].last   = seqs[s].last;
        }
        check(state(ctx, s) == state(ref, s), "states differ after a round");
    }
    for (int s = 0; s < n_seq; ++s) {
        llama_ckpt_device_free(ctx, s, seqs[s].snap);
        check(state(ctx, s, 0) == state(ref, s, 0), "whole states differ at the end");
    }
    check(llama_ckpt_device_size(ctx) == 0, "memory is held at the end");
    // of a large state there are few rounds
    for (int at = 0; at < 5 && n_rounds >= 100; ++at) {
        check(rejected_at[at] > 0, "no draft was rejected at some position");
    }
    check(n_loads > n_rounds/4 && (n_rounds < 100 || (n_cancelled > 0 && n_slots > 0)), "too little happened");
    printf("rounds of %d: %d saves, %d restores, %d cancelled, %d slots saved\n", n_seq, n_saves, n_loads, n_cancelled, n_slots);
    llama_free(ctx);
    llama_free(ref);
}

static size_t reported(llama_context * ctx) {
    size_t res = 0;
    for (const auto & [_, data] : llama_get_memory_breakdown(ctx)) {
        res += data.context;
    }
    return res;
}

// says how the snapshots are kept that live now: where a switch does nothing, times would be those of another way
static void path(llama_context * ctx, const std::vector<llama_ckpt_snapshot> & snaps) {
    const size_t held = llama_ckpt_device_size(ctx);
    // a copy leaves positions and shapes with its owner, cells that take turns leave nothing
    const bool swaps = snaps[0].meta.empty();
    check(swaps == (held == 0), "a snapshot is neither a copy nor a cell");
    check(!swaps || recurrent(ctx).size == 2*snaps.size(), "there is no second cell");
    printf("device %zu\npath %s\n", held, swaps ? "swap" : "copy");
}

// held, reported and given back; `copies`: whether a snapshot takes memory of its own
static void memory(llama_model * model, bool copies) {
    llama_context * ctx = context(model, 2);
    decode(ctx, { { 0, 0, text(20) }, { 1, 0, text(20) } });
    const size_t before = reported(ctx);
    std::vector<llama_ckpt_snapshot> snaps(2);
    for (int s = 0; s < 2; ++s) {
        check(llama_ckpt_device_save(ctx, s, PARTIAL, snaps[s]), "nothing was saved");
    }
    const size_t held = llama_ckpt_device_size(ctx);
    const size_t needed = copies ? 2*(state(ctx, 0).size() - 1024) : 0;
    check(held >= needed && (held > 0) == copies, "it holds " + std::to_string(held));
    check(reported(ctx) == before + held, "the breakdown does not report what is held");
    for (int i = 0; i < 20; ++i) {
        check(llama_ckpt_device_save(ctx, 0, PARTIAL, snaps[0]), "nothing was saved");
    }
    check(llama_ckpt_device_size(ctx) == held, "it grows");
    llama_ckpt_device_free(ctx, 0, snaps[0]);
    check(llama_ckpt_device_size(ctx) == held/2, "not half was given back");
    llama_ckpt_device_free(ctx, 1, snaps[1]);
    check(llama_ckpt_device_size(ctx) == 0 && reported(ctx) == before, "not all was given back");
    llama_free(ctx);
}

// whether `action` ends the process by an abort
template <typename action_t> static bool aborts(action_t action) {
    fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
        fclose(stderr);
        action();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

// one live snapshot for a sequence; what the library would abort on is refused
static void limits(llama_model * model) {
    llama_context * ctx = context(model, 4);
    decode(ctx, { { 0, 0, text(20) } });
    llama_ckpt_snapshot snap, other;
    check(!llama_ckpt_device_save(ctx, 1, PARTIAL, other), "an empty sequence was saved");
    check(!llama_ckpt_device_save(ctx, 0, 0, other), "a whole state was saved");
    check(llama_ckpt_device_save(ctx, 0, PARTIAL, snap), "nothing was saved");
    check(!aborts([&] { llama_ckpt_device_save(ctx, 0, PARTIAL, snap); }), "a snapshot cannot be replaced by its owner");
    check(aborts([&] { llama_ckpt_device_save(ctx, 0, PARTIAL, other); }), "two snapshots of one sequence can live");
    llama_ckpt_snapshot copy = snap;
    check(!aborts([&] { llama_ckpt_device_load(ctx, 0, PARTIAL, copy); }), "a snapshot cannot be restored");
    check(aborts([&] {
        llama_ckpt_device_free(ctx, 0, snap);
        llama_ckpt_device_load(ctx, 0, PARTIAL, copy);
    }), "a snapshot that is gone was restored");
    check(aborts([&] {
        llama_ckpt_device_save(ctx, 0, PARTIAL, snap);
        llama_ckpt_device_load(ctx, 0, PARTIAL, copy);
    }), "a snapshot that was replaced was restored");
    // another's free is no harm
    llama_ckpt_device_free(ctx, 0, other);
    check(llama_ckpt_device_load(ctx, 0, PARTIAL, snap), "another's free took the snapshot away");
    llama_ckpt_device_free(ctx, 0, snap);
    // cells that do not lie side by side: the library aborts here
    auto & recr = recurrent(ctx);
    const int32_t tail = recr.cells[0].tail;
    const int32_t far  = (tail + 2) % recr.size;
    recr.cells[far].seq_id.insert(0);
    recr.cells[far].pos = recr.cells[tail].pos;
    recr.cells[far].src = far;
    check(aborts([&] {
        bytes data(1 << 20);
        llama_state_seq_get_data_ext(ctx, data.data(), data.size(), 0, PARTIAL | LLAMA_STATE_SEQ_FLAGS_ON_DEVICE);
    }), "the library takes several ranges now: the refusal can go");
    check(!llama_ckpt_device_save(ctx, 0, PARTIAL, snap), "several ranges were saved");
    llama_free(ctx);
}

static void no_memory(llama_model * model) {
    llama_context * ctx = context(model, 1);
    decode(ctx, { { 0, 0, text(20) } });
    const bytes before = state(ctx, 0);
    llama_ckpt_snapshot snap;
    for (int i = 0; i < 3; ++i) {
        check(!llama_ckpt_device_save(ctx, 0, PARTIAL, snap) && snap.id == 0, "it was saved without memory");
        check(llama_ckpt_device_size(ctx) == 0, "memory is held");
        check(!llama_ckpt_device_load(ctx, 0, PARTIAL, snap), "it was restored");
    }
    llama_ckpt_device_free(ctx, 0, snap);
    check(state(ctx, 0) == before, "the state changed");
    llama_free(ctx);
}

// Prints a line with the microseconds of a round for each of `n` turns, of all sequences together: save, restore and decodes
// through the host, then on the device. The context is idle when a time begins and when it ends.
static void times(llama_model * model, int n_seq, int n) {
    llama_context * ctx = context(model, n_seq);
    const auto now = [&] {
        llama_synchronize(ctx);
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    std::vector<bytes> host(n_seq);
    std::vector<llama_ckpt_snapshot> snaps(n_seq);
    std::vector<rows> prompt, draft, accepted;
    for (int s = 0; s < n_seq; ++s) {
        prompt.push_back({ s, 0, text(20) });
        draft.push_back({ s, 0, text(4) });
        accepted.push_back({ s, 0, text(3) });
    }
    decode(ctx, prompt);
    printf("state %zu\n", state(ctx, 0).size());
    where(ctx);
    llama_pos n_past = 20;
    const auto round = [&](bool device, double * t) {
        for (int s = 0; s < n_seq; ++s) {
            draft[s].pos = accepted[s].pos = n_past;
        }
        const double begin = now();
        for (int s = 0; s < n_seq; ++s) {
            if (device) {
                check(llama_ckpt_device_save(ctx, s, PARTIAL, snaps[s]), "nothing was saved");
            } else {
                // as a checkpoint of the server does it
                host[s].resize(llama_state_seq_get_size_ext(ctx, s, PARTIAL));
                llama_state_seq_get_data_ext(ctx, host[s].data(), host[s].size(), s, PARTIAL);
            }
        }
        const double saved = now();
        decode(ctx, draft);
        const double verified = now();
        for (int s = 0; s < n_seq; ++s) {
            if (device) {
                check(llama_ckpt_device_load(ctx, s, PARTIAL, snaps[s]), "nothing was restored");
            } else {
                restore(ctx, s, host[s]);
            }
        }
        const double restored = now();
        for (int s = 0; s < n_seq; ++s) {
            forget(ctx, s, n_past);
        }
        const double replay = now();
        decode(ctx, accepted);
        t[0] = saved - begin;
        t[1] = restored - verified;
        t[2] = verified - saved + now() - replay;
        n_past += 3;
    };
    for (int i = 0; i < n + 3; ++i) {
        double t[2][3];
        const int first = i % 2;
        round(first, t[first]);
        round(!first, t[!first]);
        if (i == 0) {
            path(ctx, snaps);
        }
        if (i >= 3) {
            printf("turn %.1f %.1f %.1f %.1f %.1f %.1f\n", t[0][0], t[0][1], t[0][2], t[1][0], t[1][1], t[1][2]);
        }
    }
    for (int s = 0; s < n_seq; ++s) {
        llama_ckpt_device_free(ctx, s, snaps[s]);
    }
    llama_free(ctx);
}

int main(int argc, char ** argv) {
    check(argc == 3 || argc == 4, "usage: ckpt <model> <what> [number]");
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        // the model's NextN block is not used here, and the library says so of each of its tensors
        if (level >= GGML_LOG_LEVEL_ERROR || strstr(text, "ckpt") != nullptr) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    // layers on a GPU, from the end; all where nothing is said
    if (const char * layers = getenv("PROBE_LAYERS")) {
        params.n_gpu_layers = atoi(layers);
    }
    llama_model * model = llama_model_load_from_file(argv[1], params);
    check(model != nullptr, "no model");
    const std::string what = argv[2];
    const int number = argc == 4 ? atoi(argv[3]) : 40;
    if (what == "equal") {
        equal(model);
    } else if (what == "rounds") {
        for (const int n_seq : { 1, 2, 4 }) {
            rounds(model, n_seq, number);
        }
    } else if (what == "rounds-1") {
        // a large state takes long
        rounds(model, 1, number);
    } else if (what == "memory" || what == "memory-swap") {
        memory(model, what == "memory");
    } else if (what == "limits") {
        limits(model);
    } else if (what == "no-memory") {
        no_memory(model);
    } else if (what == "times" || what == "times-4") {
        times(model, what == "times" ? 1 : 4, number);
    } else {
        fail("unknown: " + what);
    }
    llama_model_free(model);
    puts("done");
    // a driver may end the process in its own way
    fflush(stdout);
    return 0;
}
