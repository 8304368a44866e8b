"""Random configurations of the public API and malformed command lines and files: a result or a clear error, never more.

    python scripts/fuzz.py [API_CASES] [CLI_CASES] [--seed SEED]     (2000 and 300 by default)

An outcome is right if it is a sound result (`fuzz_api.py` says what that is) or an error of the library's own:
ValueError or TypeError, raised by a line of unibio with a sentence of ours; on the command line exit code 0 or 2, no
traceback, and no file touched outside of the output folder (`fuzz_cli.py`). A configuration that takes longer than its
limit ends the script with the place where it hangs. Exit code 1 if anything else was found.
"""

import argparse
import collections
import sys
import time

import fuzz_api
import fuzz_cli


def main() -> int:
    """Runs both parts and prints what happened."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("api", nargs="?", type=int, default=2000, help="configurations of the API")
    parser.add_argument("cli", nargs="?", type=int, default=300, help="command lines")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    findings = 0
    for title, part, cases in (("API", fuzz_api, chosen.api), ("command line", fuzz_cli, chosen.cli)):
        began = time.perf_counter()
        outcomes: collections.Counter[str] = collections.Counter()
        for outcome, finding in part.run(cases, chosen.seed):
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
