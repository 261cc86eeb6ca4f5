/** Search for `speclsp`: the setting, the selected Python environment, PATH, uv and pipx, our own installation. */
import { access, constants, lstat, stat } from "node:fs/promises";
import { PlatformPath, posix, win32 } from "node:path";

/** Facts about this machine that decide where programs are. */
export interface Machine {
  env: NodeJS.ProcessEnv;
  home: string;
  storage: string; // the extension's own folder
  platform: NodeJS.Platform;
}

/** Path of the program, and the location where it was found. */
export interface Found {
  path: string;
  from: string;
}

export type IsProgram = (path: string) => Promise<boolean>;

const STARTABLE = [".com", ".exe", ".bat", ".cmd"]; // of PATHEXT; the others need the shell that knows them

export const isWindows = (machine: Machine): boolean => machine.platform === "win32";

/** Rules of paths on this machine. */
export const pathRules = (machine: Machine): PlatformPath => (isWindows(machine) ? win32 : posix);

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
  const { dirname, isAbsolute, join } = pathRules(machine);
  // On Windows, only a virtual environment has its Python beside its programs.
  const ofPython = python ? [dirname(python), ...(isWindows(machine) ? [join(dirname(python), "Scripts")] : [])] : [];
  const folders: [string | undefined, string][] = [
    ...ofPython.map((folder): [string, string] => [folder, "the selected Python environment"]),
    ...onPath(machine).map((folder): [string, string] => [folder, "PATH"]),
    [env["UV_TOOL_BIN_DIR"], "uv tool"],
    [env["PIPX_BIN_DIR"], "pipx"],
    [env["XDG_BIN_HOME"], "uv tool"],
    [env["XDG_DATA_HOME"] && join(env["XDG_DATA_HOME"], "..", "bin"), "uv tool"],
    [join(home, ".local", "bin"), "uv tool or pipx"],
    [programsFolder(machine, ownEnvironment(machine)), "the extension's own installation"],
  ];
  const names = fileNames(machine, "speclsp");
  return folders.flatMap(([folder, from]) =>
    folder && isAbsolute(folder) ? names.map((name): [string, string] => [join(folder, name), from]) : [],
  );
}

/** Virtual environment that Install creates when neither uv nor pipx is available. */
export const ownEnvironment = (machine: Machine): string => pathRules(machine).join(machine.storage, "venv");

/** Folder of a virtual environment's programs. */
export const programsFolder = (machine: Machine, environment: string): string =>
  pathRules(machine).join(environment, isWindows(machine) ? "Scripts" : "bin");

/** File names that a program's name stands for: on Windows, the name with each startable extension of PATHEXT. */
function fileNames(machine: Machine, program: string): string[] {
  if (!isWindows(machine)) return [program];
  const known = (machine.env["PATHEXT"] ?? STARTABLE.join(";")).toLowerCase().split(";");
  const extensions = known.filter((extension) => STARTABLE.includes(extension));
  const isComplete = extensions.some((extension) => program.toLowerCase().endsWith(extension));
  return isComplete ? [program] : extensions.map((extension) => program + extension);
}

/** Folders on PATH. Relative ones are dropped, because they would point into the workspace. */
function onPath(machine: Machine): string[] {
  const { delimiter, isAbsolute } = pathRules(machine);
  const folders = (machine.env["PATH"] ?? "").split(delimiter);
  const unquoted = isWindows(machine) ? folders.map((folder) => folder.replaceAll('"', "")) : folders;
  return unquoted.filter((folder) => isAbsolute(folder));
}

/** Absolute path of a program given as a path, relative to the home directory (~), or as a name on PATH. */
export async function resolve(
  program: string,
  machine: Machine,
  isProgram: IsProgram = isExecutableFile,
): Promise<string | undefined> {
  const { isAbsolute, join, sep } = pathRules(machine);
  const full = program.replace(isWindows(machine) ? /^~(?=[\\/])/ : /^~(?=\/)/, () => machine.home);
  const isName = !full.includes("/") && !full.includes(sep);
  const folders = isName ? onPath(machine) : [];
  const paths = isAbsolute(full) ? [full] : folders.map((folder) => join(folder, full));
  for (const path of paths.flatMap((path) => fileNames(machine, path))) {
    if (await isProgram(path)) return path;
  }
  return undefined;
}

export async function isExecutableFile(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch (error) {
    if (process.platform !== "win32" || (error as NodeJS.ErrnoException).code !== "EACCES") return false;
    // The alias of a Store app starts, though `stat` cannot follow it: nodejs/node issue 36790.
    return lstat(path).then(
      (status) => !status.isDirectory(),
      () => false,
    );
  }
}
