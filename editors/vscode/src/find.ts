/** Finds `speclsp`: the setting, the selected Python environment, PATH, uv and pipx, our own installation. */
import { access, constants, stat } from "node:fs/promises";
import { dirname, isAbsolute, join } from "node:path";

/** Where this machine keeps programs. */
export interface Machine {
  env: NodeJS.ProcessEnv;
  home: string;
  storage: string; // the extension's own folder
}

/** The program, and why it was taken. */
export interface Found {
  path: string;
  from: string;
}

export type IsProgram = (path: string) => Promise<boolean>;

/** The first `speclsp` there is. A configured one that is not there is an error, not a reason to take another. */
export async function find(
  machine: Machine,
  configured: string,
  python: string | undefined,
  isProgram: IsProgram = isExecutableFile,
): Promise<Found | { missing: string }> {
  if (configured) {
    const path = await resolve(configured, machine, isProgram);
    if (path) return { path, from: "the setting speclsp.server.command" };
    return { missing: `speclsp.server.command names ${configured}, which is not a program on this machine.` };
  }
  for (const [path, from] of places(machine, python)) {
    if (await isProgram(path)) return { path, from };
  }
  return {
    missing: "speclsp was not found in the selected Python environment, on PATH, or where uv and pipx install.",
  };
}

/** Every place to look, in order. */
export function places(machine: Machine, python: string | undefined): [path: string, from: string][] {
  const { env, home } = machine;
  const bins: [string | undefined, string][] = [
    [python && dirname(python), "the selected Python environment"],
    ...onPath(env).map((folder): [string, string] => [folder, "PATH"]),
    [env["UV_TOOL_BIN_DIR"], "uv tool"],
    [env["PIPX_BIN_DIR"], "pipx"],
    [env["XDG_BIN_HOME"], "uv tool"],
    [env["XDG_DATA_HOME"] && join(env["XDG_DATA_HOME"], "..", "bin"), "uv tool"],
    [join(home, ".local", "bin"), "uv tool or pipx"],
    [ownBin(machine), "the extension's own installation"],
  ];
  return bins.flatMap(([folder, from]) => (folder && isAbsolute(folder) ? [[join(folder, "speclsp"), from]] : []));
}

/** Where Install puts speclsp when there is neither uv nor pipx. */
export const ownEnvironment = (machine: Machine): string => join(machine.storage, "venv");
const ownBin = (machine: Machine): string => join(ownEnvironment(machine), "bin");

/** PATH's folders; a relative one would be a place in the workspace. */
function onPath(env: NodeJS.ProcessEnv): string[] {
  return (env["PATH"] ?? "").split(":").filter(isAbsolute);
}

/** The absolute path of a program named by path, from the home directory (~) or on PATH. */
export async function resolve(
  program: string,
  machine: Machine,
  isProgram: IsProgram = isExecutableFile,
): Promise<string | undefined> {
  const named = program.replace(/^~(?=\/)/, machine.home);
  const paths = isAbsolute(named) ? [named] : named.includes("/") ? [] : onPath(machine.env).map((f) => join(f, named));
  for (const path of paths) {
    if (await isProgram(path)) return path;
  }
  return undefined;
}

export async function isExecutableFile(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
