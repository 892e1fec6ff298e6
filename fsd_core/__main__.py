"""``python -m fsd_core``."""

from fsd_core.cli import main

if __name__ == "__main__":
    main()
