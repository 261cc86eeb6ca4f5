#!/bin/bash
# The Windows Python under Wine: `launcher.sh ARGUMENTS`. The process keeps its id and gets a Unix environment.
# Wine opens only pipes as standard streams of Python, so other streams are relayed through one.
root=@ROOT@
[ -p /dev/stdin ] || exec < <(exec cat)
[ -p /dev/stdout ] || exec > >(exec cat)
[ -p /dev/stderr ] || exec 2> >(exec cat >&2)
export WINEPREFIX=$root/prefix WINEDEBUG=${WINEDEBUG:--all} WINELOADER=@WINE@/wine64 WINESERVER=@WINE@/wineserver64
export LD_LIBRARY_PATH=@LIBRARIES@${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KMP_AFFINITY=disabled  # of OpenMP: Wine does not tell the processors of a group
export PYTHONPYCACHEPREFIX=Z:$root/pycache
export SPECLSP_TESTS_PIDS=Z:$root/pids
for name in XDG_CACHE_HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR SPECLSP_TESTS_USERS_CACHE; do
    [ "${!name:0:1}" != / ] || export "$name=Z:${!name}"
done
windows_path() { local words; IFS=: read -ra words <<<"$1"; printf -v joined 'Z:%s;' "${words[@]}"; echo "${joined%;}"; }
[ -z "$PYTHONPATH" ] || PYTHONPATH=$(windows_path "$PYTHONPATH")
exec "$WINELOADER" "$root/python/python.exe" "$@"
