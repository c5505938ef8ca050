"""Results of a benchmark: rows of values with their peers and bars, as bench/results/NAME.json, NAME.md and, if wanted, NAME.svg."""

import json
import os
import pathlib
import platform
import statistics
import subprocess

import plot as plots

ROOT = pathlib.Path(__file__).resolve().parents[1]


def spread(values):
    return {"least": round(min(values), 2), "most": round(max(values), 2), "runs": len(values)}


def row(what, unit, values, bar=None, peers=None, judged=None, at_least=False):
    """`values` of Holdfast and of each peer, from one run. The bar is met when no value crosses it, or, `judged` "median", the median."""
    peers = peers or {}
    median = round(statistics.median(values), 2)
    worst = median if judged == "median" else min(values) if at_least else max(values)
    met = None if bar is None else bool(worst >= bar if at_least else worst <= bar)
    return {
        "what": what, "unit": unit, "holdfast": median, "peers": {name: round(statistics.median(v), 2) for name, v in peers.items()},
        "bar": bar, "met": met, "spread": spread(values), "peer_spreads": {name: spread(v) for name, v in peers.items()},
    }


def text(median, s):
    return f"{median}" if s["runs"] == 1 else f"{median} ({s['least']} to {s['most']})"


def show(rows):
    """Prints the table, and returns it."""
    table = ["| what | unit | Holdfast | beside it | bar | met |", "|---|---|---|---|---|---|"]
    for r in rows:
        beside = ", ".join(f"{peer}: {text(median, r['peer_spreads'][peer])}" for peer, median in r["peers"].items())
        bar = "" if r["bar"] is None else r["bar"]
        met = {None: "", True: "yes", False: "no"}[r["met"]]
        table.append(f"| {r['what']} | {r['unit']} | {text(r['holdfast'], r['spread'])} | {beside} | {bar} | {met} |")
    print("\n".join(table))
    return table


def write(name, method, rows, versions=None, plot=False):
    result = {
        "commit": subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip(),
        "machine": {"cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "load": round(os.getloadavg()[0], 1)},
        "versions": versions or {},
        "method": method,
        "rows": rows,
    }
    folder = ROOT / "bench" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    about = f"commit {result['commit'][:12]}"
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / f"{name}.md").write_text("\n".join(show(rows)) + f"\n\n{method}; {about}.\n")
    if plot:
        (folder / f"{name}.svg").write_text(plots.svg(f"bench/{name}, {about}: median, least to most; dashed: the bar", rows))
