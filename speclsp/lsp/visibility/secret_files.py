"""Names of files that hold secrets: nothing is suggested in them, and no model sees any of their text.

The names alone decide, and no setting turns this off; completion.disabled_globs adds to it. A pattern is compared with
the end of the path, as many parts of it as the pattern has, without regard to case: ".ssh/*" is any file
right in any directory .ssh. Copies left beside a file (.env~, id_rsa.bak) count as the file.
docs/privacy.md has the table; a test compares.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Mapping

from speclsp.lsp.documents.uri_paths import file_path

KINDS: Mapping[str, tuple[str, ...]] = {
    "environments": (".env", ".env.*", "*.env", ".envrc", ".flaskenv", ".dev.vars"),
    "PEM": ("*.pem",),
    "private keys": ("*.key", "*.p8", "*.pk8"),
    "SSH keys": ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*_rsa", "*_ed25519", "ssh_host_*_key"),
    "SSH's directory": (".ssh/*",),
    "PKCS #12": ("*.p12", "*.pfx"),
    "Java key stores": ("*.jks", "*.keystore", "*.bks", "*.jceks"),
    "KeePass": ("*.kdbx", "*.kdb"),
    "PuTTY keys": ("*.ppk",),
    "OpenPGP": ("*.asc", "*.gpg", "*.pgp", "secring.*", ".gnupg/*", "private-keys-v1.d/*"),
    "age": ("*.age", "age/keys.txt"),
    "netrc": (".netrc", "_netrc", ".authinfo"),
    "PostgreSQL": (".pgpass", "pgpass.conf", ".pg_service.conf"),
    "MySQL": (".my.cnf", ".mylogin.cnf"),
    "npm and Yarn": (".npmrc", ".yarnrc", ".yarnrc.yml"),
    "PyPI": (".pypirc",),
    "htpasswd": (".htpasswd", ".htdigest", "htpasswd"),
    "AWS": (".aws/*", ".boto", ".s3cfg"),
    "Google Cloud": (
        "service-account*.json",
        "service_account*.json",
        "serviceaccount*.json",
        "gcp*key*.json",
        "gcloud/*.json",
        "application_default_credentials.json",
        "client_secret*.json",
    ),
    "Azure": (".azure/*", "*.publishsettings", "azureauth.json"),
    "Docker": (".docker/config.json", ".dockercfg", ".dockerconfigjson"),
    "Kubernetes": (".kube/*", "kubeconfig", "*.kubeconfig", "kubeconfig.*"),
    "Terraform": ("*.tfvars", "*.tfvars.json", "*.tfstate", "*.tfstate.backup", ".terraformrc", "terraform.rc"),
    "Git and its hosts": (".git-credentials", ".git/config", "git/credentials", "gh/hosts.yml", "github cli/hosts.yml"),
    "secrets": (
        *(f"secrets.{suffix}" for suffix in ("env", "ini", "txt", "xml", "properties", "conf", "cfg", "toml")),
        *(f"*secret*.{suffix}" for suffix in ("yml", "yaml", "json")),
        ".secret",
        ".secrets",
        ".secrets/*",
    ),
    "credentials": (
        "credentials",
        "*.credentials",
        *(f"credentials*.{suffix}" for suffix in ("json", "yml", "yaml", "toml", "ini", "xml", "csv", "txt")),
        "passwords.txt",
        "passwords.csv",
    ),
    "Rails": ("master.key", "*.yml.enc"),
    "Vault": (".vault-token", "*vault*.yml", "*vault*.yaml", ".vault_pass*", "vault_pass*"),
    "Maven and Gradle": (".m2/settings.xml", "settings-security.xml", ".gradle/gradle.properties"),
    "Cargo": (".cargo/credentials", ".cargo/credentials.toml"),
    "RubyGems, Composer, NuGet": (".gem/credentials", ".bundle/config", "auth.json", "nuget.config"),
    "WordPress": ("wp-config.php",),
    "networks": ("*.ovpn", "wg[0-9]*.conf", "wpa_supplicant.conf"),
    "apps": ("google-services.json", "googleservice-info.plist", "*.mobileprovision", "key.properties"),
    "histories": (".*_history", ".histfile", "consolehost_history.txt"),
    "Windows": ("unattend.xml", "autounattend.xml", "sysprep.inf", "*.rdp", "*.rdg", "winscp.ini"),
    "speclsp's own": ("speclsp/config.toml",),
}
# Made to be shown.
PASS = (".env.example", ".env.sample", ".env.template", ".env.dist", "example.env", "sample.env", "template.env")

_COPY = re.compile(r"(?:~|\.(?:bak|backup|old|orig|save|swp|swo|tmp|copy)|[. ])\Z")
_COPIES = 4  # endings of that kind that are taken off
_LONGEST = 512  # characters of a path's end that are looked at


def pattern_of(uri: str) -> str:
    """The pattern of a file that holds secrets, from its URI or path; "" for any other."""
    return _pattern_of(file_path(uri)[-_LONGEST:].lower())


@functools.lru_cache(maxsize=1024)
def _pattern_of(path: str) -> str:
    above, _, name = path.rpartition("/")
    for _ in range(_COPIES):
        if name in PASS:
            return ""
        parts = f"{above}/{name}".split("/")
        for pattern in ALL:
            if fnmatch.fnmatchcase("/".join(parts[-1 - pattern.count("/") :]), pattern):
                return pattern
        shorter = _COPY.sub("", name.removeprefix("." if name.endswith((".swp", ".swo")) else ""))
        if shorter == name or not shorter:
            break
        name = shorter
    return ""


ALL = tuple(pattern for patterns in KINDS.values() for pattern in patterns)
