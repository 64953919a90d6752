#!/usr/bin/env bash
# What the checkpoint switches do on a machine with an NVIDIA GPU, within eight minutes, with what was built elsewhere:
# the gates, through cuda.sh beside this file, and then host, device and swap beside each other. Not yet run on a GPU.
#
#   gates/device/checkpoints.sh [--dry-run | --cpu] BIN OUT
#
# --dry-run  say what would be run, and run nothing: it needs no GPU and no BIN
# --cpu      run it on processors, to try the script; definitions stay as they are
#
# BIN is that of cuda.sh (README.md), with what the test `device` of xtask/tests/measure_ckpt.rs makes:
#   ckpt, tokens     xtask/tests/data/probe-ckpt/*.cpp, linked with the libraries of the patched build
#   big-state.gguf   72 MiB of state in 72 tensors
# OUT takes the records and logs. Variables: DEVICE_SECONDS (all together, 480), DEVICE_GATES (only these), DEVICE_TURNS (40).
# Exit codes: 0 every gate passed and every way was measured where it was to be · 1 one did not, or was left out for want of
# time · 2 could not run.
set -u

usage() {
    echo "usage: gates/device/checkpoints.sh [--dry-run | --cpu] BIN OUT" >&2
    exit 2
}

mode=gpu
case ${1-} in
--dry-run) mode=dry && shift ;;
--cpu) mode=cpu && shift ;;
-*) usage ;;
esac
[ $# -eq 2 ] || usage
here=$(cd "$(dirname "$0")" && pwd) || exit 2

budget=${DEVICE_SECONDS:-480}
turns=${DEVICE_TURNS:-40}
export DEVICE_PLAN="chash-ckpt-device vanilla patched 60 --quick
chash-ckpt-swap vanilla patched 60 --quick
chash-replay-exact vanilla patched 60 --quick
counters-ckpt-device patched patched 40 --quick
counters-ckpt-swap patched patched 40 --quick"

# Name, way that the snapshots must have been kept, switches (separated by commas), program, arguments behind the model.
# ckpt: save, restore and decodes in microseconds through the host, then the same on the device. tokens: microseconds for a token
# through the host, with cells that take turns, and with bounded rollback.
device=OPENCOTI_SPEC_CKPT_DEVICE=1
# Without the first the second does nothing.
swap=$device,OPENCOTI_SPEC_CKPT_SWAP=1
probes=(
    "device-times copy $device ckpt times $turns"
    "swap-times swap $swap ckpt times $turns"
    "device-times-4 copy $device ckpt times-4 $turns"
    "swap-times-4 swap $swap ckpt times-4 $turns"
    "tokens-50 swap $swap tokens 1 $turns 50"
    "tokens-80 swap $swap tokens 1 $turns 80"
    "tokens-100 swap $swap tokens 1 $turns 100"
)

if [ "$mode" = dry ]; then
    "$here/cuda.sh" --dry-run "$1" "$2" || exit 2
    for line in "${probes[@]}"; do
        read -r name way switches program args <<<"$line"
        echo "would measure $name: ${switches//,/ } $1/$program $1/big-state.gguf $args, which must say \"path $way\""
    done
    exit 0
fi

bin=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) || exit 2
for file in ckpt tokens; do
    [ -x "$bin/$file" ] || { echo "missing: $bin/$file" >&2 && exit 2; }
done
[ -s "$bin/big-state.gguf" ] || { echo "missing: $bin/big-state.gguf" >&2 && exit 2; }

failed=0
flags=()
memory=CUDA
[ "$mode" = cpu ] && flags=(--cpu) && memory=CPU
DEVICE_SECONDS=$budget "$here/cuda.sh" "${flags[@]}" "$bin" "$out" || failed=$?
[ "$failed" -lt 2 ] || exit 2
libraries=$bin/patched
[ -s "$out/libraries.txt" ] && libraries=$libraries:$(cat "$out/libraries.txt")

say() {
    echo "$1" | tee -a "$out/summary.txt"
}

for line in "${probes[@]}"; do
    read -r name way switches program args <<<"$line"
    left=$((budget - SECONDS))
    if [ "$left" -lt 20 ]; then
        say "left out: $name, no time"
        failed=1
        continue
    fi
    [ "$left" -gt 60 ] && left=60
    # shellcheck disable=SC2086
    env LD_LIBRARY_PATH="$libraries" ${switches//,/ } timeout "$left" "$bin/$program" "$bin/big-state.gguf" $args \
        >"$out/$name.txt" 2>"$out/$name.log"
    code=$?
    say "$name: exit code $code, after $SECONDS s"
    if [ "$code" -ne 0 ]; then
        failed=1
        continue
    fi
    # A state on processors would be measured as well, and so would a copy in place of cells that take turns.
    if ! grep -q "^memory $memory" "$out/$name.txt"; then
        say "$name: the state does not lie on $memory"
        failed=1
        continue
    fi
    if ! grep -qx "path $way" "$out/$name.txt"; then
        say "$name: snapshots are to be kept by $way, and it says: $(grep '^path ' "$out/$name.txt" || echo nothing)"
        failed=1
        continue
    fi
    # Medians of the columns.
    columns=$(sed -n 's/^turn //p' "$out/$name.txt" | awk '{ print NF; exit }')
    for at in $(seq "${columns:-0}"); do
        median=$(sed -n 's/^turn //p' "$out/$name.txt" | cut -d' ' -f"$at" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
        say "$name, column $at, median $median"
    done
    if [ "${columns:-0}" -eq 0 ]; then
        say "$name: no turn"
        failed=1
    fi
done

cat "$out/summary.txt"
exit "$failed"
