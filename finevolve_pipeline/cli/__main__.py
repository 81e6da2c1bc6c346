"""`python -m finevolve_pipeline.cli` is the same as `finevolve`."""

from finevolve_pipeline.cli import main

if __name__ == "__main__":
    main()
