from tests.direct import no_proxies

__all__ = ["no_proxies"]
