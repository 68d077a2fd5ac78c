"""`python -m pdadmm`."""

from pdadmm.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
