#include "nextn-adapt.h"

#include <algorithm>

int32_t common_nextn_adapt::choose(int32_t n_max, float p_min) {
    if (n_cur < 0) {
        n_cur = p_min <= 0.0f ? n_max : 0;
    }

    if (n_seen == 0 || n_seen % N_PERIOD != 0) {
        return std::min(n_cur, n_max);
    }

    const size_t n_window = std::min(n_seen, N_WINDOW);

    int64_t best = 0;

    n_cur = 0;
    for (int32_t n = 1; n <= n_max; ++n) {
        int64_t gain = 0;
        for (size_t i = 0; i < n_window; ++i) {
            gain += std::min(window[i], n) - (N_ACCEPT - 1)*std::max(0, n - window[i]);
        }

        if (gain > best) {
            best  = gain;
            n_cur = n;
        }
    }

    return n_cur;
}

void common_nextn_adapt::observe(int32_t n_steps) {
    window[n_seen % N_WINDOW] = n_steps;
    n_seen++;
}
