"""Families of generated tasks: each draws a task of one kind, with the files that it begins with and ends with, and a solution.

A task's subject, such as "amber-falcon", comes from its number and stands in the names of its files: so no two numbers of a family
are one task.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from clawpipe.play.environments.split import stable_hash
from clawpipe.play.environments.terminal.files import FOLDER, Entry, Tree, link, text


def _listed(words: str) -> list[str]:
    return words.split()


FIRST = _listed(
    "amber azure brisk calm clear cold coral crisp dark deep dusty early faint fast fresh gentle giant golden grand grey "
    "happy heavy hidden hollow icy ivory jolly keen large late light little lone lucky mellow misty narrow noble old olive "
    "pale plain proud quick quiet rapid red rough round royal rusty sharp silent silver simple small soft steady still "
    "swift tidy warm wide wild"
)
SECOND = _listed(
    "anchor arrow badger beacon birch bridge brook candle canyon cedar cliff cloud comet copper creek crow daisy dolphin "
    "dune eagle ember falcon fern field finch flint forest fox garden glacier harbor hawk heron hill island jasper kettle "
    "lake lantern lark maple marsh meadow mill moon moss mountain oak orchard otter owl pebble pine planet pond raven reef "
    "river robin shore spruce stone tower"
)
NUMBERS = len(FIRST) * len(SECOND)  # of tasks of a family
_WORDS = _listed(
    "apple bread butter carrot cheese coffee cotton curtain engine feather glass hammer honey jacket ladder lemon magnet "
    "marble melon mirror needle onion paper pepper pillow pocket ribbon rice rope saddle salt shovel silk spoon sugar table "
    "thread ticket wheel window"
)
_OUTPUTS = ("answer", "result", "output", "out", "report")


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        start: files that it begins with.
        wanted: what has to lie at these paths at its end, and does not at its beginning.
        kept: paths at which nothing may change.
        solution: commands that do it, one after the other.
    """

    instruction: str
    start: Tree
    wanted: Tree
    solution: Sequence[str]
    kept: Sequence[str] = field(default=())


Family = Callable[[random.Random, str], Task]


def make(family: str, number: int) -> Task:
    """Return a task of a family: equal for equal numbers, on every machine.

    Args:
        number: from 0 to `NUMBERS` - 1.
    """
    first, second = divmod(number, len(SECOND))
    return FAMILIES[family](random.Random(stable_hash(f"{family}/{number}")), f"{FIRST[first]}-{SECOND[second]}")


def _lines(draw: random.Random, least: int = 3, most: int = 9) -> list[str]:
    return [f"{draw.choice(_WORDS)} {draw.choice(_WORDS)} {draw.randint(1, 99)}" for _ in range(draw.randint(least, most))]


