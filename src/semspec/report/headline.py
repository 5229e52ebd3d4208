"""What a comparison says, in sentences that are built from its numbers: no claim that the intervals do not carry.

Of a few methods each gets its own sentence; many are put into groups. A speed is always the target's summed latency
over the method's (`speedup_total`). Computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semspec.bench.metrics import BASE, BY_KEY, order
from semspec.report.tables import ACROSS

Summary = Mapping[str, Any]


def headline(methods: Mapping[str, Summary]) -> list[str]:
    """The lines of the page's first box; the first is the most important one."""
    names = [n for n in order(list(methods)) if n not in (BASE, "draft")] or [n for n in methods if n != BASE]
    n = min(m["n"] for m in methods.values())
    problems = f"{n} problem{'s' if n != 1 else ''}" + ("; too few to settle small differences." if n < 50 else ".")
    if BASE in methods and len(methods) > ACROSS:
        return [*_groups({name: methods[name] for name in order(list(methods)) if name != BASE}), problems]
    lines, caveats = _each(methods, names)
    return [*lines, " ".join([*caveats, problems])]


def _each(methods: Mapping[str, Summary], names: list[str]) -> tuple[list[str], list[str]]:
    """A sentence for each method, and what these do not show."""
    lines: list[str] = []
    caveats: list[str] = []
    for name in names:
        m = methods[name]
        if m.get("speedup_total") is None:
            lines.append(f"{name}: Pass@1 {BY_KEY['pass_at_1'].text(m)} in {BY_KEY['latency_s'].text(m)} s a problem.")
            continue
        diff, _, ci = BY_KEY["pass_at_1_diff"].text(m).partition(" ")
        speed = BY_KEY["speedup_total"].text(m)
        lines.append(f"{name}: {speed} the speed of the target at {diff} points Pass@1 {ci}.")
        if m["speedup_total_ci"][0] <= 1 <= m["speedup_total_ci"][1]:
            caveats.append(f"The speed-up interval of {name} includes 1: no difference in speed is shown.")
        if m["pass_at_1_diff_ci"][0] <= 0 <= m["pass_at_1_diff_ci"][1]:
            caveats.append(f"The Pass@1 interval of {name} includes 0: no difference in quality is shown.")
    if not names:
        m = methods[BASE]
        lines.append(f"target: Pass@1 {BY_KEY['pass_at_1'].text(m)}; nothing was compared with it.")
    elif BASE not in methods:
        caveats.append("The target was not run, so there is no speed-up.")
    return lines, caveats


def _groups(methods: Mapping[str, Summary]) -> list[str]:
    """Who is shown to be faster than the target, who slower, who worse; the target itself is not among `methods`."""

    def speed(name: str) -> str:
        return f"{name} {BY_KEY['speedup_total'].text(methods[name]).partition(' ')[0]}"

    def points(name: str) -> str:
        return f"{name} {BY_KEY['pass_at_1_diff'].text(methods[name]).partition(' ')[0]}"

    known = {n: m for n, m in methods.items() if m.get("speedup_total_ci") and m.get("pass_at_1_diff_ci")}
    fastest = sorted(known, key=lambda n: -known[n]["speedup_total"])
    faster = [n for n in fastest if known[n]["speedup_total_ci"][0] > 1]
    slower = [n for n in fastest if known[n]["speedup_total_ci"][1] < 1]
    worse = [n for n in known if known[n]["pass_at_1_diff_ci"][1] < 0]
    better = [n for n in known if known[n]["pass_at_1_diff_ci"][0] > 0]
    won = [n for n in faster if n not in worse and n != "draft"]
    if won:
        faster_by, better_by = (BY_KEY[key].text(known[won[0]]) for key in ("speedup_total", "pass_at_1_diff"))
        first = f"{won[0]}: {faster_by} the speed of the target at {better_by} points Pass@1."
    else:
        first = (
            "No method, the draft alone aside, is shown to be faster than the target without a shown loss of quality."
        )
    unsettled = [n for n in fastest if n not in faster and n not in slower]
    lines = [
        ("Shown to be faster than the target", faster, speed),
        ("No difference in speed is shown", unsettled, speed),
        ("Shown to be slower", slower, speed),
        ("Shown to be better in Pass@1 (points)", better, points),
        ("Shown to be worse in Pass@1 (points)", worse, points),
    ]
    return [first, *(f"{title}: {', '.join(map(text, names))}." for title, names, text in lines if names)]
