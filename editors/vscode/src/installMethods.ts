/** Install methods of speclsp, in order of preference: uv tool, pipx, a virtual environment of the extension's own. */
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import {
  IsProgram,
  isExecutableFile,
  isWindows,
  Machine,
  ownEnvironment,
  pathRules,
  programsFolder,
  resolve,
} from "./find";
import { shellQuote } from "./shellQuote";

/** Install commands, run in order. Running them again updates the installation. */
export interface InstallMethod {
  name: string;
  steps: string[][];
  fallback?: string[][]; // steps for the case that `steps` fail
  variables?: Record<string, string>; // added to the environment
}

const PYTHONS = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python"];
const WINDOWS_PYTHONS = ["Python314", "Python313", "Python312", "Python311", "Python310"]; // folders of the installer
const MAC_FOLDERS = ["/opt/homebrew/bin", "/usr/local/bin"]; // of Homebrew and python.org; the Dock's PATH lacks them
const CUDA_INDEX = "https://download.pytorch.org/whl/cu126"; // for Windows, where the package index has no CUDA build
const PIPX_WITH_PIP = { PIPX_DEFAULT_BACKEND: "pip" }; // with uv, an extra index hides the package index
// A file of NVIDIA's driver: of its kernel module, of WSL, of Windows.
const NVIDIA_FILES = ["/proc/driver/nvidia/version", "/usr/lib/wsl/lib/libcuda.so.1"];
const NVIDIA_DLL = "nvcuda.dll";
// PyTorch has no builds of 32 bits. A Python of the Microsoft Store makes its environments where no other program sees
// them, because Windows redirects what it writes below AppData (docs.python.org/3/using/windows.html).
const SUITABLE = [
  "import sys, venv, ensurepip",
  "sys.exit(sys.version_info < (3, 10) or sys.maxsize < 2**32 or 'WindowsApps' in sys.base_prefix)",
].join("; ");

/** Package to install, and a file with the library versions that it was tested with. */
export interface Source {
  server: string;
  constraints?: string;
}

/** Sizes of an installation without the model, in MB. */
export const installedSize = (hasGpu: boolean): { downloadMb: number; diskMb: number } =>
  hasGpu ? { downloadMb: 3000, diskMb: 6000 } : { downloadMb: 37, diskMb: 185 };

/** The sizes and the build for this machine, as part of a sentence. */
export const sizeInWords = (hasGpu: boolean): string =>
  hasGpu
    ? "3 GB to download, 6 GB on disk, with PyTorch for your NVIDIA GPU"
    : "37 MB to download, 0.2 GB on disk";

/** The package in the extension's folder `server`: a wheel for the extension's platform, else the sdist. */
function bundledSource(folder: string): Source {
  const name = readdirSync(folder).find((entry) => /^speclsp-.*\.(whl|tar\.gz)$/.test(entry));
  if (!name) throw new Error(`no package of speclsp in ${folder}`);
  return { server: join(folder, name), constraints: join(folder, "constraints.txt") };
}

/** The configured source, else the package in the extension's folder `server`, which a run from source lacks. */
export function chosenSource(configured: string, folder: string): Source {
  return configured ? { server: configured } : bundledSource(folder);
}

/**
 * The requirement for pip and uv: the package, with its extra `gpu` where an NVIDIA GPU is. A path becomes an address,
 * because uv accepts no extra after a path.
 */
