"""``make faults``; see `command`. Each forked daemon imports this module, so that it imports nothing by itself."""

if __name__ == "__main__":
    from tests.faults.command import main

    main()
