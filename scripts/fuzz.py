"""Tries random configurations of the API and malformed command lines: each must give a result or a clear error.

    python scripts/fuzz.py [API_CASES] [CLI_CASES] [WRONG_ARGUMENTS] [--seed SEED]   (2000, 500, 3000 by default)

For the API (`fuzz_api.py`) an outcome is right if it is a result that passes `check_result` there, or an error that a
line of unibio raises with a message of its own. On the command line (`fuzz_cli.py`) it is right if the exit code is 0
or 2, there is no traceback, no file outside of the output folder was changed, none of the user's own inside of it was
lost, and a command line or folder that is nonsense does not end with 0. Wrong arguments (`fuzz_misuse.py`) put each of
some eighty odd values in the place of each argument of the public calls, where a table says that it cannot be one:
right is only an error that names what is wrong. Any other outcome is a finding, and so is a case that computes for more
than three minutes or does not end within an hour; where it hangs is printed. The exit code is 1 if there are findings.
"""

import argparse
import collections
import itertools
import os
import sys
import time

import fuzz_api
import fuzz_cli
import fuzz_misuse

# Nearly all of the time is compilation; such programs run slowly.
QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)


def main() -> int:
    """Tries both parts and prints findings and counts of outcomes; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("api", nargs="?", type=int, default=2000, help="configurations of the API")
    parser.add_argument("cli", nargs="?", type=int, default=500, help="command lines and folders")
    parser.add_argument("misuse", nargs="?", type=int, default=3000, help="calls with a wrong argument")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"  # of the processes that try the cases
    findings = 0
    parts = ("API", fuzz_api, chosen.api), ("command line", fuzz_cli, chosen.cli)
    for title, part, cases in (*parts, ("wrong arguments", fuzz_misuse, chosen.misuse)):
        began = time.perf_counter()
        outcomes: collections.Counter[str] = collections.Counter()
        for outcome, finding in itertools.chain.from_iterable(part.try_cases(cases, chosen.seed)):
            outcomes[outcome] += 1
            if finding:
                findings += 1
                print(f"FOUND ({title}): {finding}\n", flush=True)
            if outcomes.total() % 50 == 0:
                print(f"{title}: {outcomes.total()} of {cases}, {findings} findings", file=sys.stderr, flush=True)
        counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        print(f"{title}: {cases} cases in {time.perf_counter() - began:.0f} s: {counts or 'none'}", flush=True)
    print(f"{findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
