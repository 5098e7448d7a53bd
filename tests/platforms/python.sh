#!/usr/bin/env bash
# Run the tests on a Python version of Debian sid: python.sh VERSION FOLDER [pytest arguments]
#
#     sudo tests/platforms/python.sh 3.14 /tmp/python3.14 -m "not slow"
#
# This is for machines on which uv cannot install the version; elsewhere use `pipx run nox`. It
# needs root, debootstrap, and a Debian machine, whose mirror it uses. FOLDER gets Debian sid and a
# virtual environment, 2 GB in all, which the next run uses again.
#
# Only /usr is the one of sid. So the settings of pip and of the network are those of the machine.
set -euo pipefail

if [ "${1-}" != --inside ]; then
    version=$1 folder=$(realpath "$2")
    if [ ! -e "$folder/usr/bin/python$version" ]; then
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' |
            head -n 1)
        debootstrap --no-check-gpg --variant=minbase \
            --include="python$version,python$version-venv,git" sid "$folder" "$mirror"
    fi
    exec unshare --mount "$0" --inside "$version" "$folder" "${@:3}"
fi

version=$2 folder=$3
shift 3
mount --bind "$folder/usr" /usr
cd "$(dirname "$0")/../.."
"python$version" -m venv "$folder/venv"
source "$folder/venv/bin/activate"
python -m pip install --quiet "pip>=25.1"
python -m pip install --quiet . --group test
python -m pytest "$@"
case "$*" in
    "") python tests/platforms/record.py default ;;
    "-m long or not long") python tests/platforms/record.py all ;;
    "-m not slow") python tests/platforms/record.py "quick tests" ;;
esac
