#!/usr/bin/env bash
# The gates of the NextN switches on a machine with an NVIDIA GPU, within ten minutes, with what was built
# elsewhere. Not yet run: see docs/evaluations/fused-nextn.md.
#
#   gates/device/cuda.sh BIN OUT
#
# BIN holds, all of it built before:
#   xtask                  target/release/xtask
#   vanilla/llama-server   built with GGML_CUDA=ON, CMAKE_CUDA_ARCHITECTURES=90, with its libraries beside it
#   patched/llama-server   the same options, the patched tree
# OUT takes the records and logs. The exit code is 0 if every gate that was run passed, else 1; a gate
# that has no time left is said to be left out, and is no pass.
set -u

bin=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) || exit 2
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
cd "$root" || exit 2

budget=${DEVICE_SECONDS:-540}
failed=0

for file in xtask vanilla/llama-server patched/llama-server; do
    if [ ! -x "$bin/$file" ]; then
        echo "missing: $bin/$file" >&2
        exit 2
    fi
done

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/device.txt" || exit 2
cat "$out/device.txt"
for side in vanilla patched; do
    # A server that finds no GPU would run on the CPU, and all would be well.
    if ! "$bin/$side/llama-server" --list-devices 2>&1 | tee "$out/devices-$side.txt" | grep -q CUDA; then
        echo "$side: no CUDA device" >&2
        exit 2
    fi
done

# gate ID BASELINE CANDIDATE LIMIT [FLAG...]
gate() {
    local id=$1 baseline=$2 candidate=$3 limit=$4
    shift 4
    local left=$((budget - SECONDS))
    if [ "$left" -lt 20 ]; then
        echo "left out: $id, no time" | tee -a "$out/summary.txt"
        failed=1
        return
    fi
    [ "$left" -lt "$limit" ] && limit=$left
    timeout "$limit" "$bin/xtask" gate --root "$root" --offline --keep-logs --unstamped --gate "$id" "$@" \
        --baseline "$bin/$baseline/llama-server" --candidate "$bin/$candidate/llama-server" \
        >"$out/$id.txt" 2>&1
    local code=$?
    echo "$id: exit code $code, $SECONDS s" | tee -a "$out/summary.txt"
    [ "$code" -eq 0 ] || failed=1
}

# Final output, off and on.
gate chash              vanilla patched 60
gate chash-nextn-fused  vanilla patched 90
gate chash-nextn-one-launch vanilla patched 60
gate chash-nextn-reuse  vanilla patched 60 --quick
gate chash-nextn-kv-only vanilla patched 60 --quick
# Drafts. On a GPU two graphs may round one operation in two ways, so these may differ where logits are near.
gate drafts-one-launch  patched patched 60
gate drafts-qwen35      patched patched 60
gate drafts-glm4moe     patched patched 30 --quick
gate drafts-deepseek2   patched patched 30 --quick
gate drafts-cohere2moe  patched patched 30 --quick
gate drafts-bailingmoe3 patched patched 30 --quick
gate drafts-nemotronhmoe patched patched 30 --quick
# Time and launches.
gate perf-nextn         patched patched 240

cp -r target/gate/latest-*.json "$out/" 2>/dev/null
cp -r target/gate/logs "$out/logs" 2>/dev/null
cat "$out/summary.txt"
exit "$failed"
