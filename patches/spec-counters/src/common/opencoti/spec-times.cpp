#include "spec-times.h"

#include "ggml.h"

#include <cstdlib>
#include <cstring>

static common_spec_times common_spec_times_total;

static bool common_spec_times_enabled() {
    static const bool enabled = [] {
        const char * OPENCOTI_SPEC_COUNTERS = getenv("OPENCOTI_SPEC_COUNTERS");
        return OPENCOTI_SPEC_COUNTERS && OPENCOTI_SPEC_COUNTERS[0] && strcmp(OPENCOTI_SPEC_COUNTERS, "0") != 0;
    }();

    return enabled;
}

common_spec_times common_spec_times_get() {
    return common_spec_times_total;
}

common_spec_timer::common_spec_timer(uint64_t common_spec_times::* total)
    : total(total), t_begin_us(common_spec_times_enabled() ? ggml_time_us() : 0) {
}

common_spec_timer::~common_spec_timer() {
    if (t_begin_us != 0) {
        common_spec_times_total.*total += ggml_time_us() - t_begin_us;
    }
}
