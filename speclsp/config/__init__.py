"""Settings: schema, parsing and the directories they live in. Import names from here."""

from speclsp.config.directories import (
    APP,
    accepts_files,
    cache_dir,
    config_path,
    log_dir,
    nearest_existing,
    runtime_dir,
    runtime_path,
    state_dir,
    stats_path,
)
from speclsp.config.known_settings import KEY, KNOWN, SECTIONS, Setting, by_group
from speclsp.config.parsing import (
    THE_USERS_OWN,
    BadSettings,
    as_flags,
    changes,
    flatten,
    from_toml,
    from_words,
    gather,
    in_words,
    load,
    parse,
    read_toml,
    with_value,
)
from speclsp.config.schema import (
    SOCKET_PATH_BYTES,
    CompletionConfig,
    Config,
    ContextConfig,
    EchoConfig,
    EngineConfig,
    RemoteConfig,
)
