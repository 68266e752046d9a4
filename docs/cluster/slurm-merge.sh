#!/usr/bin/env bash
#
# Merges the parts that slurm-array.sh has built; see there. The parts may be removed afterwards.
#
#SBATCH --job-name=aladin-merge
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=12:00:00
#SBATCH --output=aladin-merge-%j.log

set -euo pipefail
: "${INDEX:?the folder of the index}" "${PARTS:?the number of tasks of the array}"

# In the order of the source; a missing part is an error.
parts=()
for ((part = 1; part <= PARTS; part++)); do
    parts+=("$INDEX.parts/$part")
done
exec aladin index merge "${parts[@]}" --out "$INDEX"
