#!/usr/bin/env bash
# The gates on a machine with an NVIDIA GPU, within ten minutes, with what was built elsewhere: README.md beside this
# file. Not yet run on a GPU.
#
#   gates/device/cuda.sh [--dry-run | --cpu] BIN OUT
#
# --dry-run  say what would be run, and run nothing: it needs no GPU and no BIN
# --cpu      run it on processors, to try the script; definitions stay as they are
#
# Variables: DEVICE_SECONDS (all gates together, 540), DEVICE_GATES (only these, separated by blanks), DEVICE_PLAN (another
# plan than the one below, a line for each gate).
# Exit codes: 0 every gate that was to run passed · 1 one did not, or was left out for want of time · 2 could not run.
set -u

usage() {
    echo "usage: gates/device/cuda.sh [--dry-run | --cpu] BIN OUT" >&2
    exit 2
}

mode=gpu
case ${1-} in
--dry-run) mode=dry && shift ;;
--cpu) mode=cpu && shift ;;
-*) usage ;;
esac
[ $# -eq 2 ] || usage
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2

# id, side for the baseline, side for the candidate, seconds at most, flags of `gate`. What matters most comes first: what
# has no time left is left out.
plan=(
    # Final output, switches off and on.
    "chash vanilla patched 60"
    "chash-nextn-one-launch vanilla patched 60"
    "chash-nextn-fused vanilla patched 60 --quick"
    # Drafts. On a GPU two graphs may round one operation in two ways, so these may differ where logits are near.
    "drafts-one-launch patched patched 60"
    "drafts-step35 patched patched 40 --quick"
    # Checkpoints that stay on the device.
    "chash-ckpt-device vanilla patched 60 --quick"
    "counters-ckpt-device patched patched 40 --quick"
    # Time and launches.
    "perf-nextn patched patched 240"
    # More of the same, where time is left.
    "chash-ckpt-swap vanilla patched 40 --quick"
    "drafts-qwen35 patched patched 40 --quick"
    "drafts-glm4moe patched patched 30 --quick"
    "chash-nextn-reuse vanilla patched 40 --quick"
    "chash-nextn-kv-only vanilla patched 40 --quick"
)

# Another script's plan, in the same form: checkpoints.sh has one.
[ -z "${DEVICE_PLAN-}" ] || mapfile -t plan <<<"$DEVICE_PLAN"

wanted() {
    [ -z "${DEVICE_GATES-}" ] && return 0
    case " $DEVICE_GATES " in *" $1 "*) return 0 ;; esac
    return 1
}

# A definition that computes on the GPU, whose device the server's log must then prove.
on_cuda() {
    if grep -qE '^(backend|device) *=' "$1"; then
        echo "$1 already says where it computes" >&2
        return 1
    fi
    awk '{ print } /^model *=/ && !done { print "backend = \"cuda\""; done = 1 } END { exit !done }' "$1"
}

for line in "${plan[@]}"; do
    read -r id _ <<<"$line"
    if ! on_cuda "$root/gates/$id.toml" >/dev/null; then
        echo "cannot be put on a GPU: gates/$id.toml" >&2
        exit 2
    fi
done
for id in ${DEVICE_GATES-}; do
    if ! printf '%s\n' "${plan[@]}" | grep -q "^$id "; then
        echo "DEVICE_GATES: no gate $id in the plan" >&2
        exit 2
    fi
done

if [ "$mode" = dry ]; then
    for line in "${plan[@]}"; do
        read -r id baseline candidate limit flags <<<"$line"
        wanted "$id" || continue
        echo "would run $id${flags:+ $flags}: $1/$baseline with $1/$candidate, at most $limit s"
    done
    exit 0
fi

bin=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) || exit 2
for file in xtask vanilla/llama-server patched/llama-server; do
    if [ ! -x "$bin/$file" ]; then
        echo "missing: $bin/$file" >&2
        exit 2
    fi
done

if [ "$mode" = gpu ]; then
    nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader >"$out/device.txt" ||
        { echo "no GPU: nvidia-smi does not answer" >&2 && exit 2; }
    cat "$out/device.txt"
    # What the libraries need of the toolkit: beside them, in a folder of BIN, or where this machine has it.
    folders=$bin/lib
    for folder in "${CUDA_PATH:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 \
        /usr/lib/python3*/site-packages/nvidia/*/lib /usr/local/lib/python3*/*-packages/nvidia/*/lib; do
        [ -d "$folder" ] && folders=$folders:$folder
    done
    export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    echo "$LD_LIBRARY_PATH" >"$out/libraries.txt"
    for side in vanilla patched; do
        # Code for another GPU, a damaged file, or one of another build: said before anything runs.
        "$bin/xtask" inspect "$bin/$side/llama-server" "$bin/$side"/lib*.so.*.* >"$out/inspect-$side.txt" 2>&1 ||
            { cat "$out/inspect-$side.txt" >&2 && exit 2; }
        grep 'for GPUs' "$out/inspect-$side.txt"
        if ldd "$bin/$side"/libggml-cuda.so* | grep 'not found' >&2; then
            echo "$side: put the libraries above into $bin/lib" >&2
            exit 2
        fi
        # A server that finds no GPU would run on processors, and all would be well.
        if ! "$bin/$side/llama-server" --list-devices >"$out/devices-$side.txt" 2>&1 ||
            ! grep -q CUDA0 "$out/devices-$side.txt"; then
            cat "$out/devices-$side.txt" >&2
            echo "$side: no CUDA device" >&2
            exit 2
        fi
    done
fi

# A checkout of its own, so that nothing of this one is changed. Patches say which switches they have.
work=$out/checkout
rm -rf "$work" && mkdir -p "$work/gates" || exit 2
cp -r "$root/registry" "$root/patches" "$work/" && cp -r "$root/gates/prompts" "$root/gates/fixtures.toml" "$work/gates/" || exit 2
for line in "${plan[@]}"; do
    read -r id _ <<<"$line"
    case $mode in
    gpu) on_cuda "$root/gates/$id.toml" >"$work/gates/$id.toml" || exit 2 ;;
    cpu) cp "$root/gates/$id.toml" "$work/gates/" || exit 2 ;;
    esac
done

failed=0
: >"$out/summary.txt"
budget=${DEVICE_SECONDS:-540}
for line in "${plan[@]}"; do
    read -r id baseline candidate limit flags <<<"$line"
    wanted "$id" || continue
    left=$((budget - SECONDS))
    if [ "$left" -lt 20 ]; then
        echo "left out: $id, no time" | tee -a "$out/summary.txt"
        failed=1
        continue
    fi
    [ "$left" -lt "$limit" ] && limit=$left
    # shellcheck disable=SC2086
    timeout "$limit" "$bin/xtask" gate --root "$work" --offline --keep-logs --gate "$id" $flags \
        --baseline "$bin/$baseline/llama-server" --candidate "$bin/$candidate/llama-server" \
        >"$out/$id.txt" 2>&1
    code=$?
    echo "$id: exit code $code, after $SECONDS s" | tee -a "$out/summary.txt"
    [ "$code" -eq 0 ] || failed=1
done

# Nothing that ran is no pass.
[ -s "$out/summary.txt" ] || failed=1
mkdir -p "$out/records"
cp "$work"/target/gate/latest-*.json "$out/records/" 2>/dev/null
tar -czf "$out/logs.tar.gz" -C "$work/target/gate" . 2>/dev/null
ls "$out/records"
exit "$failed"