export function requirement({ server }: Source, machine: Machine, hasGpu: boolean): string {
  const name = hasGpu ? "speclsp[gpu]" : "speclsp";
  if (server.includes("://")) return `${name} @ ${server}`;
  if (pathRules(machine).isAbsolute(server)) return `${name} @ ${fileUrl(server)}`;
  return server.replace(/^speclsp(?![\w.[-])/, name);
}

/** Returns the first install method that works on this machine, or undefined. */
export async function findInstallMethod(
  machine: Machine,
  source: Source,
  hasGpu: boolean,
  isProgram: IsProgram = isExecutableFile,
  isSupported: (python: string[]) => Promise<boolean> = isSuitable,
): Promise<InstallMethod | undefined> {
  const wanted = requirement(source, machine, hasGpu);
  const pinned = (flag: string): string[] => (source.constraints ? [flag, source.constraints] : []);
  const uv = await locate("uv", machine, isProgram);
  if (uv) {
    const install = (...flags: string[]): string[][] => [
      [uv, "tool", "install", "--upgrade", ...flags, ...pinned("--constraints"), wanted],
    ];
    // Old versions of uv lack --torch-backend, and PyTorch's own index may be out of reach.
    const steps = hasGpu ? install("--torch-backend=auto") : install();
    return { name: "uv", steps, ...(hasGpu && { fallback: install() }) };
  }
  const cudaBuild = hasGpu && isWindows(machine) ? ["--extra-index-url", CUDA_INDEX, "--retries", "1"] : [];
  const pipx = await locate("pipx", machine, isProgram);
  if (pipx) return pipxMethod(pipx, machine, source, wanted, cudaBuild);
  for (const python of await pythons(machine, isProgram)) {
    if (!(await isSupported(python))) continue;
    const environment = ownEnvironment(machine);
    const name = isWindows(machine) ? "python.exe" : "python";
    const own = pathRules(machine).join(programsFolder(machine, environment), name);
    // A module is compiled when it is first imported, and most never are.
    const pip = [own, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"];
    // pip keeps a package of the same version, which a development build has.
    const again = [...pip, "--force-reinstall", "--no-deps", wanted];
    return {
      name: "pip",
      steps: [
        [...python, "-m", "venv", environment],
        [...pip, "--upgrade", ...cudaBuild, ...pinned("--constraint"), wanted],
        ...((await isProgram(own)) ? [again] : []),
      ],
    };
  }
  return undefined;
}

/** pipx splits --pip-args: as a POSIX shell does, and on Windows by rules that changed often, so none is used there. */
function pipxMethod(
  pipx: string,
  machine: Machine,
  { constraints }: Source,
  wanted: string,
  cudaBuild: string[],
): InstallMethod {
  const byVariable = isWindows(machine) && constraints ? { PIP_CONSTRAINT: fileUrl(constraints) } : {};
  const quoted = constraints && !isWindows(machine) ? ["--constraint", shellQuote(constraints)] : [];
  const words = ["--no-compile", ...quoted, ...cudaBuild];
  return {
    name: "pipx",
    steps: [[pipx, "install", "--force", `--pip-args=${words.join(" ")}`, wanted]],
    variables: { ...PIPX_WITH_PIP, ...byVariable },
  };
}

/** file: address of an absolute path. pip splits PIP_CONSTRAINT at blanks, and an address has none. */
function fileUrl(path: string): string {
  const isPosix = path.startsWith("/");
  const slashed = isPosix ? path : `/${path.replaceAll("\\", "/")}`;
  return `file://${encodeURI(slashed).replace(/[?#]/g, encodeURIComponent)}`;
}

/** Path of a program that can be started without a shell: on PATH, or where its installer puts it. */
async function locate(program: string, machine: Machine, isProgram: IsProgram): Promise<string | undefined> {
  const { join } = pathRules(machine);
  const local = machine.env["LOCALAPPDATA"];
  const folders = [join(machine.home, ".local", "bin"), join(machine.home, ".cargo", "bin")];
  if (isWindows(machine) && local) folders.push(join(local, "Microsoft", "WinGet", "Links"));
  if (machine.platform === "darwin") folders.push(...MAC_FOLDERS);
  const name = isWindows(machine) ? `${program}.exe` : program; // cmd.exe would parse the arguments of a batch file
  for (const candidate of [name, ...folders.map((folder) => join(folder, name))]) {
    const path = await resolve(candidate, machine, isProgram);
    if (path) return path;
  }
  return undefined;
}

/** Commands of the interpreters on this machine, in order of preference. */
async function pythons(machine: Machine, isProgram: IsProgram): Promise<string[][]> {
  const { env } = machine;
  const { join } = pathRules(machine);
  const isPython: IsProgram = async (path) => !isOfSystem(machine, path) && (await isProgram(path));
  let candidates = PYTHONS.map((name) => [name]);
  if (machine.platform === "darwin") candidates.push(...MAC_FOLDERS.map((folder) => [join(folder, "python3")]));
  if (isWindows(machine)) {
    const local = env["LOCALAPPDATA"] ? join(env["LOCALAPPDATA"], "Programs", "Python") : undefined;
    const launchers = [...(local ? [join(local, "Launcher")] : []), env["SystemRoot"] ?? "C:\\Windows"];
    const installed = [local, env["ProgramFiles"]].flatMap((top) =>
      top ? WINDOWS_PYTHONS.map((folder) => [join(top, folder, "python.exe")]) : [],
    );
    const launcher = [["py.exe", "-3"], ...launchers.map((folder) => [join(folder, "py.exe"), "-3"])];
    const managed = env["LOCALAPPDATA"] ? [[join(env["LOCALAPPDATA"], "Python", "bin", "python.exe")]] : [];
    candidates = [...launcher, ["python.exe"], ...managed, ...installed];
  }
  const commands: string[][] = [];
  for (const [program = "", ...flags] of candidates) {
    const path = await resolve(program, machine, isPython);
    if (path) commands.push([path, ...flags]);
  }
  return commands;
}

/**
 * True for an interpreter that the system itself puts there. Windows' own opens the Microsoft Store where no Python comes
 * from there; that of macOS is 3.9, or asks to install Apple's developer tools.
 */
function isOfSystem(machine: Machine, path: string): boolean {
  if (machine.platform === "darwin") return path.startsWith("/usr/bin/");
  return isWindows(machine) && /\\Microsoft\\WindowsApps\\python[^\\]*$/i.test(path);
}

/** True where NVIDIA's driver is installed. `exists` tells whether a file is there. */
export async function hasNvidiaDriver(machine: Machine, exists: IsProgram = isFile): Promise<boolean> {
  const { join } = pathRules(machine);
  const dll = join(machine.env["SystemRoot"] ?? "C:\\Windows", "System32", NVIDIA_DLL);
  const files = isWindows(machine) ? [dll] : NVIDIA_FILES;
  for (const file of files) if (await exists(file)) return true;
  return false;
}

async function isFile(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function isSuitable([python = "", ...flags]: string[]): Promise<boolean> {
  return promisify(execFile)(python, [...flags, "-I", "-c", SUITABLE], { windowsHide: true }).then(
    () => true,
    () => false,
  );
}
