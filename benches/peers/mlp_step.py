#!/usr/bin/env python3
"""Compares a training step and a one-row prediction with PyTorch in one interleaved run.

    python3 benches/peers/mlp_step.py

Needs only the standard library. PyTorch is installed in benches/peers/.venv (created if absent) and
runs in worker processes. See README.md next to this file.
"""

import argparse
import json
import os
import re
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv"
BATCH, WIDTH = 200, 128
SHAPES = [(128, 5), (784, 9)]
PLAIN = "eager, broadcast, Adam default"
CPUS = os.cpu_count() or 1
# A measurement is disturbed if other processes used more than this fraction of one core.
DISTURBED = 0.05


def say(text):
    print(text, file=sys.stderr, flush=True)


def flops_per_step(inputs):
    forward = 2 * BATCH * (inputs * WIDTH + 2 * WIDTH * WIDTH)
    return 2 * forward + 2 * BATCH * 2 * WIDTH * WIDTH


# ---------------------------------------------------------------- setup


def venv_python():
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ensure_venv():
    wanted = (HERE / "requirements.txt").read_text()
    stamp = VENV / "requirements.installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say("creating the virtual environment (PyTorch is several GB, this takes minutes)")
    if not venv_python().exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check"]
    subprocess.run(pip + ["-r", str(HERE / "requirements.txt")], check=True, stdout=sys.stderr)
    stamp.write_text(wanted)


