#!/usr/bin/env bash
# Run the kernels on an emulated AArch64 processor: aarch64.sh FOLDER [step ...]
#
#     SPLITJIT_MEMORY_CASES=300 tests/platforms/aarch64.sh /tmp/aarch64
#
# Without a step, all steps of the list below run. The script needs root, pip, debootstrap,
# qemu-user-static, and a Debian machine, whose mirror it uses. FOLDER gets Debian trixie with
# Python 3.13, the AArch64 wheels of Numba and NumPy, and a cache of compiled kernels, 1 GB in
# all, which the next run uses again.
#
# Emulated code is about 50 times slower, so no time means anything here. The bytes, the alignment,
# the streaming stores and the fences do. Pages of the emulated system have 4 KB.
set -euo pipefail
folder=$(realpath "$1")
steps=("${@:2}")
routes=(slices serial parallel serial-streamed parallel-streamed compiled compiled-streamed)
[ ${#steps[@]} -gt 0 ] || steps=("${routes[@]}" forks threads tests)
cd "$(dirname "$0")/../.."

if [ ! -e "$folder/complete" ]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' |
        head -n 1)
    debootstrap --no-check-gpg --foreign --arch=arm64 --variant=minbase \
        --include=python3.13 trixie "$folder/root" "$mirror"
    for archive in "$folder"/root/var/cache/apt/archives/*.deb; do
        dpkg-deb --extract "$archive" "$folder/root"
    done
    pip install --quiet --target "$folder/site" --only-binary=:all: --python-version 3.13 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --platform manylinux2014_aarch64 numba ml-dtypes pytest hypothesis
    touch "$folder/complete"
fi
pip install --quiet --target "$folder/site" --no-deps --upgrade .

export PYTHONPATH=$folder/site NUMBA_CACHE_DIR=$folder/cache NUMBA_NUM_THREADS=2
python() { qemu-aarch64-static -L "$folder/root" "$folder/root/usr/bin/python3.13" "$@"; }
cases=${SPLITJIT_MEMORY_CASES:-300}

for step in "${steps[@]}"; do
    case $step in
        forks)
            python -c "from tests import processes; from tests.runtime import test_forks as t
exec(processes.SPLIT + processes.TWO_CORES + t.CHILD + t.FORKS)"
            ;;
        threads)
            python -c "from tests import processes; from tests.runtime import test_threads as t
exec(processes.SPLIT + processes.TWO_CORES + t.SCRIPTS[\"eight threads split\"])"
            ;;
        tests) # the tests of the kernels that start no other process
            python -m pytest -q -p no:cacheprovider tests/kernels/test_kernels.py \
                tests/copy/test_layout.py tests/copy/test_split.py tests/copy/test_outputs.py \
                tests/copy/test_join.py -m "not slow"
            ;;
        *)
            first= log=$folder/case
            for i in "${!routes[@]}"; do
                [ "${routes[i]}" != "$step" ] || first=$((i * 1000000)) # as in test_memory.py
            done
            [ "$first" ] || { echo "there is no step $step" >&2; exit 2; }
            python -m tests.guarded "$step" $first $((first + cases)) "$log" ||
                { echo "$step: failed in case $(cat "$log")"; exit 1; }
            step="$step: $cases cases between protected pages"
            ;;
    esac
    echo "$step: passed"
done
[ $# -gt 1 ] || python tests/platforms/record.py "kernels, forks, threads" "emulated by QEMU"
