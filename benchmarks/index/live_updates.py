"""Repeatedly kills a process that changes an index, and checks the resulting index.

    python -m benchmarks.index.live_updates --kills 50 [--json] [--quick]

A writer process adds, replaces and deletes random groups of three photos, one group per call, and
sometimes compacts the index. It reports over a pipe when a call begins and when it has returned,
which acknowledges the call. It is killed with SIGKILL at a random time; the index is opened, and
every item is compared with its expected embedding, tokens and photo. The next writer continues with
the same index. Another process searches throughout.

A call that was interrupted by a kill must be applied completely or not at all: the kill may have
come between its commit and its acknowledgement.

kills                 writers that were killed
acknowledged          calls that returned
acknowledged_lost     items that differ from the state after the acknowledged calls
unacknowledged_found  other items that neither the acknowledged calls nor the complete interrupted
                      call explain, for example those of half a call
in_flight_applied     kills whose interrupted call was applied completely
in_flight             number of kills by the kind of the interrupted call
searches              searches over all items by the other process
broken_searches       searches that failed, or found a part of a group or two versions of it

Only processes are killed. Whether data survives a loss of power depends on fsync, which every call
waits for before it returns.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.layout import live_generation
from aladin_index.generations.compact import compact_index
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_network.graphs.threads import set_compute_threads
from benchmarks.index.live_groups import (
    MOST_GROUPS,
    Content,
    Groups,
    GroupSearcher,
    build_groups,
    group_ids,
    new_group,
    read_groups,
)
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import forked

QUICK_KILLS, _BASE_GROUPS = 4, 40

Kind = Literal["add", "replace", "delete", "compact"]


class Call(NamedTuple):
    """A change of an index by a writer, in one step.

    Attributes:
        kind: Kind of the change; a compaction leaves all items as they are.
        group: Group that is changed.
        version: Version of the group from then on.
    """

    kind: Kind
    group: int
    version: int

    def after(self, groups: Groups) -> Groups:
        """Return the groups after the call has been applied."""
        rest = {group: version for group, version in groups.items() if group != self.group}
        if self.kind == "compact":
            return groups
        return rest if self.kind == "delete" else rest | {self.group: self.version}


@dataclass(kw_only=True)
class Figures:
    """Counts of the measurement; see the docstring of the module."""

    kills: int = 0
    acknowledged: int = 0
    acknowledged_lost: int = 0
    unacknowledged_found: int = 0
    in_flight_applied: int = 0
    in_flight: dict[str, int] = field(default_factory=dict[str, int])
    searches: int = 0
    broken_searches: int = 0
    generations: int = 0
    seconds: float = 0.0


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, f"{QUICK_KILLS} kills, some seconds")
    parser.add_argument("--kills", type=int, default=50, help="writers to kill")
    parser.add_argument("--seed", type=int, default=0, help="seed of the changes and of the kills")
    options = parser.parse_args()
    set_compute_threads(1)  # threads do not outlive a fork
    with tempfile.TemporaryDirectory() as folder:
        kills = QUICK_KILLS if options.quick else options.kills
        figures = kill_writers(Path(folder) / "index", kills, options.seed)
    print_figures(asdict(figures), as_json=options.json)


def kill_writers(root: Path, kills: int, seed: int) -> Figures:
    """Build an index, and repeatedly kill its writers.

    Args:
        root: Folder of the index; new.
        kills: Number of kills.
        seed: Seed of the random changes, and of the moments of the kills.
    """
    started = time.perf_counter()
    figures, groups = Figures(), dict.fromkeys(range(_BASE_GROUPS), 0)
    build_groups(root, groups)
    chance = random.Random(seed)
    searcher = GroupSearcher(root, seed)
    in_flight: Counter[str] = Counter()
    took_s: dict[str, float] = {}
    for number in range(kills):
        acknowledged, pending = _killed_writer(root, groups, chance, number, took_s)
        figures.kills += 1
        figures.acknowledged += len(acknowledged)
        in_flight[pending.kind if pending else "none"] += 1
        removed: set[int] = set()
        for call in acknowledged:
            groups = call.after(groups)
            removed = removed | {call.group} if call.kind == "delete" else removed - {call.group}
        groups = compare(root, groups, removed, pending, figures)
    compact_index(root, keep=0)
    compare(root, groups, set(), None, figures)
    verify_index(root)
    figures.in_flight = dict(sorted(in_flight.items()))
    figures.searches, figures.broken_searches = searcher.stop()
    figures.generations = live_generation(root)
    figures.seconds = round(time.perf_counter() - started, 1)
    return figures


def _killed_writer(
    root: Path, groups: Groups, chance: random.Random, number: int, took_s: dict[str, float]
) -> tuple[list[Call], Call | None]:
    """Let a process change the index until it is killed.

    Args:
        root: Folder of the index.
        groups: Groups that the index contains.
        chance: Random generator for the moments of the kills.
        number: Number of the writer, which determines its changes.
        took_s: Duration of a call of each kind; used to kill during a call, and filled in.

    Returns:
        The calls that were acknowledged, and the one in flight.
    """
    seed = chance.randrange(2**32)
    child, lines = forked(lambda say: _write(root, dict(groups), number, seed, say))
    acknowledged: list[Call] = []
    pending: Call | None = None
    begun_s = time.perf_counter()
    to_go, into_compaction = chance.randrange(1, 9), chance.random() < 0.5
    armed = True
    for line in lines:
        if line == "done":
            assert pending is not None
            acknowledged.append(pending)
            took_s[pending.kind] = time.perf_counter() - begun_s
            pending = None
            to_go -= 1
        else:
            pending = Call(*json.loads(line))
            begun_s = time.perf_counter()
        due = pending is not None and (pending.kind == "compact" if into_compaction else to_go <= 0)
        if armed and due and pending is not None:
            # Anywhere in the call, or shortly after its end.
            time.sleep(chance.uniform(0, 1.2 * took_s.get(pending.kind, 0.02)))
            os.kill(child, signal.SIGKILL)
            armed = False  # what it still said is in the pipe
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("a writer failed by itself")
    return acknowledged, pending


def _write(root: Path, groups: Groups, number: int, seed: int, say: Callable[[str], None]) -> None:
    """Change the index in a separate process until killed."""
    chance = random.Random(seed)
    with closing(open_index(root)) as index:
        model_id = index.manifest.model.id
    writer = ChangesWriter(root, model_id)
    version = 1000 * (number + 1)
    while True:
        version += 1
        call = _next_call(groups, version, chance)
        say(json.dumps(call))
        if call.kind == "compact":
            compact_index(root)
        elif call.kind == "delete":
            writer.delete("images", group_ids(call.group))
        else:
            new = new_group(call.group, call.version)
            writer.add("images", new, "replace" if call.kind == "replace" else "error")
        say("done")
        groups = call.after(groups)


def _next_call(groups: Groups, version: int, chance: random.Random) -> Call:
    kind: Kind = chance.choices(("add", "replace", "delete", "compact"), (8, 4, 6, 2))[0]
    there = sorted(groups)
    if (kind == "add" and len(there) >= MOST_GROUPS) or (kind == "delete" and len(there) < 2):
        kind = "replace"
    if kind == "compact":
        return Call(kind, -1, version)
    if kind == "add":
        free = [group for group in range(2 * MOST_GROUPS) if group not in groups]
        return Call(kind, chance.choice(free), version)
    return Call(kind, chance.choice(there), version)


def compare(
    root: Path, groups: Groups, removed: set[int], pending: Call | None, figures: Figures
) -> Groups:
    """Compare the index with the acknowledged changes, and count.

    Args:
        root: Folder of the index.
        groups: Groups after the acknowledged calls.
        removed: Groups that an acknowledged call deleted.
        pending: The call in flight, or None if there is none.
        figures: Figures in which to count.

    Returns:
        The groups of the index, for the next writer.
    """
    with closing(open_index(root)) as index:
        found = read_groups(index)
    if pending is not None and _is_applied(pending, groups, found):
        figures.in_flight_applied += 1
        groups = pending.after(groups)
    expected = _items_of(groups)
    for item_id in found.keys() | expected.keys():
        if item_id in found and found[item_id] == expected.get(item_id):
            continue
        if item_id in expected or int(item_id.split("-")[0]) in removed:
            figures.acknowledged_lost += 1
        else:
            figures.unacknowledged_found += 1
    return groups


def _is_applied(call: Call, groups: Groups, found: Mapping[str, Content]) -> bool:
    """Whether a change has been applied completely."""
    after = _items_of(call.after(groups))
    ids = [] if call.kind == "compact" else group_ids(call.group)
    there = {item_id: found[item_id] for item_id in ids if item_id in found}
    return bool(ids) and there == {item_id: after[item_id] for item_id in ids if item_id in after}


def _items_of(groups: Groups) -> dict[str, Content]:
    return {
        item_id: (group, version)
        for group, version in groups.items()
        for item_id in group_ids(group)
    }


if __name__ == "__main__":
    main()
