// Times ggml's own ops beside the kernels of ggml-ext, in one process and one graph each, and a plain
// reading of the same row beside both. Compiled against the headers of a patched build.
//
//   kernels <rounds> <k> <vocabulary,...> <threads,...>
//
// One line a figure: sample <op> <vocabulary> <threads> <order> <cache> <what> <nanoseconds>

#define _GNU_SOURCE

#include "ggml.h"
#include "ggml-cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// more than the last cache of the machines that this runs on
#define EVICT_BYTES ((size_t) 192 << 20)

// calls in one figure where the row is in the cache
#define WARM_CALLS 4

enum what { OWN, KERNEL, READ, N_WHAT };

static const char * const what_names[N_WHAT] = { "ggml", "kernel", "read" };

static char said[4096];

static void on_log(enum ggml_log_level level, const char * text, void * data) {
    (void) level;
    (void) data;
    strncat(said, text, sizeof(said) - strlen(said) - 1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec*1000000000ll + t.tv_nsec;
}

static void die(const char * text) {
    fprintf(stderr, "%s\n%s\n", text, said);
    exit(1);
}

static volatile uint64_t sink;

// several sums, so that the loads wait for nothing but memory
static uint64_t sum(const uint64_t * data, size_t n) {
    uint64_t s[16] = { 0 };
    size_t   i     = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 16; ++j) {
            s[j] += data[i + j];
        }
    }
    for (; i < n; ++i) {
        s[0] += data[i];
    }
    uint64_t res = 0;
    for (int j = 0; j < 16; ++j) {
        res += s[j];
    }
    return res;
}

static void read_row(struct ggml_tensor * dst, const struct ggml_tensor * a, int ith, int nth, void * data) {
    (void) dst;
    (void) data;
    const size_t n = ggml_nbytes(a)/sizeof(uint64_t);
    const size_t m = (n + nth - 1)/nth;
    const size_t b = m*ith < n ? m*ith : n;
    const size_t e = b + m < n ? b + m : n;
    sink = sum((const uint64_t *) a->data + b, e - b);
}

static void evict(void) {
    static uint64_t * data;
    if (!data) {
        data = malloc(EVICT_BYTES);
        if (!data) {
            die("no memory");
        }
        memset(data, 1, EVICT_BYTES);
    }
    sink = sum(data, EVICT_BYTES/sizeof(uint64_t));
}

struct run {
    struct ggml_cgraph * graph;
    struct ggml_cplan    plan;
};

static struct run prepare(struct ggml_context * ctx, struct ggml_tensor * out, int n_threads, bool use_ref) {
    struct run res;
    res.graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(res.graph, out);

    static struct ggml_threadpool * pools[65];
    if (!pools[n_threads]) {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
        pools[n_threads] = ggml_threadpool_new(&params);
    }
    res.plan         = ggml_graph_plan(res.graph, n_threads, pools[n_threads]);
    // one that has nothing to share would run on one thread: all have the same number
    res.plan.n_threads = n_threads;
    res.plan.use_ref   = use_ref;
    res.plan.work_data = malloc(res.plan.work_size + 1);
    return res;
}

static void compute(struct run * run) {
    if (ggml_graph_compute(run->graph, &run->plan) != GGML_STATUS_SUCCESS) {
        die("a graph was not computed");
    }
}

static int by_value(const void * a, const void * b) {
    const float x = *(const float *) a;
    const float y = *(const float *) b;
    return (x > y) - (x < y);
}

// about normal, the same each time, and no two equal
static void fill(float * row, int64_t n, bool sorted) {
    uint64_t state = 42;
    for (int64_t i = 0; i < n; ++i) {
        float value = 0.0f;
        for (int j = 0; j < 4; ++j) {
            state = state*6364136223846793005ull + 1442695040888963407ull;
            value += (float) (state >> 40)/(float) (1 << 24) - 0.5f;
        }
        row[i] = 6.0f*value;
    }
    if (sorted) {
        qsort(row, n, sizeof(float), by_value);
    }
}

