"""The two counters of savings. They show the ledger, which survives restarts, and never decrease."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from rescheduler.planning.money.savings import Savings


class SavingsSeries(Collector):
    """The counters as they are scraped: 0 until the ledger is known."""

    def __init__(self, prefix: str, currency: str) -> None:
        self._prefix = prefix
        self._node_hours = 0.0
        self._money: dict[str, float] = {currency: 0.0}

    def show(self, total: Savings) -> None:
        """Set the counters to *total*. A lower value, after the end of a saving was corrected, is ignored."""
        self._node_hours = max(self._node_hours, total.node_hours)
        money = dict(self._money)
        for currency, amount in total.money.items():
            money[currency] = max(money.get(currency, 0.0), float(amount))
        self._money = money  # scrapes run on other threads

    def collect(self) -> Iterable[Metric]:
        money = CounterMetricFamily(
            self._prefix + "savings_money",
            "Money saved by removed on-demand nodes, as in the ledger of savings.",
            labels=["currency"],
        )
        for currency, amount in sorted(self._money.items()):
            money.add_metric([currency], amount)
        hours = "Node-hours of on-demand nodes saved, as in the ledger of savings."
        return (money, CounterMetricFamily(self._prefix + "savings_nodehours", hours, value=self._node_hours))
