"""Invalid files and flags of each cloud provider and of `provider serve`.

The messages of all other mistakes are in the tables of `tests/providers/test_*config.py` and `test_liqo.py`.
"""

from collections.abc import Mapping

from tests.cli.wrong.facts import CHERRY, FILE, GLOBAL, NODES, POOL, SECRET, SERVE, SPC, Wrong, wrong


def _of_files(provider: str, environ: Mapping[str, str], files: str = "") -> dict[str, Wrong]:
    """Yield errors that the file of any provider can have."""
    start = f"{SERVE}={provider}{files} --cloud-config"
    return {
        f"{provider}: file missing": wrong(f"{start}=absent", "cloud configuration absent", environ=environ),
        f"{provider}: file a directory": wrong(f"{start}=folder", "cloud configuration folder", environ=environ),
        f"{provider}: file below a file": wrong(f"{start}=empty/x", "cloud configuration empty/x", environ=environ),
        f"{provider}: file not UTF-8": wrong(f"{start}=latin", "cloud configuration latin", "UTF-8", environ=environ),
        f"{provider}: an unknown key": wrong(
            f"{start}=cloud.yaml",
            "cloud configuration cloud.yaml",
            "pol",
            environ=environ,
            cloud_yaml=GLOBAL + "pol = 1" if provider == "cherryservers" else "pol: 1",
        ),
        f"{provider}: broken": wrong(
            f"{start}=cloud.yaml", "cloud configuration cloud.yaml", "line 1", environ=environ, cloud_yaml="{[ :"
        ),
    }


