"""Invalid flags, addresses and ports, kubeconfigs and snapshot files."""

import base64

from tests.cli.wrong.facts import SECRET, Wrong, kubeconfig, wrong

COMMANDS: dict[str, Wrong] = {
    "no such command": wrong("drain", "No such command 'drain'"),
    "no such provider command": wrong("provider drain", "No such command 'drain'"),
    "no such liqo command": wrong("liqo drain", "No such command 'drain'"),
    "an unknown flag, run": wrong("run --nothing", "--nothing"),
    "an unknown flag, plan": wrong("plan --nothing", "--nothing"),
    "an unknown flag, explain": wrong("explain --nothing", "--nothing"),
    "an unknown flag, resume": wrong("resume --nothing", "--nothing"),
    "a pause without a duration": wrong("pause --for=soon", "--for", "'soon'"),
    "a window without an end": wrong("run --drain-window=09:00", "--drain-window", "'09:00'"),
    "a window in the environment": wrong(
        "run", "--drain-window", "'now'", environ={"RESCHEDULER_DRAIN_WINDOW": "10:00-11:00;now"}
    ),
    "a namespace in both lists": wrong("plan --namespaces=a --exclude-namespaces=a", "--exclude-namespaces", "'a'"),
    "an invalid controller of a waiver": wrong("resume --waive=web/x", "'web/x'"),
    "a maximum pause below the first pause": wrong(
        "run --failure-pause-max=1m", "--failure-pause-max=1m", "--failure-pause=10m"
    ),
    "an unknown flag, proxy": wrong("proxy --nothing", "--nothing"),
    "an unknown flag, provider": wrong("provider serve --nothing", "--nothing"),
    "an unknown flag, discovery": wrong("liqo discovery --nothing", "--nothing"),
    "an unknown flag, node-manager": wrong("liqo node-manager --nothing", "--nothing"),
    "an unexpected argument": wrong("version now", "unexpected extra argument"),
    "a value in the environment": wrong("run", "--v", "RESCHEDULER_V", environ={"RESCHEDULER_V": "high"}),
    "a duration in the environment": wrong(
        "run", "--node-drain-delay", "'soon'", environ={"RESCHEDULER_NODE_DRAIN_DELAY": "soon"}
    ),
    "a log format": wrong("run --log-format=xml", "--log-format", "'xml'"),
    "an interval without a unit": wrong("run --housekeeping-interval=10", "--housekeeping-interval", "'10'"),
    "a negative delay": wrong("run --node-drain-delay=-1s", "--node-drain-delay", "'-1s'"),
    "an invalid duration, plan": wrong("plan --planning-timeout=2x", "--planning-timeout", "'2x'"),
    "a label without a key": wrong("run --spot-node-label==x", "--spot-node-label", "'=x'"),
    "a label with spaces": wrong("plan --spot-node-label a\tb", "--spot-node-label"),
    "a switch": wrong("run --dry-run=maybe", "--dry-run", "'maybe'"),
    "which Jobs move": wrong("run --move-jobs=sometimes", "--move-jobs", "'sometimes'"),
    "an order of nodes": wrong("run --drain-order=newest", "--drain-order", "'newest'"),
    "an order in the environment": wrong(
        "explain", "--drain-order", "'price'", environ={"RESCHEDULER_DRAIN_ORDER": "price"}
    ),
    "an age in days": wrong("plan --max-node-age=1.5d", "--max-node-age", "'1.5d'"),
    "an age without a unit": wrong("report --max-node-age=30", "--max-node-age", "'30'"),
    "a headroom without %": wrong("plan --fallback-headroom=10", "--fallback-headroom", "'10'", "10%, or largest-pool"),
    "a negative headroom": wrong("run --fallback-headroom=-5%", "--fallback-headroom", "'-5%'", "10%, or largest-pool"),
    "a pool's label with a value": wrong("plan --spot-pool-label=zone=a", "--spot-pool-label", "'zone=a'"),
    "room from no provider": wrong("run --make-room=provider", "--make-room=provider", "--cloud-provider"),
    "how room is made": wrong("run --make-room=evict", "--make-room", "'evict'"),
    "no placeholder": wrong("run --max-placeholders=0", "--max-placeholders", "0"),
    "no spot node in an hour": wrong("run --max-spot-nodes-per-hour=0", "--max-spot-nodes-per-hour", "0"),
    "no time for room": wrong("run --room-timeout=0", "--room-timeout", "'0'"),
    "an image with a blank": wrong("run --placeholder-image=a\tb", "--placeholder-image"),
    "a share without a percent sign": wrong(
        "plan --max-share-per-spot-pool=50", "--max-share-per-spot-pool", "'50'", "50%"
    ),
    "a share of nothing": wrong(
        "run --max-share-per-spot-pool=0%", "--max-share-per-spot-pool", "'0%'", "from 1% to 100%"
    ),
    "a cooldown of pools": wrong("run --spot-pool-cooldown=-1m", "--spot-pool-cooldown", "'-1m'"),
    "a time to settle": wrong("run --spot-settle=10", "--spot-settle", "'10'"),
    "an output": wrong("plan -o xml", "'xml'"),
    "a port out of range": wrong("proxy --port=70000", "--port", "70000"),
    "a listener in use": wrong(
        "run --kubeconfig=kubeconfig --listen-address=127.0.0.1:{used}", "--listen-address 127.0.0.1:{used}", status=1
    ),
    "a listener without a port": wrong("run --listen-address=9235", "--listen-address", "'9235'"),
    "an unknown provider": wrong("run --cloud-provider=nowhere", "--cloud-provider", "'nowhere'"),
}

