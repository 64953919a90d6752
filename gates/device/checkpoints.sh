#!/usr/bin/env bash
# What the checkpoint switches do on a machine with an NVIDIA GPU, within eight minutes, with what was built elsewhere:
# the gates, and then host, device and swap beside each other. Not yet run: see docs/evaluations/checkpoints.md.
#
#   gates/device/checkpoints.sh BIN OUT
#
# BIN holds, all of it built before:
#   xtask                  target/release/xtask
#   vanilla/llama-server   built with GGML_CUDA=ON, CMAKE_CUDA_ARCHITECTURES=90, with its libraries beside it
#   patched/llama-server   the same options, the patched tree
#   ckpt, tokens           xtask/tests/data/probe-ckpt/*.cpp, linked with the libraries in patched/
#   big-state.gguf         the fixture architecture of that name with state = 128, heads = 32, layers = 36: 72 MiB of state
#                          in 72 tensors. No command makes it yet: fixture::generate() does, as in measure_ckpt.rs.
# OUT takes the records and logs. The exit code is 0 if every gate that was run passed and every way was measured on the
# GPU, else 1; what has no time left is said to be left out, and is no pass.
set -u

bin=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) || exit 2
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
cd "$root" || exit 2

budget=${DEVICE_SECONDS:-480}
failed=0
: >"$out/summary.txt"

for file in xtask vanilla/llama-server patched/llama-server ckpt tokens; do
    if [ ! -x "$bin/$file" ]; then
        echo "missing: $bin/$file" >&2
        exit 2
    fi
done
if [ ! -s "$bin/big-state.gguf" ]; then
    echo "missing: $bin/big-state.gguf" >&2
    exit 2
fi

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/device.txt" || exit 2
cat "$out/device.txt"
for side in vanilla patched; do
    # A server that finds no GPU would run on the CPU, and all would be well.
    if ! "$bin/$side/llama-server" --list-devices 2>&1 | tee "$out/devices-$side.txt" | grep -q CUDA; then
        echo "$side: no CUDA device" >&2
        exit 2
    fi
done

# left LIMIT: the seconds for a piece of at most LIMIT, nothing where there is no time
left() {
    local left=$((budget - SECONDS))
    [ "$left" -lt 20 ] && return 1
    [ "$left" -lt "$1" ] && echo "$left" || echo "$1"
}

# gate ID BASELINE CANDIDATE LIMIT [FLAG...]
gate() {
    local id=$1 baseline=$2 candidate=$3 limit
    if ! limit=$(left "$4"); then
        echo "left out: $id, no time" | tee -a "$out/summary.txt"
        failed=1
        return
    fi
    shift 4
    timeout "$limit" "$bin/xtask" gate --root "$root" --offline --keep-logs --unstamped --gate "$id" "$@" \
        --baseline "$bin/$baseline/llama-server" --candidate "$bin/$candidate/llama-server" \
        >"$out/$id.txt" 2>&1
    local code=$?
    echo "$id: exit code $code, $SECONDS s" | tee -a "$out/summary.txt"
    [ "$code" -eq 0 ] || failed=1
}

# probe NAME PROGRAM ARGUMENT... : what it prints, one line for each turn
probe() {
    local name=$1 program=$2 limit
    if ! limit=$(left 60); then
        echo "left out: $name, no time" | tee -a "$out/summary.txt"
        failed=1
        return
    fi
    shift 2
    LD_LIBRARY_PATH="$bin/patched" timeout "$limit" "$bin/$program" "$@" >"$out/$name.txt" 2>"$out/$name.log"
    local code=$?
    echo "$name: exit code $code, $SECONDS s" | tee -a "$out/summary.txt"
    # A state on the CPU would be measured as well.
    if [ "$code" -ne 0 ] || ! grep -q '^memory CUDA' "$out/$name.txt"; then
        failed=1
        return
    fi
    # Medians of the columns, in microseconds.
    local at columns
    columns=$(sed -n 's/^turn //p' "$out/$name.txt" | awk '{ print NF; exit }')
    for at in $(seq "$columns"); do
        sed -n 's/^turn //p' "$out/$name.txt" | cut -d' ' -f"$at" | sort -g |
            awk -v name="$name" -v at="$at" '{ v[NR] = $1 } END { print name ", column " at ", median " v[int((NR + 1) / 2)] }'
    done | tee -a "$out/summary.txt"
}

gate chash-ckpt-device       vanilla patched 60 --quick
gate chash-ckpt-swap         vanilla patched 60 --quick
gate chash-replay-exact      vanilla patched 60 --quick
gate counters-ckpt-device    patched patched 40 --quick
gate counters-ckpt-swap      patched patched 40 --quick

# Columns: save, restore and decodes in microseconds through the host, then the same on the device.
for slots in times times-4; do
    probe "device-$slots" ckpt "$bin/big-state.gguf" "$slots" 40
    OPENCOTI_SPEC_CKPT_SWAP=1 probe "swap-$slots" ckpt "$bin/big-state.gguf" "$slots" 40
done
# Columns: microseconds for a token through the host, with cells that take turns, and with bounded rollback.
for percent in 50 80 100; do
    OPENCOTI_SPEC_CKPT_SWAP=1 probe "tokens-$percent" tokens "$bin/big-state.gguf" 1 40 "$percent"
done

cp -r target/gate/latest-*.json "$out/" 2>/dev/null
cp -r target/gate/logs "$out/logs" 2>/dev/null
cat "$out/summary.txt"
exit "$failed"
