#pragma once

#include <cstdint>

// Time that this process has spent in the drafter, in microseconds. The calls come from one thread
// at a time, as those of the contexts that they use. Nothing is measured unless it is switched on.
// env: OPENCOTI_SPEC_COUNTERS
struct common_spec_times {
    uint64_t us_process = 0; // common_speculative_process(): catching up with the target
    uint64_t us_draft   = 0; // common_speculative_draft()
};

common_spec_times common_spec_times_get();

// adds its own life time to one of the totals
struct common_spec_timer {
    explicit common_spec_timer(uint64_t common_spec_times::* total);
    ~common_spec_timer();

    common_spec_timer(const common_spec_timer &) = delete;
    common_spec_timer & operator=(const common_spec_timer &) = delete;

private:
    uint64_t common_spec_times::* total;
    int64_t t_begin_us; // 0: off
};
