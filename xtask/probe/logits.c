// Decodes given tokens and writes all logits of every position, bit for bit.
//
// Usage: logits <plan> <out>. The plan is text, one setting a line; see xtask/src/gate/logits/probe.rs.
// The out file: "LOGITS01", u32 vocabulary, u32 prompts, then for each prompt u32 rows and the rows
// as f32, all in the byte order of the machine. stdout names every llama.cpp library that is loaded,
// and ends with "done": a file without it is not whole.
//
// Only the public header is used, so that one text fits every base and every patch set.

#if defined(__linux__)
#define _GNU_SOURCE
#include <link.h>
#elif defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#include "llama.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 64 };

struct plan {
    char * model;
    uint32_t context;
    uint32_t batch;
    uint32_t ubatch;
    int32_t  threads;
    enum llama_flash_attn_type flash;
    enum ggml_type cache_k;
    enum ggml_type cache_v;
};

static void fail(const char * what, const char * which) {
    fprintf(stderr, "logits probe: %s%s%s\n", what, which[0] ? ": " : "", which);
    exit(2);
}

static uint32_t number(FILE * file, const char * key) {
    unsigned long value = 0;
    if (fscanf(file, "%lu", &value) != 1 || value > UINT32_MAX) {
        fail("not a number in the plan", key);
    }
    return (uint32_t) value;
}

static enum ggml_type cache_type(const char * name) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        const char * known = ggml_type_name((enum ggml_type) type);
        if (known != NULL && strcmp(known, name) == 0) {
            return (enum ggml_type) type;
        }
    }
    fail("unknown cache type", name);
    return GGML_TYPE_F16;
}

static enum llama_flash_attn_type flash_type(const char * name) {
    if (strcmp(name, "on") == 0) {
        return LLAMA_FLASH_ATTN_TYPE_ENABLED;
    }
    if (strcmp(name, "off") == 0) {
        return LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    if (strcmp(name, "auto") != 0) {
        fail("unknown flash setting", name);
    }
    return LLAMA_FLASH_ATTN_TYPE_AUTO;
}

// The rest of the line, without the blank before it.
static char * rest(FILE * file) {
    char * line = NULL;
    size_t size = 0;
    if (getline(&line, &size, file) < 2) {
        fail("the plan names no model", "");
    }
    line[strcspn(line, "\n")] = '\0';
    return line + 1;
}

static void put(const void * bytes, size_t size, FILE * out) {
    if (fwrite(bytes, 1, size, out) != size) {
        fail("cannot write", strerror(errno));
    }
}

static void decode(struct llama_context * ctx, struct llama_batch * batch, int32_t n_vocab, FILE * out) {
    char code[LONGEST_NAME];
    const int status = llama_decode(ctx, *batch);
    if (status != 0) {
        snprintf(code, sizeof code, "%d", status);
        fail("llama_decode failed with", code);
    }
    for (int32_t row = 0; row < batch->n_tokens; ++row) {
        const float * logits = llama_get_logits_ith(ctx, row);
        if (logits == NULL) {
            fail("a row has no logits", "");
        }
        put(logits, sizeof *logits * (size_t) n_vocab, out);
    }
}

static void add(struct llama_batch * batch, llama_token token, llama_pos pos) {
    const int32_t at = batch->n_tokens++;
    batch->token[at]     = token;
    batch->pos[at]       = pos;
    batch->n_seq_id[at]  = 1;
    batch->seq_id[at][0] = 0;
    batch->logits[at]    = 1;
}

// One prompt in a context of its own: `together` tokens in batches, the rest one at a time.
static void prompt(struct llama_model * model, const struct plan * plan, int32_t n_vocab, FILE * in, FILE * out) {
    const uint32_t together = number(in, "prompt");
    const uint32_t single   = number(in, "prompt");
    const uint32_t rows     = together + single;

    struct llama_context_params params = llama_context_default_params();
    params.n_ctx           = plan->context;
    params.n_batch         = plan->batch;
    params.n_ubatch        = plan->ubatch;
    params.n_seq_max       = 1;
    params.n_threads       = plan->threads;
    params.n_threads_batch = plan->threads;
    params.flash_attn_type = plan->flash;
    params.type_k          = plan->cache_k;
    params.type_v          = plan->cache_v;

    struct llama_context * ctx = llama_init_from_model(model, params);
    if (ctx == NULL) {
        fail("no context for this model and these settings", "");
    }
    struct llama_batch batch = llama_batch_init((int32_t) plan->batch, 0, 1);

    put(&rows, sizeof rows, out);
    batch.n_tokens = 0;
    for (uint32_t at = 0; at < rows; ++at) {
        const uint32_t token = number(in, "prompt");
        if (token >= (uint32_t) n_vocab) {
            fail("the model's vocabulary does not hold a token of the plan", "");
        }
        add(&batch, (llama_token) token, (llama_pos) at);
        const int full = at < together ? batch.n_tokens == (int32_t) plan->batch || at + 1 == together : 1;
        if (full) {
            decode(ctx, &batch, n_vocab, out);
            batch.n_tokens = 0;
        }
    }

    llama_batch_free(batch);
    llama_free(ctx);
}

static int is_ours(const char * path) {
    const char * slash = strrchr(path, '/');
    const char * name  = slash == NULL ? path : slash + 1;
    return strncmp(name, "libllama", 8) == 0 || strncmp(name, "libggml", 7) == 0;
}

typedef void (*visit_fn)(const char * path, void * data);

struct visitor {
    visit_fn visit;
    void * data;
};

#if defined(__linux__)
static int visit_one(struct dl_phdr_info * info, size_t size, void * data) {
    const struct visitor * visitor = data;
    (void) size;
    if (info->dlpi_name != NULL && is_ours(info->dlpi_name)) {
        visitor->visit(info->dlpi_name, visitor->data);
    }
    return 0;
}
#endif

static void each_library(visit_fn visit, void * data) {
    struct visitor visitor = { visit, data };
#if defined(__linux__)
    dl_iterate_phdr(visit_one, &visitor);
#elif defined(__APPLE__)
    for (uint32_t at = 0; at < _dyld_image_count(); ++at) {
        if (is_ours(_dyld_get_image_name(at))) {
            visitor.visit(_dyld_get_image_name(at), visitor.data);
        }
    }
#else
    (void) visitor;
#endif
}

static void say(const char * path, void * data) {
    (void) data;
    printf("library %s\n", path);
}

// The folder of the first one.
static void keep_folder(const char * path, void * data) {
    char ** folder = data;
    const char * slash = strrchr(path, '/');
    if (*folder == NULL && slash != NULL) {
        *folder = strndup(path, (size_t) (slash - path));
    }
}

// A build with variants for processors has no backend that is linked to it. They lie beside its libraries, and a
// server finds them since it lies there too.
static void load_backends(void) {
    char * folder = NULL;
    if (ggml_backend_reg_count() > 0) {
        return;
    }
    each_library(keep_folder, &folder);
    if (folder != NULL) {
        ggml_backend_load_all_from_path(folder);
    }
    free(folder);
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fail("usage: logits <plan> <out>", "");
    }
    FILE * in = fopen(argv[1], "r");
    if (in == NULL) {
        fail("cannot read the plan", strerror(errno));
    }
    FILE * out = fopen(argv[2], "wb");
    if (out == NULL) {
        fail("cannot write", strerror(errno));
    }

