#include "spec-trace.h"

#include "log.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

struct common_spec_trace_close {
    void operator()(FILE * file) const {
        fclose(file);
    }
};

struct common_spec_trace {
    std::unique_ptr<FILE, common_spec_trace_close> file;

    std::map<llama_seq_id, uint64_t> n_cycles;

    std::string line;

    common_spec_trace() {
        const char * OPENCOTI_SPEC_TRACE = getenv("OPENCOTI_SPEC_TRACE");
        if (!OPENCOTI_SPEC_TRACE || !OPENCOTI_SPEC_TRACE[0]) {
            return;
        }

        file.reset(fopen(OPENCOTI_SPEC_TRACE, "wb"));
        if (!file) {
            LOG_ERR("%s: cannot write OPENCOTI_SPEC_TRACE=%s: %s\n", __func__, OPENCOTI_SPEC_TRACE, strerror(errno));
        }
    }

    void write(llama_seq_id seq_id, int32_t step, llama_pos pos, const llama_token_data_array & cur_p) {
        uint64_t & n_cycle = n_cycles[seq_id];

        if (step == 0) {
            n_cycle++;
        }

        char buf[96];

        line.clear();
        snprintf(buf, sizeof(buf), "%d %" PRIu64 " %d %d %d %zu", seq_id, n_cycle, step, pos, cur_p.data[0].id, cur_p.size);
        line += buf;

        for (size_t i = 0; i < cur_p.size; ++i) {
            uint32_t bits;
            static_assert(sizeof(bits) == sizeof(cur_p.data[i].logit), "a logit has 32 bits");
            memcpy(&bits, &cur_p.data[i].logit, sizeof(bits));

            snprintf(buf, sizeof(buf), " %d:%08" PRIx32, cur_p.data[i].id, bits);
            line += buf;
        }
        line += '\n';

        // a line is in the file before the next step begins, whatever ends the process
        if (fwrite(line.data(), 1, line.size(), file.get()) != line.size() || fflush(file.get()) != 0) {
            LOG_ERR("%s: the trace ends here: %s\n", __func__, strerror(errno));
            file.reset();
        }
    }
};

void common_spec_trace_step(llama_seq_id seq_id, int32_t step, llama_pos pos, const llama_token_data_array & cur_p) {
    // written by one thread: that which calls common_speculative_draft(), for all sequences
    static common_spec_trace trace;

    if (trace.file) {
        trace.write(seq_id, step, pos, cur_p);
    }
}
