#!/usr/bin/env bash
#
# Builds an index with a Slurm array: each task encodes one part, and one job merges them.
#
#   export MODEL=/shared/model PHOTOS=/shared/photos INDEX=/shared/index
#   build=$(sbatch --parsable docs/cluster/slurm-array.sh)
#   PARTS=16 sbatch --dependency="afterok:$build" docs/cluster/slurm-merge.sh
#
# All nodes mount these paths. For another number of parts: `sbatch --array=1-64 ...`, and PARTS=64.
# A task that was killed or requeued continues where it stopped.
#
#SBATCH --job-name=aladin-build
#SBATCH --array=1-16
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=aladin-build-%A-%a.log

set -euo pipefail
: "${MODEL:?the checkpoint}" "${PHOTOS:?the photos}" "${INDEX:?the folder of the index}"

export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"
exec aladin index build --model "$MODEL" --images "$PHOTOS" \
    --out "$INDEX.parts/$SLURM_ARRAY_TASK_ID" \
    --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
    --readers "$SLURM_CPUS_PER_TASK" --resume
