"""Invalid flags of discovery and of the node manager, and invalid groups."""

from tests.cli.wrong.facts import DISCOVERY, MANAGER, PEMS, SECRET, Wrong, wrong

GROUP = "{id: A, maxSize: 1, resources: {min: {cpu: 1, memory: 1Gi, pods: 10}}}"

LIQO: dict[str, Wrong] = {
    f"{name}, {start.split()[1]}": case
    for start in (MANAGER, DISCOVERY)
    for name, case in {
        "no certificates": wrong(start, "--tls-cert, --tls-key and --tls-client-ca"),
        "two of three": wrong(f"{start} --tls-cert=server.crt --tls-key=server.key", "--tls-client-ca"),
        "plain text on another address": wrong(
            start.replace("127.0.0.1:0", "0.0.0.0:0") + " --insecure-plaintext", "--insecure-plaintext", "loopback"
        ),
        "certificate missing": wrong(f"{start} {PEMS.replace('server.crt', 'absent')}", "--tls-cert absent"),
        "certificate is not PEM": wrong(f"{start} {PEMS.replace('server.crt', 'secret')}", "--tls-cert secret"),
        "key of another certificate": wrong(
            f"{start} {PEMS.replace('server.key', 'client.key')}", "--tls-key client.key"
        ),
        "authority is not PEM": wrong(f"{start} {PEMS.replace('ca.pem', 'secret')}", "--tls-client-ca secret"),
        "database a directory": wrong(f"{start} {PEMS} --database=folder", "--database folder"),
        "database in no folder": wrong(f"{start} {PEMS} --database=absent/db", "--database absent/db"),
        "database no database": wrong(f"{start} {PEMS} --database=ca.pem", "--database ca.pem"),
        "listener in use": wrong(
            f"{start} {PEMS} --database=db".replace("--listen=127.0.0.1:0", "--listen=127.0.0.1:{used}"),
            "--listen 127.0.0.1:{used}",
            status=1,
        ),
        "listener without a port": wrong(f"{start} {PEMS} --listen=9010", "--listen", "'9010'"),
        "kubeconfig missing": wrong(f"{start} {PEMS} --database=db --kubeconfig=absent", "kubeconfig absent"),
    }.items()
} | {
    "expiry": wrong(f"{DISCOVERY} --expire-after=5", "--expire-after", "'5'"),
    "discovery's URL": wrong(f"{MANAGER} {PEMS} --database=db --discovery-url=nowhere", "--discovery-url"),
    "a secret in discovery's URL": wrong(
        f"{MANAGER} {PEMS} --database=db --discovery-url=https://me:{SECRET}@a", "--discovery-url"
    ),
    "groups missing": wrong(f"{MANAGER} {PEMS} --database=db --config=absent", "configuration absent"),
    "groups a directory": wrong(f"{MANAGER} {PEMS} --database=db --config=folder", "configuration folder"),
    "groups not UTF-8": wrong(f"{MANAGER} {PEMS} --database=db --config=latin", "configuration latin"),
    "groups of a wrong type": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml", "configuration g.yaml", "$.groups", g_yaml="groups: 1"
    ),
    "a group that occurs twice": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml",
        "configuration g.yaml",
        "groups[1]",
        g_yaml=f"groups: [{GROUP}, {GROUP}]",
    ),
    "a group whose maximum is below its minimum": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml",
        "configuration g.yaml",
        "groups[0]",
        g_yaml="groups: [{id: A, minSize: 2, maxSize: 1, resources: {min: {cpu: 1, memory: 1Gi, pods: 10}}}]",
    ),
    "group with a bad quantity": wrong(
        f"{MANAGER} {PEMS} --database=db --config=g.yaml",
        "configuration g.yaml",
        "groups[0]",
        "lots",
        g_yaml="groups: [{id: A, maxSize: 1, resources: {min: {cpu: lots, memory: 1Gi, pods: 10}}}]",
    ),
    "liqoctl missing": wrong(f"{MANAGER} {PEMS} --database=db --liqoctl=absent", "--liqoctl absent"),
}