def build_ours(name="step_speed", package="mcdd-benches"):
    command = ["cargo", "build", "--release", "-p", package, "--bin", name]
    say(" ".join(command))
    run = subprocess.run(
        command + ["--message-format=json-render-diagnostics"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )
    if run.returncode:
        hint = "; --torch-only measures PyTorch alone" if name == "step_speed" else ""
        sys.exit(f"the program {name} did not build{hint}")
    for line in run.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    sys.exit(f"cargo named no executable for the program {name}")


# ---------------------------------------------------------------- other processes on the machine


def machine_cpu():
    """Seconds that all cores together were busy or stolen, or None if unknown."""
    try:
        with open("/proc/stat") as stat:
            ticks = [int(t) for t in stat.readline().split()[1:9]]
    except OSError:
        return None
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def own_cpu():
    return time.process_time()


def wait_for_quiet(limit):
    """Wait, at most limit seconds, until other processes use little for a while."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before, start = machine_cpu(), time.monotonic()
        if before is None:
            return
        time.sleep(0.25)
        if (machine_cpu() - before) / (time.monotonic() - start) <= DISTURBED:
            return


# ---------------------------------------------------------------- contenders


class Failed(Exception):
    pass


class Torch:
    """A PyTorch configuration in a worker process that runs until close()."""

    def __init__(self, name, spec, timeout, worker="torch_worker.py", python=None):
        self.name, self.key = name, ("us" if spec["task"] != "peak" else "gflops")
        self.log = tempfile.TemporaryFile(mode="w+")
        env = dict(os.environ)
        env.setdefault("TORCHINDUCTOR_CACHE_DIR", str(VENV / "inductor-cache"))
        self.process = subprocess.Popen(
            [str(python or venv_python()), str(HERE / worker), json.dumps(spec)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env,
        )
        try:
            ready = self.receive(timeout)
        except BaseException:
            self.close()
            raise
        self.version, self.trace = ready["ready"], ready["trace"]

    def receive(self, timeout):
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            raise Failed(f"no answer within {timeout:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            errors = re.findall(r"^\S*(?:Error|Exception)\b.*$", self.log.read(), re.M)
            raise Failed(errors[-1][:160] if errors else "the worker ended")
        return json.loads(line)

    def ask(self, request, timeout):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.receive(timeout)

    def measure(self, seconds):
        answer = self.ask({"seconds": seconds}, 120 + 20 * seconds)
        return answer.get(self.key, answer), answer["cpu"]

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def run_ours(command, timeout):
    """(stdout, stderr, CPU time) of a process that must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if run.returncode:
        raise Failed(f"{' '.join(command[1:])}: {run.stderr.strip()[-160:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return run.stdout, run.stderr, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Ours:
    """Our program, one process per measurement. It does its own warm-up and timing."""

    def __init__(self, name, executable, arguments, key, flops=None):
        self.name, self.command, self.key, self.flops = name, [executable, *arguments], key, flops
        self.takes_seconds = key != "us_per_row"

    def measure(self, seconds):
        command = self.command + (["--seconds", str(seconds)] if self.takes_seconds else [])
        stdout, _, cpu = run_ours(command, 120 + 20 * seconds)
        answer = json.loads(stdout.strip().splitlines()[-1])
        claimed = answer.get("flops_per_step")
        if self.flops and claimed and abs(claimed / self.flops - 1) > 1e-3:
            say(f"note: step_speed counts {claimed:.0f} FLOP per step, this script {self.flops}")
            self.flops = None
        return answer[self.key], cpu

    def close(self):
        pass


def measure_quietly(contender, seconds, options):
    """(value, quiet): repeated while other processes disturb it, up to the allowed number of times."""
    for attempt in range(options.retries + 1):
        before, own, start = machine_cpu(), own_cpu(), time.monotonic()
        value, cpu = contender.measure(seconds)
        wall = time.monotonic() - start
        if before is None:
            return value, True
        foreign = machine_cpu() - before - (own_cpu() - own) - cpu
        # The kernel counts in ticks of 10 ms. One tick per core is allowed.
        if foreign <= DISTURBED * wall + 0.01 * CPUS:
            return value, True
        if attempt < options.retries:
            wait_for_quiet(options.patience)
    return value, False


def interleave(label, contenders, options):
    """{name: [(value, quiet) per round]}; contenders that fail are dropped."""
    results = {c.name: [] for c in contenders}
    broken = set()
    for r in range(options.rounds):
        started = time.monotonic()
        # Rotate the order every round, so that no contender always follows the same one.
        shift = (r * 7) % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            if contender.name in broken:
                continue
            try:
                results[contender.name].append(measure_quietly(contender, options.seconds, options))
            except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                say(f"  {contender.name} failed: {error}")
                broken.add(contender.name)
                del results[contender.name]
        noisy = sum(not values[-1][1] for values in results.values() if values)
        best = min(
            ((v[-1][0], n) for n, v in results.items() if v and not n.startswith("peak")),
            default=(0, "-"),
        )
        say(
            f"{label}: round {r + 1}/{options.rounds}, {time.monotonic() - started:.0f} s, "
            f"fastest {best[1]} {best[0]:.1f} µs, disturbed {noisy} of {len(results)}"
        )
    return results


# ---------------------------------------------------------------- summaries


def summary(values):
    """Median over the quiet rounds, or over all if none was quiet; marked if fewer than 2 were quiet."""
    quiet = [v for v, q in values if q]
    marked = len(quiet) < min(2, len(values))
    used = quiet or [v for v, _ in values]
    return {
        "median": statistics.median(used), "min": min(used), "max": max(used),
        "rounds": len(values), "quiet_rounds": len(quiet), "marked": marked,
        "values": [v for v, _ in values], "quiet": [q for _, q in values],
    }


def ratios(theirs, ours):
    """How many times faster mcdd is: theirs / ours, per round."""
    pairs = [(t / o, tq and oq) for (t, tq), (o, oq) in zip(theirs, ours)]
    return summary(pairs)


def mark(s):
    return " !" if s["marked"] else ""


def times(s):
    return f"{s['median']:.2f} ({s['min']:.2f}-{s['max']:.2f}){mark(s)}"


# ---------------------------------------------------------------- the two comparisons


def step_variants():
    for distance in ("broadcast", "matmul"):
        for kind in ("eager", "compile", "autotune", "compile+adam"):
            for adam in ("default", "fused"):
                yield f"{kind}, {distance}, Adam {adam}", kind, distance, adam
        for kind in ("fullgraph", "fullgraph-cpp"):
            yield f"{kind}, {distance}, Adam in graph", kind, distance, "in graph"


def start_torch(variants, common, options, failures, label):
    started = []
    for name, kind, distance, adam in variants:
        if name != PLAIN and not re.search(options.variants, name):
            continue
        spec = dict(common, kind=kind, distance=distance, adam=adam)
        begin = time.monotonic()
        try:
            started.append(Torch(name, spec, options.compile_timeout))
            say(f"{label}: started {name} ({time.monotonic() - begin:.0f} s)")
        except Failed as error:
            failures.append(f"{label}: {name}: {error}")
            say(f"{label}: {name} does not start: {error}")
    return started


def compare_traces(contenders, failures, label):
    """Checks that every variant gives the same outputs to 1e-4 with the same seed and batches."""
    if not contenders:
        sys.exit(f"{label}: no PyTorch variant starts: {failures[-1] if failures else ''}")
    worst, kept = 0.0, []
    reference = contenders[0].trace
    for c in contenders:
        gap = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(reference, c.trace))
        if gap <= 1e-4:
            kept.append(c)
            worst = max(worst, gap)
        else:
            failures.append(f"{label}: {c.name}: results differ by {gap:.1e}, left out")
            c.close()
    return kept, worst


def check_same_loss(options):
    for inputs, classes in SHAPES:
        spec = {"task": "check", "input": inputs, "classes": classes, "threads": 1}
        worker = Torch("check", spec, options.compile_timeout)
        try:
            result, _ = worker.measure(0)
        finally:
            worker.close()
        a, b = result["losses"]
        if abs(a - b) > 1e-4 * max(1.0, abs(a)) or result["gradient"] > 1e-4:
            sys.exit(f"broadcast and matrix product disagree: {result}")
        say(f"input {inputs}: loss {a:.6f} by broadcast, {b:.6f} by matrix product, "
            f"gradients differ by {result['gradient']:.1e}: the same step")


def run_steps(inputs, classes, threads, executable, options, failures):
    label = f"input {inputs}, {threads} thread{'s' * (threads > 1)}"
    flops = flops_per_step(inputs)
    common = {"task": "step", "input": inputs, "classes": classes, "threads": threads}
    opened = start_torch(step_variants(), common, options, failures, label)
    try:
        torch, gap = compare_traces(opened, failures, label)
        peaks = [Torch("peak (PyTorch)", {"task": "peak", "threads": threads}, 120)]
        opened = opened + peaks
        contenders = torch + peaks
        version = torch[0].version
        if executable:
            sizes = ["--input", str(inputs), "--classes", str(classes), "--threads", str(threads)]
            contenders.append(Ours("mcdd", executable, sizes, "us_per_step", flops))
            arguments = ["--peak", "--threads", str(threads)]
            contenders.append(Ours("peak (mcdd)", executable, arguments, "gflops"))
            # A large product, as PyTorch's; the one before stays in the first-level cache.
            arguments = ["--product", "--threads", str(threads)]
            contenders.append(Ours("peak (mcdd, large)", executable, arguments, "gflops"))
        results = interleave(label, contenders, options)
    finally:
        for contender in opened:
            contender.close()
    # Disturbance can only make the peak smaller, so every round is used here. But a peak that was
    # never measured quietly is too small, and the fraction of it too large: then no target is decided.
    peak_rounds = {n: results.pop(n) for n in list(results) if n.startswith("peak")}
    peak_each = {n: max(v for v, _ in values) for n, values in peak_rounds.items() if values}
    peak_quiet = bool(peak_rounds) and all(any(q for _, q in v) for v in peak_rounds.values())
    return {
        "input": inputs, "classes": classes, "threads": threads, "torch": version,
        "flops_per_step": flops, "trace_gap": gap,
        "peaks": peak_each, "peak_gflops": max(peak_each.values(), default=None),
        "peak_quiet": peak_quiet,
        **compared(results),
    }


def run_predict(inputs, classes, executable, options, failures):
    label = f"one row, input {inputs}"
    common = {"task": "predict", "input": inputs, "classes": classes, "threads": 1}
    variants = [
        (f"{kind}, {distance}", kind, distance, "")
        for distance in ("broadcast", "matmul") for kind in ("eager", "compile", "freezing")
    ]
    everything = argparse.Namespace(**{**vars(options), "variants": ""})
    opened = start_torch(variants, common, everything, failures, label)
    try:
        torch, gap = compare_traces(opened, failures, label)
        contenders = list(torch)
        if executable:
            sizes = ["--predict-one", "--input", str(inputs), "--classes", str(classes)]
            contenders.append(Ours("mcdd", executable, sizes, "us_per_row"))
        results = interleave(label, contenders, options)
    finally:
        for contender in opened:
            contender.close()
    return {"input": inputs, "classes": classes, "trace_gap": gap, **compared(results)}


def compared(results):
    ours = results.get("mcdd")
    table = {}
    for name, values in results.items():
        if values:
            table[name] = summary(values)
            if ours and name != "mcdd":
                table[name]["times_faster"] = ratios(values, ours)
    peers = {n: s for n, s in table.items() if n != "mcdd"}
    # Disturbance only slows down, so a disturbed variant that still wins is the best one. But if any
    # variant is disturbed, another one could have won, and the best is not decided.
    best = min(peers, key=lambda n: peers[n]["median"], default=None)
    undecided = any(s["marked"] for s in peers.values())
    return {"contenders": table, "best_torch": best, "best_undecided": undecided}


# ---------------------------------------------------------------- output


def print_steps(group):
    peak = group["peak_gflops"]
    print(f"\n### Step: input {group['input']}, {group['classes']} classes, "
          f"{group['threads']} thread{'s' * (group['threads'] > 1)}\n")
    shares = ", ".join(f"{n[6:-1]} {v:.1f}" for n, v in group["peaks"].items())
    if peak:
        disturbed = "" if group["peak_quiet"] else " ! disturbed: too small, fractions of it too large"
        print(f"Peak matrix product: {peak:.1f} GFLOP/s (measured: {shares}){disturbed}. "
              f"{group['flops_per_step'] / 1e6:.1f} MFLOP per step.\n")
    print("| contender | µs/step | min-max | fraction of peak | mcdd is faster (min-max) | quiet rounds |")
    print("|---|---:|---:|---:|---:|---:|")
    order = sorted(group["contenders"].items(), key=lambda item: item[1]["median"])
    for name, s in order:
        rate = group["flops_per_step"] / s["median"] / 1e3
        share = f"{100 * rate / peak:.1f}%" if peak else "-"
        star = " (best PyTorch)" if name == group["best_torch"] else ""
        star = star + (" (plain eager)" if name == PLAIN else "")
        faster = times(s["times_faster"]) if "times_faster" in s else "-"
        print(f"| {name}{star} | {s['median']:.0f}{mark(s)} | {s['min']:.0f}-{s['max']:.0f} | {share} "
              f"| {faster} | {s['quiet_rounds']}/{s['rounds']} |")


def print_predict(group):
    print(f"\n### One row: input {group['input']}, {group['classes']} classes, 1 thread\n")
    print("| contender | µs/row | min-max | mcdd is faster (min-max) | quiet rounds |")
    print("|---|---:|---:|---:|---:|")
    for name, s in sorted(group["contenders"].items(), key=lambda item: item[1]["median"]):
        faster = times(s["times_faster"]) if "times_faster" in s else "-"
        print(f"| {name} | {s['median']:.2f}{mark(s)} | {s['min']:.2f}-{s['max']:.2f} "
              f"| {faster} | {s['quiet_rounds']}/{s['rounds']} |")


def print_verdicts(steps, predictions):
    rows = []
    for g in steps:
        ours = g["contenders"].get("mcdd")
        if not ours or g["threads"] != 2:
            continue
        where = f"input {g['input']}, 2 threads"
        for what, name, target in (("best PyTorch", g["best_torch"], 2.5), ("plain eager", PLAIN, 4.0)):
            if name in g["contenders"]:
                got = dict(g["contenders"][name]["times_faster"])
                got["marked"] |= name == g["best_torch"] and g["best_undecided"]
                rows.append((f"{where}: against {what}", f">= {target}", times(got), got, got["median"] >= target))
        if g["peak_gflops"]:
            # The best peak of all groups with the same number of threads.
            same = [h for h in steps if h["threads"] == g["threads"] and h["peak_gflops"]]
            share = g["flops_per_step"] / ours["median"] / 1e3 / max(h["peak_gflops"] for h in same)
            source = {"marked": ours["marked"] or not any(h["peak_quiet"] for h in same)}
            rows.append((f"{where}: fraction of peak", ">= 60%", f"{100 * share:.1f}%", source, share >= 0.6))
    for g in predictions:
        ours = g["contenders"].get("mcdd")
        if ours:
            value = ours["median"]
            rows.append((f"one row, input {g['input']}", "< 5 µs", f"{value:.2f} µs", ours, value < 5))
    if rows:
        print("\n### Targets\n\n| target | wanted | measured | reached |\n|---|---:|---:|---|")
        for what, wanted, got, source, reached in rows:
            # A number from a disturbed run decides nothing.
            verdict = "not decided: disturbed" if source["marked"] else "yes" if reached else "no"
            print(f"| {what} | {wanted} | {got} | {verdict} |")


def write_json(options, steps, predictions, failures):
    """Called after every group, so that an interrupted run keeps its results."""
    if options.json:
        figures = {"steps": steps, "predictions": predictions, "failures": failures}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--torch-only", action="store_true", help="do not measure mcdd")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.7, help="per measurement")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--inputs", type=int, nargs="+", default=[i for i, _ in SHAPES],
                   choices=[i for i, _ in SHAPES])
    p.add_argument("--variants", default="", metavar="REGEX",
                   help="only PyTorch variants whose name matches (plain eager always runs)")
    p.add_argument("--no-steps", action="store_true", help="skip the training steps")
    p.add_argument("--no-predict", action="store_true", help="skip one-row prediction")
    p.add_argument("--retries", type=int, default=3, help="of a measurement that was disturbed")
    p.add_argument("--patience", type=float, default=10.0,
                   help="seconds to wait for a quiet machine before each retry")
    p.add_argument("--compile-timeout", type=float, default=240.0, help="seconds per variant")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write every number to this file")
    options = p.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        p.error("--rounds and --seconds must be positive")
    return options


def main():
    options = arguments()
    sys.stdout.reconfigure(line_buffering=True)
    ensure_venv()
    executable = None if options.torch_only else build_ours()
    check_same_loss(options)
    shapes = [s for s in SHAPES if s[0] in options.inputs]
    failures, steps, predictions = [], [], []
    for inputs, classes in shapes if not options.no_steps else []:
        for threads in options.threads:
            group = run_steps(inputs, classes, threads, executable, options, failures)
            steps.append(group)
            print_steps(group)
            write_json(options, steps, predictions, failures)
    for inputs, classes in shapes if not options.no_predict else []:
        group = run_predict(inputs, classes, executable, options, failures)
        predictions.append(group)
        print_predict(group)
        write_json(options, steps, predictions, failures)
    print_verdicts(steps, predictions)
    if failures:
        print("\nVariants left out:\n")
        for failure in failures:
            print(f"- {failure}")


if __name__ == "__main__":
    main()