static void measure(const char * op, int k, int64_t n, int n_threads, bool sorted, int rounds) {
    struct ggml_init_params params = { (size_t) 8*n*sizeof(float) + ((size_t) 16 << 20), NULL, false };

    struct ggml_context * ctx = ggml_init(params);
    struct ggml_tensor  * row = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n);
    fill((float *) row->data, n, sorted);

    struct run           runs[N_WHAT];
    struct ggml_tensor * outs[2];
    for (int what = OWN; what <= KERNEL; ++what) {
        outs[what] = strcmp(op, "argmax") == 0 ? ggml_argmax(ctx, row) :
                     strcmp(op, "pad")    == 0 ? ggml_pad   (ctx, row, 0, 1, 0, 0) :
                                                 ggml_top_k (ctx, row, k);
        runs[what] = prepare(ctx, outs[what], n_threads, what == OWN);
        compute(&runs[what]);
    }
    runs[READ] = prepare(ctx, ggml_map_custom1(ctx, row, read_row, n_threads, NULL), n_threads, false);
    compute(&runs[READ]);

    // equal values come in any order: the values are compared, and for different ones the places
    const int32_t * own    = (const int32_t *) outs[OWN]->data;
    const int32_t * kernel = (const int32_t *) outs[KERNEL]->data;
    if (outs[OWN]->type == GGML_TYPE_F32 && memcmp(own, kernel, ggml_nbytes(outs[OWN])) != 0) {
        die("the kernel gives other bytes than ggml");
    }
    for (int64_t i = 0; outs[OWN]->type == GGML_TYPE_I32 && i < ggml_nelements(outs[OWN]); ++i) {
        if (((const float *) row->data)[own[i]] != ((const float *) row->data)[kernel[i]]) {
            die("the kernel gives other values than ggml");
        }
    }

    for (int cold = 0; cold <= 1; ++cold) {
        for (int round = 0; round < rounds; ++round) {
            for (int turn = 0; turn < N_WHAT; ++turn) {
                const int what  = (turn + round) % N_WHAT;
                const int calls = cold ? 1 : WARM_CALLS;
                if (cold) {
                    evict();
                } else {
                    compute(&runs[what]);
                }
                const int64_t begin = now_ns();
                for (int i = 0; i < calls; ++i) {
                    compute(&runs[what]);
                }
                const int64_t end = now_ns();
                printf("sample %s %" PRId64 " %d %s %s %s %" PRId64 "\n", op, n, n_threads, sorted ? "ascending" : "random",
                        cold ? "memory" : "cache", what_names[what], (end - begin)/calls);
            }
        }
    }

    for (int what = 0; what < N_WHAT; ++what) {
        free(runs[what].plan.work_data);
    }
    ggml_free(ctx);
}

int main(int argc, char ** argv) {
    if (argc != 5) {
        die("arguments: rounds, k, vocabularies, threads");
    }
    const int rounds = atoi(argv[1]);
    const int k      = atoi(argv[2]);

    setenv("OPENCOTI_EXT_KERNELS", "all", 1);
    ggml_log_set(on_log, NULL);
    ggml_cpu_init();

    for (char * vocabulary = strtok(argv[3], ","); vocabulary; vocabulary = strtok(NULL, ",")) {
        const char * threads = argv[4];
        for (;;) {
            const int n_threads = atoi(threads);
            if (n_threads < 1 || n_threads > 64) {
                die("1 to 64 threads");
            }
            for (int sorted = 0; sorted <= 1; ++sorted) {
                measure("top_k",  k, atoll(vocabulary), n_threads, sorted, rounds);
                measure("argmax", k, atoll(vocabulary), n_threads, sorted, rounds);
                if (!sorted) {
                    measure("pad", k, atoll(vocabulary), n_threads, sorted, rounds);
                }
            }
            threads = strchr(threads, ',');
            if (!threads) {
                break;
            }
            threads++;
        }
    }

    const char * active = strstr(said, "kernels of ggml-ext ");
    if (!active || !strstr(active, "top_k") || !strstr(active, "argmax") || !strstr(active, "pad")) {
        die("the kernels are not active");
    }
    printf("active %.*s\n", (int) strcspn(active, "\n"), active);
    return 0;
}
