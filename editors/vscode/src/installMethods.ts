/** Install methods of speclsp, in order of preference: uv tool, pipx, a virtual environment of the extension's own. */
import { execFile } from "node:child_process";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { IsProgram, isExecutableFile, Machine, ownEnvironment, resolve } from "./find";
import { shellQuote } from "./shellQuote";

/** Install commands, run in order. Running them again updates the installation. */
export interface InstallMethod {
  name: string;
  steps: string[][];
  fallbacks?: string[][][]; // steps for the case that the ones before fail, in order
}

const PYTHONS = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python"];
const CPU_INDEX = "https://download.pytorch.org/whl/cpu"; // builds of PyTorch without CUDA
const PIPX_WITH_PIP = ["env", "PIPX_DEFAULT_BACKEND=pip"]; // with uv, an extra index hides the package index
const NVIDIA_DRIVER = "/proc/driver/nvidia/version";
const NEW_ENOUGH = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";

/** Package to install, and a file with the library versions that it was tested with. */
export interface Source {
  server: string;
  constraints?: string;
}

/** Returns the first install method that works on this machine, or undefined. */
export async function findInstallMethod(
  machine: Machine,
  { server, constraints }: Source,
  isProgram: IsProgram = isExecutableFile,
  isSupported: (python: string) => Promise<boolean> = isNewEnough,
  hasGpu: () => Promise<boolean> = hasNvidiaDriver,
): Promise<InstallMethod | undefined> {
  const locate = async (program: string, ...folders: string[]): Promise<string | undefined> => {
    const candidates = folders.map((folder) => join(machine.home, folder, program));
    for (const candidate of [program, ...candidates]) {
      const path = await resolve(candidate, machine, isProgram);
      if (path) return path;
    }
    return undefined;
  };
  const pinned = (flag: string): string[] => (constraints ? [flag, constraints] : []);
  // An extra index that cannot be reached is a warning to pip; one retry keeps the wait short.
  const hasCpuOnly = !(await hasGpu());
  const cpuBuild = hasCpuOnly ? ["--extra-index-url", CPU_INDEX, "--retries", "1"] : [];
  // pipx splits this option as a shell does, so the path is quoted.
  const pipWords = [...(constraints ? ["--constraint", shellQuote(constraints)] : []), ...cpuBuild];
  const pipArgs = pipWords.length ? [`--pip-args=${pipWords.join(" ")}`] : [];
  const uv = await locate("uv", ".local/bin", ".cargo/bin");
  if (uv) {
    const install = (...flags: string[]): string[][] => [
      [uv, "tool", "install", "--upgrade", ...flags, ...pinned("--constraints"), server],
    ];
    // Old versions lack --torch-backend. Where PyTorch's index cannot be reached, the package index has the CUDA build.
    const olderCpuBuild = install("--extra-index-url", CPU_INDEX, "--index-strategy", "unsafe-best-match");
    const fallbacks = [...(hasCpuOnly ? [olderCpuBuild] : []), install()];
    return { name: "uv", steps: install("--torch-backend=auto"), fallbacks };
  }
  const pipx = await locate("pipx", ".local/bin");
  if (pipx) return { name: "pipx", steps: [[...PIPX_WITH_PIP, pipx, "install", "--force", ...pipArgs, server]] };
  for (const name of PYTHONS) {
    const python = await locate(name);
    if (!python || !(await isSupported(python))) continue;
    const environment = ownEnvironment(machine);
    const pip = [join(environment, "bin", "python"), "-m", "pip", "--disable-pip-version-check"];
    return {
      name: "pip",
      steps: [
        [python, "-m", "venv", environment],
        [...pip, "install", "--upgrade", ...cpuBuild, ...pinned("--constraint"), server],
      ],
    };
  }
  return undefined;
}

async function hasNvidiaDriver(): Promise<boolean> {
  return access(NVIDIA_DRIVER).then(
    () => true,
    () => false,
  );
}

async function isNewEnough(python: string): Promise<boolean> {
  return promisify(execFile)(python, ["-I", "-c", NEW_ENOUGH]).then(
    () => true,
    () => false,
  );
}
