"""Tries random configurations of the API and malformed command lines: each must give a result or a clear error.

    python scripts/fuzz.py [API_CASES] [CLI_CASES] [--seed SEED]     (2000 and 300 by default)

For the API (`fuzz_api.py`) an outcome is right if it is a result that passes `check_result` there, or a ValueError or
TypeError that a line of unibio raises with a message of its own. On the command line (`fuzz_cli.py`) it is right if the
exit code is 0 or 2, there is no traceback, and no file outside of the output folder was changed. Any other outcome is a
finding. A configuration that takes too long ends the script and prints where it hangs. The exit code is 1 if there are
findings.
"""

import argparse
import collections
import sys
import time

import fuzz_api
import fuzz_cli


def main() -> int:
    """Tries both parts and prints findings and counts of outcomes; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("api", nargs="?", type=int, default=2000, help="configurations of the API")
    parser.add_argument("cli", nargs="?", type=int, default=300, help="command lines")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    findings = 0
    for title, part, cases in (("API", fuzz_api, chosen.api), ("command line", fuzz_cli, chosen.cli)):
        began = time.perf_counter()
        outcomes: collections.Counter[str] = collections.Counter()
        for outcome, finding in part.try_cases(cases, chosen.seed):
            outcomes[outcome] += 1
            if finding:
                findings += 1
                print(f"FOUND ({title}): {finding}\n", flush=True)
        counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        print(f"{title}: {cases} cases in {time.perf_counter() - began:.0f} s: {counts or 'none'}", flush=True)
    print(f"{findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