    llama_backend_init();
    load_backends();
    struct plan plan = { NULL, 0, 0, 0, 1, LLAMA_FLASH_ATTN_TYPE_AUTO, GGML_TYPE_F16, GGML_TYPE_F16 };
    struct llama_model * model = NULL;
    int32_t  n_vocab   = 0;
    uint32_t n_prompts = 0;
    char key[LONGEST_NAME];
    char word[LONGEST_NAME];
    while (fscanf(in, "%63s", key) == 1) {
        if (strcmp(key, "model") == 0) {
            plan.model = rest(in);
        } else if (strcmp(key, "context") == 0) {
            plan.context = number(in, key);
        } else if (strcmp(key, "batch") == 0) {
            plan.batch = number(in, key);
        } else if (strcmp(key, "ubatch") == 0) {
            plan.ubatch = number(in, key);
        } else if (strcmp(key, "threads") == 0) {
            plan.threads = (int32_t) number(in, key);
        } else if (strcmp(key, "flash") == 0 && fscanf(in, "%63s", word) == 1) {
            plan.flash = flash_type(word);
        } else if (strcmp(key, "cache-k") == 0 && fscanf(in, "%63s", word) == 1) {
            plan.cache_k = cache_type(word);
        } else if (strcmp(key, "cache-v") == 0 && fscanf(in, "%63s", word) == 1) {
            plan.cache_v = cache_type(word);
        } else if (strcmp(key, "prompts") == 0) {
            n_prompts = number(in, key);
            if (plan.model == NULL || plan.context == 0 || plan.batch == 0 || plan.ubatch == 0) {
                fail("the plan is not whole before its prompts", "");
            }
            model = llama_model_load_from_file(plan.model, llama_model_default_params());
            if (model == NULL) {
                fail("cannot load", plan.model);
            }
            n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
            const uint32_t vocabulary = (uint32_t) n_vocab;
            put("LOGITS01", 8, out);
            put(&vocabulary, sizeof vocabulary, out);
            put(&n_prompts, sizeof n_prompts, out);
        } else if (strcmp(key, "prompt") == 0 && model != NULL && n_prompts > 0) {
            prompt(model, &plan, n_vocab, in, out);
            --n_prompts;
        } else {
            fail("unknown line in the plan", key);
        }
    }
    if (n_prompts != 0 || model == NULL) {
        fail("the plan ends too early", "");
    }
    if (fclose(out) != 0) {
        fail("cannot write", strerror(errno));
    }
    each_library(say, NULL);
    llama_model_free(model);
    llama_backend_free();
    printf("done\n");
    return 0;
}