def _joined(lines: Iterable[object]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _names(draw: random.Random, subject: str) -> tuple[str, str]:
    """Return the names of an input and an output file."""
    return f"{subject}.{draw.choice(('txt', 'log', 'dat'))}", f"{draw.choice(_OUTPUTS)}.txt"


def _either(draw: random.Random, one: str, other: str) -> str:
    """Return one of two ways to ask."""
    return draw.choice((one, other))


def _filtered(draw: random.Random, subject: str, ask: str, lines: Sequence[object], made: Iterable[object], run: str) -> Task:
    """Return a task that makes a file of another one, which has to stay.

    Args:
        ask, run: with {source} and {target} for the files' names.
    """
    source, target = _names(draw, subject)
    names = {"source": source, "target": target}
    start, wanted = {source: text(_joined(lines))}, {target: text(_joined(made))}
    return Task(ask.format_map(names), start, wanted, [run.format_map(names)], kept=[source])


def write_word(draw: random.Random, subject: str) -> Task:
    name, word = f"{subject}.txt", draw.choice(_WORDS)
    ask = _either(draw, "Write the word {w} into the file {n}.", "Create a file {n} that holds the word {w}.")
    return Task(ask.format(w=word, n=name), {}, {name: text(word)}, [f"echo {word} > {name}"])


def append_word(draw: random.Random, subject: str) -> Task:
    (name, _), word, before = _names(draw, subject), draw.choice(_WORDS), _joined(_lines(draw))
    ask = _either(draw, "Add a line with the word {w} to the end of {n}.", "Append the word {w} to {n} as a last line.")
    wanted: dict[str, Entry] = {name: text(f"{before}{word}\n")}
    return Task(ask.format(w=word, n=name), {name: text(before)}, wanted, [f"echo {word} >> {name}"])


def rename(draw: random.Random, subject: str) -> Task:
    (old, _), new = _names(draw, subject), f"{draw.choice(_WORDS)}.txt"
    content = text(_joined(_lines(draw)))
    ask = _either(draw, "Rename {a} to {b}.", "Give the file {a} the new name {b}.")
    return Task(ask.format(a=old, b=new), {old: content}, {new: content, old: None}, [f"mv {old} {new}"])


def copy(draw: random.Random, subject: str) -> Task:
    (old, _), new = _names(draw, subject), f"{draw.choice(_WORDS)}.bak"
    content = text(_joined(_lines(draw)))
    ask = _either(draw, "Copy {a} to {b}.", "Make a copy of {a} with the name {b}.")
    return Task(ask.format(a=old, b=new), {old: content}, {new: content}, [f"cp {old} {new}"], kept=[old])


def delete(draw: random.Random, subject: str) -> Task:
    gone, *others = [f"{subject}.tmp", *(f"{word}.txt" for word in draw.sample(_WORDS, draw.randint(1, 3)))]
    ask = _either(draw, "Delete the file {n}.", "Remove {n}, and keep the other files.")
    start = {name: text(_joined(_lines(draw))) for name in (gone, *others)}
    return Task(ask.format(n=gone), start, {gone: None}, [f"rm {gone}"], kept=others)


def make_folder(draw: random.Random, subject: str) -> Task:
    inner = f"{subject}/{draw.choice(_WORDS)}"
    ask = _either(draw, "Make the folder {n}.", "Create a directory {n}, with its parent.")
    return Task(ask.format(n=inner), {}, {inner: dict(FOLDER)}, [f"mkdir -p {inner}"])


def move_all(draw: random.Random, subject: str) -> Task:
    end, names = draw.choice(("log", "csv", "md")), draw.sample(_WORDS, 4)
    moved, stays = [f"{name}.{end}" for name in names[:3]], f"{names[3]}.txt"
    files = {name: text(_joined(_lines(draw))) for name in (*moved, stays)}
    ask = _either(draw, "Move all .{e} files into the folder {d}.", "Put every .{e} file into the folder {d}, which exists.")
    wanted: dict[str, Entry] = {f"{subject}/{name}": files[name] for name in moved} | dict.fromkeys(moved)
    start = files | {subject: dict(FOLDER)}
    return Task(ask.format(e=end, d=subject), start, wanted, [f"mv *.{end} {subject}"], kept=[stays])


def count_lines(draw: random.Random, subject: str) -> Task:
    lines = _lines(draw, 3, 30)
    ask = _either(
        draw,
        "Count the lines of {source} and write the number into {target}.",
        "How many lines has {source}? Write it into {target}.",
    )
    return _filtered(draw, subject, ask, lines, [len(lines)], "wc -l < {source} > {target}")


def sort_lines(draw: random.Random, subject: str) -> Task:
    lines = draw.sample(_WORDS, draw.randint(4, 9))
    ask = draw.choice(
        ["Sort the lines of {source} into {target}.", "Write the lines of {source} in alphabetical order into {target}."]
    )
    return _filtered(draw, subject, ask, lines, sorted(lines), "sort {source} > {target}")


def unique_lines(draw: random.Random, subject: str) -> Task:
    lines = [draw.choice(_WORDS[:12]) for _ in range(draw.randint(6, 12))]
    ask = draw.choice(
        ["Write the distinct lines of {source}, sorted, into {target}.", "Sort {source} without duplicates into {target}."]
    )
    return _filtered(draw, subject, ask, lines, sorted(set(lines)), "sort -u {source} > {target}")


def search(draw: random.Random, subject: str) -> Task:
    word, lines = draw.choice(_WORDS), _lines(draw, 4, 9)
    lines[draw.randrange(len(lines))] = f"{word} {draw.randint(1, 99)}"
    ask = _either(
        draw,
        "Write the lines of {source} with the word %s into {target}.",
        "Find %s in {source} and write these lines into {target}.",
    )
    found = [line for line in lines if word in line]
    return _filtered(draw, subject, ask % word, lines, found, f"grep {word} {{source}} > {{target}}")


def first_lines(draw: random.Random, subject: str) -> Task:
    lines, count = _lines(draw, 6, 12), draw.randint(2, 5)
    ask = _either(draw, "Write the first %d lines of {source} into {target}.", "Put the top %d lines of {source} into {target}.")
    return _filtered(draw, subject, ask % count, lines, lines[:count], f"head -n {count} {{source}} > {{target}}")


def last_lines(draw: random.Random, subject: str) -> Task:
    lines, count = _lines(draw, 6, 12), draw.randint(2, 5)
    ask = _either(draw, "Write the last %d lines of {source} into {target}.", "Put the bottom %d lines of {source} into {target}.")
    return _filtered(draw, subject, ask % count, lines, lines[-count:], f"tail -n {count} {{source}} > {{target}}")


def column(draw: random.Random, subject: str) -> Task:
    rows = [[draw.choice(_WORDS), str(draw.randint(1, 99)), draw.choice(_WORDS)] for _ in range(draw.randint(3, 7))]
    place = draw.randint(1, 3)
    ask = _either(
        draw,
        "Write column %d of {source} into {target}; commas part the columns.",
        "Cut column %d out of {source}, which has commas, into {target}.",
    )
    lines = [",".join(row) for row in rows]
    made = [row[place - 1] for row in rows]
    return _filtered(draw, subject, ask % place, lines, made, f"cut -d, -f{place} {{source}} > {{target}}")


def upper_case(draw: random.Random, subject: str) -> Task:
    lines = _lines(draw)
    ask = draw.choice(
        ["Write {source} in capital letters into {target}.", "Turn the letters of {source} into upper case, in {target}."]
    )
    return _filtered(draw, subject, ask, lines, [line.upper() for line in lines], "tr a-z A-Z < {source} > {target}")


def add_numbers(draw: random.Random, subject: str) -> Task:
    numbers = [draw.randint(1, 99) for _ in range(draw.randint(3, 8))]
    ask = _either(
        draw,
        "Add up the numbers in {source} and write the sum into {target}.",
        "Write the sum of the numbers in {source} into {target}.",
    )
    run = "awk '{{s+=$1}} END {{print s}}' {source} > {target}"
    return _filtered(draw, subject, ask, numbers, [sum(numbers)], run)


def join_files(draw: random.Random, subject: str) -> Task:
    one, two, target = f"{subject}.txt", f"{draw.choice(_WORDS)}.txt", f"{draw.choice(_OUTPUTS)}.txt"
    start = {name: text(_joined(_lines(draw))) for name in (one, two)}
    both = text(start[one]["text"] + start[two]["text"])
    ask = _either(draw, "Join {a} and {b} into {c}, in this order.", "Write the content of {a}, then that of {b}, into {c}.")
    return Task(ask.format(a=one, b=two, c=target), start, {target: both}, [f"cat {one} {two} > {target}"], kept=[one, two])


def replace_word(draw: random.Random, subject: str) -> Task:
    (name, _), (old, new), lines = _names(draw, subject), draw.sample(_WORDS, 2), _lines(draw)
    lines[0] = f"{old} {draw.randint(1, 99)}"
    before = _joined(lines)
    ask = _either(draw, "Replace {o} by {w} in {n}.", "Change every {o} into {w} in the file {n}.")
    wanted = {name: text(before.replace(old, new))}
    return Task(ask.format(o=old, w=new, n=name), {name: text(before)}, wanted, [f"sed -i s/{old}/{new}/g {name}"])


def make_executable(draw: random.Random, subject: str) -> Task:
    name, script = f"{subject}.sh", f"#!/bin/sh\necho {draw.choice(_WORDS)}\n"
    ask = _either(draw, "Make {n} executable.", "Allow {n} to be run as a program.")
    return Task(ask.format(n=name), {name: text(script)}, {name: text(script, executable=True)}, [f"chmod +x {name}"])


def make_link(draw: random.Random, subject: str) -> Task:
    (name, _), new = _names(draw, subject), f"{draw.choice(_WORDS)}.link"
    ask = _either(draw, "Make a symbolic link {b} to {a}.", "Create {b} as a symbolic link that points to {a}.")
    start = {name: text(_joined(_lines(draw)))}
    return Task(ask.format(a=name, b=new), start, {new: link(name)}, [f"ln -s {name} {new}"], kept=[name])


_ALL: tuple[Family, ...] = (
    write_word, append_word, rename, copy, delete, make_folder, move_all, count_lines, sort_lines, unique_lines, search,
    first_lines, last_lines, column, upper_case, add_numbers, join_files, replace_word, make_executable, make_link,
)  # fmt: skip
FAMILIES: dict[str, Family] = {family.__name__.replace("_", "-"): family for family in _ALL}
