/** Search for `speclsp`: the setting, the selected Python environment, PATH, uv and pipx, our own installation. */
import { access, constants, stat } from "node:fs/promises";
import { dirname, isAbsolute, join } from "node:path";

/** Facts about this machine that decide where programs are. */
export interface Machine {
  env: NodeJS.ProcessEnv;
  home: string;
  storage: string; // the extension's own folder
}

/** Path of the program, and the location where it was found. */
export interface Found {
  path: string;
  from: string;
}

export type IsProgram = (path: string) => Promise<boolean>;

/** Returns the first `speclsp` found. A configured program that is missing is an error: no other is used. */
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

/** Candidate paths, in search order. */
export function places(machine: Machine, python: string | undefined): [path: string, from: string][] {
  const { env, home } = machine;
  const folders: [string | undefined, string][] = [
    [python && dirname(python), "the selected Python environment"],
    ...onPath(env).map((folder): [string, string] => [folder, "PATH"]),
    [env["UV_TOOL_BIN_DIR"], "uv tool"],
    [env["PIPX_BIN_DIR"], "pipx"],
    [env["XDG_BIN_HOME"], "uv tool"],
    [env["XDG_DATA_HOME"] && join(env["XDG_DATA_HOME"], "..", "bin"), "uv tool"],
    [join(home, ".local", "bin"), "uv tool or pipx"],
    [ownBin(machine), "the extension's own installation"],
  ];
  return folders.flatMap(([folder, from]) => (folder && isAbsolute(folder) ? [[join(folder, "speclsp"), from]] : []));
}

/** Virtual environment that Install creates when neither uv nor pipx is available. */
export const ownEnvironment = (machine: Machine): string => join(machine.storage, "venv");
const ownBin = (machine: Machine): string => join(ownEnvironment(machine), "bin");

/** Folders on PATH. Relative ones are dropped, because they would point into the workspace. */
function onPath(env: NodeJS.ProcessEnv): string[] {
  return (env["PATH"] ?? "").split(":").filter(isAbsolute);
}

/** Absolute path of a program given as a path, relative to the home directory (~), or as a name on PATH. */
export async function resolve(
  program: string,
  machine: Machine,
  isProgram: IsProgram = isExecutableFile,
): Promise<string | undefined> {
  const full = program.replace(/^~(?=\/)/, machine.home);
  const paths = isAbsolute(full) ? [full] : full.includes("/") ? [] : onPath(machine.env).map((f) => join(f, full));
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
