#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// How many steps of a draft to do in one launch.
//
// A step in one launch is cheaper than one of the loop, but the loop stops where p_min says so, and
// steps behind that place are lost. So the launch is as long as recent drafts almost always were:
// a step that is used is taken to save one 16th of its cost, one that is lost to cost all of it. Where
// a step is cheap to launch and dear to compute this errs towards the loop, which is never a loss.
//
// What was drafted decides, not how long it took: the same requests give the same launches. The
// choice does not change what is drafted, only who drafts it.
struct common_nextn_adapt {
    // steps of the next draft that go into one launch; 0: the loop does all of it
    int32_t choose(int32_t n_max, float p_min);

    // steps that one launch would have been of use for: until the first of the sequences stopped, or equal
    // logits left the choice to the loop
    void observe(int32_t n_steps);

private:
    static constexpr size_t  N_WINDOW = 64; // drafts that are looked at
    static constexpr size_t  N_PERIOD = 16; // drafts between two looks: a new length is a new graph
    static constexpr int32_t N_ACCEPT = 16; // a lost step costs this much less one of what a used one saves

    std::array<int32_t, N_WINDOW> window = {};

    size_t n_seen = 0;

    int32_t n_cur = -1; // until something is known: all steps if p_min cuts nothing, else the loop
};
