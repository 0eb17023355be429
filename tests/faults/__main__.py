"""``make faults``; see `command`. Every forked daemon imports this module, so keep it free of heavy imports."""

if __name__ == "__main__":
    from tests.faults.command import main

    main()
