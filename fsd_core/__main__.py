"""``python -m fsd_core``."""

from fsd_core.cli.commands import main

if __name__ == "__main__":
    main()
