"""The program `pdadmm`, also as `python -m pdadmm`."""

import os

from pdadmm import openmp


def main() -> int:
    """Run the command line in an environment that is settled before torch is loaded."""
    os.environ.update(openmp.settings())
    from pdadmm.cli.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
