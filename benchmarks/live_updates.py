"""Kills a process that changes an index, again and again, and looks what the index holds then.

    python -m benchmarks.live_updates --kills 50 [--json] [--quick]

A writer process adds, replaces and deletes groups of three photos at random, a call a group, and
now and then compacts the index. It says over a pipe what it is about to do and what has returned:
from then on a call is acknowledged. It is killed by SIGKILL at a random moment, the index is
opened, and every item in it is compared, with its embedding, its tokens and the bytes of its photo.
The next writer goes on with the index as it is. All the while another process searches.

A call in which the writer was killed may be there, whole, for the kill may have fallen between its
commit and its acknowledgement; or not at all.

kills                 writers that were killed
acknowledged          calls that returned
acknowledged_lost     items that are not as the acknowledged calls left them
unacknowledged_found  other items that neither the acknowledged calls nor a whole call in flight
                      explain; those of half a call among them
in_flight_applied     kills whose call in flight is there, whole
in_flight             by kind of call, how many kills fell into one
searches              of the other process, over all items
broken_searches       of those that failed, or saw a part of a group or two versions of it

Processes die, the machine does not: what a loss of power does is up to fsync, which every call
waits for before it returns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

from benchmarks.live_groups import (
    GROUP_ITEMS,
    Content,
    Groups,
    build_groups,
    group_ids,
    new_group,
    read_groups,
    some_query,
)
from index.changes_writer import ChangesWriter
from index.compact import compact_index
from index.layout import live_generation
from index.reader import SearchIndex, open_index
from index.searcher import TwoStageSearcher
from index.verify import verify_index

QUICK_KILLS, _BASE_GROUPS, _MOST_GROUPS = 4, 40, 80

Kind = Literal["add", "replace", "delete", "compact"]


class Call(NamedTuple):
    """Something that a writer does to an index in one step.

    Attributes:
        kind: what; a compaction leaves all items as they are.
        group: that is changed.
        version: of the group from then on.
    """

    kind: Kind
    group: int
    version: int

    def after(self, groups: Groups) -> Groups:
        """Return the groups as they are when it was applied."""
        rest = {group: version for group, version in groups.items() if group != self.group}
        if self.kind == "compact":
            return groups
        return rest if self.kind == "delete" else rest | {self.group: self.version}


@dataclass(kw_only=True)
class Figures:
    """What was counted; see the head of this module."""

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
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills, some seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)  # threads do not outlive a fork
    with tempfile.TemporaryDirectory() as folder:
        kills = QUICK_KILLS if options.quick else options.kills
        figures = kill_writers(Path(folder) / "index", kills, options.seed)
    if options.json:
        print(json.dumps(asdict(figures), indent=2))
    else:
        for name, value in asdict(figures).items():
            print(f"{name:<21} {value}")


def kill_writers(root: Path, kills: int, seed: int) -> Figures:
    """Build an index, and kill writers of it.

    Args:
        root: of the index; new.
        kills: how many.
        seed: of what is done, and when it is killed.
    """
    started = time.perf_counter()
    figures, groups = Figures(), dict.fromkeys(range(_BASE_GROUPS), 0)
    build_groups(root, groups)
    chance = random.Random(seed)
    searcher = _Searcher(root, seed)
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
        root: of the index.
        groups: that it holds.
        chance: when to kill.
        number: of the writer; what it does follows from it.
        took_s: how long a call of each kind takes; used to kill inside of one, and filled in.

    Returns:
        The calls that were acknowledged, and the one in flight.
    """
    seed = chance.randrange(2**32)
    child, lines = _forked(lambda say: _write(root, dict(groups), number, seed, say))
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
            # Anywhere in the call, a little after its end too.
            time.sleep(chance.uniform(0, 1.2 * took_s.get(pending.kind, 0.02)))
            os.kill(child, signal.SIGKILL)
            armed = False  # what it still said is in the pipe
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("a writer failed by itself")
    return acknowledged, pending


def _write(root: Path, groups: Groups, number: int, seed: int, say: Callable[[str], None]) -> None:
    """Change the index, in a process of its own, until killed."""
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
    if (kind == "add" and len(there) >= _MOST_GROUPS) or (kind == "delete" and len(there) < 2):
        kind = "replace"
    if kind == "compact":
        return Call(kind, -1, version)
    if kind == "add":
        free = [group for group in range(2 * _MOST_GROUPS) if group not in groups]
        return Call(kind, chance.choice(free), version)
    return Call(kind, chance.choice(there), version)


def compare(
    root: Path, groups: Groups, removed: set[int], pending: Call | None, figures: Figures
) -> Groups:
    """Compare the index with what was acknowledged, and count.

    Args:
        root: of the index.
        groups: as the acknowledged calls left them.
        removed: groups that an acknowledged call deleted.
        pending: the call in flight.
        figures: to count in.

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
    """Whether a call that changes something is there, whole."""
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


class _Searcher:
    """A process that searches all items of the index again and again."""

    def __init__(self, root: Path, seed: int) -> None:
        self._child, self._lines = _forked(lambda say: _search(root, seed, say))
        next(self._lines)  # it has begun

    def stop(self) -> tuple[int, int]:
        """Return how many searches there were, and how many of them were broken."""
        os.kill(self._child, signal.SIGTERM)
        counts = json.loads(list(self._lines)[-1])
        os.waitpid(self._child, 0)
        return counts[0], counts[1]


def _search(root: Path, seed: int, say: Callable[[str], None]) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    say("begun")
    chance = np.random.default_rng(seed)
    searches = broken = 0
    index: SearchIndex | None = None
    while not stopped:
        try:
            if index is None or index.generation != live_generation(root):
                if index is not None:
                    index.close()
                index = open_index(root)
            broken += not _sees_whole_groups(index, chance)
        except Exception:
            traceback.print_exc()
            broken += 1
        searches += 1
    say(json.dumps([searches, broken]))


def _sees_whole_groups(index: SearchIndex, chance: np.random.Generator) -> bool:
    everything = GROUP_ITEMS * 4 * _MOST_GROUPS
    hits = (
        TwoStageSearcher(index)
        .search(some_query(chance), "text", "images", top_k=everything, num_candidates=everything)
        .hits
    )
    versions: dict[int, list[int]] = {}
    for hit in hits:
        versions.setdefault(hit.metadata["group"], []).append(hit.metadata["version"])
    whole = all(len(each) == GROUP_ITEMS and len(set(each)) == 1 for each in versions.values())
    return whole and len({hit.id for hit in hits}) == len(hits) > 0


def _forked(work: Callable[[Callable[[str], None]], None]) -> tuple[int, Iterator[str]]:
    """Run in a forked process, for imports take longer than all that is measured.

    Args:
        work: given a function that says a line.

    Returns:
        The process, and its lines as they come.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(lambda line: _say(writing, line))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    return child, _lines_of(reading)


def _say(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())  # one write: a kill cannot cut the line


def _lines_of(descriptor: int) -> Iterator[str]:
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n")


if __name__ == "__main__":
    main()