PROVIDERS: dict[str, Wrong] = {
    **_of_files("cloudpool", {}),
    **_of_files("externalgrpc", {}),
    **_of_files("cherryservers", CHERRY, f" {NODES}"),
    **_of_files("stackpoint", SPC),
    **_of_files("liqo", {}),
    **_of_files("aws", {}),
    "none: groups": wrong(f"{SERVE}=none {NODES}", "--nodes=1:2:pool1", "'none'"),
    "cloudpool: no file": wrong(f"{SERVE}=cloudpool", "--cloud-config FILE is missing"),
    # -- aws
    "aws: groups on the command line": wrong(f"{SERVE}=aws {NODES}", "--nodes=1:2:pool1", "'aws'"),
    "aws: a cluster on the command line": wrong(f"{SERVE}=aws --cluster-name=prod", "--cluster-name=prod", "'aws'"),
    **{
        f"aws: {name}": wrong(f"{SERVE}=aws {FILE}", "cloud configuration cloud.yaml", *names, cloud_yaml=text)
        for name, text, *names in (
            ("names and tags", "groups: [a]\ntags: {a: b}", "groups and tags: expected only one of them"),
            ("a cluster and names", "groups: [a]\nclusterName: b", "groups and clusterName: expected only one"),
            ("a name twice", "groups: [a, a]", "groups: expected at most 500 different names"),
            ("no tag", "tags: {}", "tags: expected at least one key"),
            ("a key with a typing error", "regions: eu-west-1", "regions", "did you mean region"),
            ("a region of another form", "region: 'eu west'", "region: expected a region such as eu-west-1"),
            ("an endpoint without TLS", "endpoint: {url: 'http://aws.example'}", "endpoint.url: expected https"),
            ("a user", "endpoint: {url: 'https://u:p@aws.example'}", "endpoint.url: expected"),
            ("a token", "endpoint: {url: 'https://aws.example', tokenFile: two}", "endpoint: expected no username"),
        )
    },
    # -- cloudpool
    "cloudpool: a token that is missing": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "cloud.yaml",
        "pools[0].backend.tokenFile",
        "absent",
        cloud_yaml=POOL.format(more=", tokenFile: absent"),
    ),
    "cloudpool: a token that is empty": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.tokenFile",
        "empty",
        cloud_yaml=POOL.format(more=", tokenFile: empty"),
    ),
    "cloudpool: a token of two lines": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.tokenFile",
        "two",
        cloud_yaml=POOL.format(more=", tokenFile: two"),
    ),
    "cloudpool: a password that is a directory": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.passwordFile",
        "folder",
        cloud_yaml=POOL.format(more=", username: me, passwordFile: folder"),
    ),
    "cloudpool: a CA that is not PEM": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.caFile",
        "secret",
        cloud_yaml=POOL.format(more=", caFile: secret"),
    ),
    "cloudpool: a key of another certificate": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.clientCertFile",
        "client.crt",
        cloud_yaml=POOL.format(more=", clientCertFile: client.crt, clientKeyFile: server.key"),
    ),
    "cloudpool: a key with a password": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "clientKeyFile",
        "encrypted.key",
        cloud_yaml=POOL.format(more=", clientCertFile: client.crt, clientKeyFile: encrypted.key"),
    ),
    "cloudpool: a password in the URL": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "pools[0].backend.url",
        cloud_yaml=f"pools: [{{id: a, backend: {{url: 'http://me:{SECRET}@a'}}}}]",
    ),
    "cloudpool: a quantity": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "cloud.yaml",
        "pools[0].template.capacity",
        "lots",
        cloud_yaml="pools: [{id: a, backend: {url: 'http://a'}, template: {capacity: {cpu: lots}}}]",
    ),
    "cloudpool: an effect": wrong(
        f"{SERVE}=cloudpool {FILE}",
        "$.pools[0].template.taints[0].effect",
        cloud_yaml=POOL.format(more="}, template: {capacity: {}, taints: [{key: k, effect: no}]"),
    ),
    # -- externalgrpc
    "externalgrpc: a certificate that is missing": wrong(
        f"{SERVE}=externalgrpc {FILE}",
        "absent",
        cloud_yaml="address: a:1\ncert: absent\nkey: client.key\ncacert: ca.pem",
    ),
    "externalgrpc: a key of another certificate": wrong(
        f"{SERVE}=externalgrpc {FILE}",
        "server.key",
        cloud_yaml="address: a:1\ncert: client.crt\nkey: server.key\ncacert: ca.pem",
    ),
    "externalgrpc: a CA that is not PEM": wrong(
        f"{SERVE}=externalgrpc {FILE}",
        "secret",
        cloud_yaml="address: a:1\ncert: client.crt\nkey: client.key\ncacert: secret",
    ),
    # -- cherryservers
    "cherryservers: no token": wrong(f"{SERVE}=cherryservers {NODES} {FILE}", "CHERRY_AUTH_TOKEN", cloud_yaml=GLOBAL),
    "cherryservers: a token of two lines": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "CHERRY_AUTH_TOKEN",
        environ=CHERRY | {"CHERRY_AUTH_TOKEN": f"{SECRET}\n{SECRET}"},
        cloud_yaml=GLOBAL,
    ),
    "cherryservers: an address": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "CHERRY_API_URL",
        environ=CHERRY | {"CHERRY_API_URL": f"https://me:{SECRET}@api"},
        cloud_yaml=GLOBAL,
    ),
    "cherryservers: cloud-init that is not base64": wrong(
        f"{SERVE}=cherryservers {NODES} {FILE}",
        "line 4",
        "cloudinit",
        "base64",
        environ=CHERRY,
        cloud_yaml=f"{GLOBAL}cloudinit = {SECRET}!",
    ),
    # -- stackpoint
    "stackpoint: no token": wrong(f"{SERVE}=spc", "CLUSTER_API_TOKEN", environ={**SPC, "CLUSTER_API_TOKEN": ""}),
    "stackpoint: an address": wrong(
        f"{SERVE}=spc", "SPC_API_BASE_URL", environ=SPC | {"SPC_API_BASE_URL": f"http://me:{SECRET}@a"}
    ),
    # -- the listener
    "serve: an address": wrong("provider serve --address=8086", "--address", "'8086'"),
    "serve: an address in use": wrong(
        "provider serve --address=127.0.0.1:{used}", "--address 127.0.0.1:{used}", status=1
    ),
    "serve: two of three files": wrong("provider serve --cert=server.crt --key-cert=server.key", "--ca-cert"),
    **{
        f"serve: plain text on {address or 'every interface'}": wrong(
            f"provider serve --address={address}:0", "--cert, --key-cert and --ca-cert", "or --insecure-plaintext"
        )
        for address in ("", "0.0.0.0", "[::]")
    },
    "serve: plain text and certificates": wrong(
        "provider serve --address=127.0.0.1:0 --insecure-plaintext --cert=server.crt", "--insecure-plaintext", "without"
    ),
    "serve: a certificate that is missing": wrong(
        "provider serve --cert=absent --key-cert=server.key --ca-cert=ca.pem", "--cert absent"
    ),
    "serve: a certificate that is not PEM": wrong(
        "provider serve --cert=secret --key-cert=server.key --ca-cert=ca.pem", "--cert secret"
    ),
    "serve: a key of another certificate": wrong(
        "provider serve --cert=server.crt --key-cert=client.key --ca-cert=ca.pem", "--key-cert client.key"
    ),
    "serve: an authority that is a directory": wrong(
        "provider serve --cert=server.crt --key-cert=server.key --ca-cert=folder", "--ca-cert folder"
    ),
}
