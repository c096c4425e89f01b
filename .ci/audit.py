"""Say what pip-audit found: its JSON comes in, and the exit code is 1 if an installed package has an advisory.

pip-audit itself finds nothing known about packages that it could not look up, and calls that good news.
"""

import json
import sys


def main() -> int:
    """Print a line for each advisory, and how many packages were compared with any."""
    try:
        packages = json.load(sys.stdin)["dependencies"]
    except (ValueError, KeyError):
        print("Skipped: the published advisories cannot be reached from here, so nothing was compared with them.")
        return 0
    compared = [package for package in packages if "vulns" in package]
    for package in compared:
        for advisory in package["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "none yet"
            print(f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}")
    if not compared:
        print(f"Skipped: no advisories can be looked up from here for any of {len(packages)} packages.")
    else:
        print(f"{len(compared)} of {len(packages)} packages were compared with published advisories.")
    return int(any(package["vulns"] for package in compared))


if __name__ == "__main__":
    sys.exit(main())
