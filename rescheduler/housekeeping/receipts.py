"""Read the ledger of savings that a daemon keeps."""

from rescheduler.errors import InputError
from rescheduler.kube.memory import Absent, MemoryStore, Stored, UnreadableMemory
from rescheduler.planning.money.savings import SavingsLedger
from rescheduler.planning.money.savings_form import load_ledger


def stored_ledger(store: MemoryStore) -> SavingsLedger:
    """Return the ledger in *store*. Raises Retryable, and InputError if the ledger is missing or unreadable."""
    match store.read():
        case Stored(content):
            try:
                return load_ledger(content)
            except InputError as error:
                raise InputError(f"{store}: {error}") from error
        case Absent(version):
            advice = "the daemon writes it after its first drain; see --namespace and --savings-name"
            raise InputError(f"{store}: {'empty' if version else 'not found'}: {advice}")
        case UnreadableMemory(why):
            raise InputError(why)