CLUSTERS: dict[str, Wrong] = {
    f"{name}, {command}": case
    for command in ("run", "plan", "explain")
    for name, case in {
        "kubeconfig missing": wrong(f"{command} --kubeconfig=absent", "kubeconfig absent"),
        "kubeconfig a directory": wrong(f"{command} --kubeconfig=folder", "kubeconfig folder"),
        "kubeconfig below a file": wrong(f"{command} --kubeconfig=kubeconfig/x", "kubeconfig kubeconfig/x"),
        "kubeconfig not UTF-8": wrong(f"{command} --kubeconfig=latin", "kubeconfig latin"),
        "kubeconfig no YAML": wrong(
            f"{command} --kubeconfig=k.yaml", "kubeconfig k.yaml", k_yaml=f"users: [{{token: {SECRET}"
        ),
        "kubeconfig a list": wrong(f"{command} --kubeconfig=k.yaml", "kubeconfig k.yaml", k_yaml=f"[{SECRET}]"),
        "kubeconfig empty": wrong(f"{command} --kubeconfig=k.yaml", "kubeconfig k.yaml", k_yaml=""),
        "no such context": wrong(f"{command} --kubeconfig=kubeconfig --context=there", "kubeconfig", "there"),
        "no current context": wrong(f"{command} --kubeconfig=k.yaml", "k.yaml", k_yaml=kubeconfig(current="")),
        "a server that is not a URL": wrong(
            f"{command} --kubeconfig=k.yaml", "k.yaml", "server", k_yaml=kubeconfig(server="nowhere at all")
        ),
        "a token file missing": wrong(
            f"{command} --kubeconfig=k.yaml", "k.yaml", "absent", k_yaml=kubeconfig(tokenFile="absent")
        ),
        "a client certificate missing": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            "absent",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1", **{"client-certificate": "absent", "client-key": "client.key"}
            ),
        ),
        "a client key of another certificate": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1", **{"client-certificate": "client.crt", "client-key": "server.key"}
            ),
        ),
        "a client key that is not base64": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            "client-key-data",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1", **{"client-certificate": "client.crt", "client-key-data": f"{SECRET}!"}
            ),
        ),
        "a client key that is not PEM": wrong(
            f"{command} --kubeconfig=k.yaml",
            "k.yaml",
            k_yaml=kubeconfig(
                server="https://127.0.0.1:1",
                **{
                    "client-certificate": "client.crt",
                    "client-key-data": base64.b64encode(f"{SECRET}-key".encode()).decode(),
                },
            ),
        ),
    }.items()
}

SNAPSHOTS: dict[str, Wrong] = {
    f"{name}, {command}": case
    for command in ("plan", "explain")
    for name, case in {
        "snapshot missing": wrong(f"{command} --snapshot=absent", "absent"),
        "snapshot a directory": wrong(f"{command} --snapshot=folder", "folder"),
        "snapshot not UTF-8": wrong(f"{command} --snapshot=latin", "latin", status=1),
        "snapshot is not JSON": wrong(f"{command} --snapshot=s.json", "s.json", status=1, s_json="{"),
        "snapshot of another kind": wrong(
            f"{command} --snapshot=s.json", "s.json", status=1, s_json='{"kind": "Status"}'
        ),
        "snapshot a number": wrong(f"{command} --snapshot=s.json", "s.json", status=1, s_json="1"),
        "snapshot cut off": wrong(f"{command} --snapshot=cut.gz", "cut.gz", status=1),
    }.items()
} | {
    "a node that is not there": wrong(
        "explain --snapshot=s.json node-x", "node-x", s_json='{"kind": "List", "items": []}'
    ),
    "a pod that is not there": wrong(
        "explain --snapshot=s.json ns/pod-x", "ns/pod-x", s_json='{"kind": "List", "items": []}'
    ),
}
