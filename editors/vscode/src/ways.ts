/** How speclsp can be installed here: uv tool, else pipx, else an environment of the extension's own. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { quoted } from "./quoted";
import { IsProgram, isExecutableFile, Machine, ownEnvironment, resolve } from "./find";

/** Commands to run in order; each may be run again, which updates. */
export interface Way {
  name: string;
  steps: string[][];
}

const PYTHONS = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python"];
const NEW_ENOUGH = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";

/** What to install, and the versions of its libraries that it was tested with. */
export interface Source {
  server: string;
  constraints?: string;
}

/** The way this machine has, or undefined. */
export async function waysToInstall(
  machine: Machine,
  { server, constraints }: Source,
  isProgram: IsProgram = isExecutableFile,
  suits: (python: string) => Promise<boolean> = isNewEnough,
): Promise<Way | undefined> {
  const at = async (program: string, ...folders: string[]): Promise<string | undefined> => {
    const elsewhere = folders.map((folder) => join(machine.home, folder, program));
    for (const place of [program, ...elsewhere]) {
      const path = await resolve(place, machine, isProgram);
      if (path) return path;
    }
    return undefined;
  };
  const tested = (flag: string): string[] => (constraints ? [flag, constraints] : []);
  // pipx splits this as a shell would
  const pipArgs = constraints ? [`--pip-args=--constraint ${quoted(constraints)}`] : [];
  const uv = await at("uv", ".local/bin", ".cargo/bin");
  if (uv) return { name: "uv", steps: [[uv, "tool", "install", "--upgrade", ...tested("--constraints"), server]] };
  const pipx = await at("pipx", ".local/bin");
  if (pipx) return { name: "pipx", steps: [[pipx, "install", "--force", ...pipArgs, server]] };
  for (const name of PYTHONS) {
    const python = await at(name);
    if (!python || !(await suits(python))) continue;
    const environment = ownEnvironment(machine);
    const pip = [join(environment, "bin", "python"), "-m", "pip", "--disable-pip-version-check"];
    return {
      name: "pip",
      steps: [
        [python, "-m", "venv", environment],
        [...pip, "install", "--upgrade", ...tested("--constraint"), server],
      ],
    };
  }
  return undefined;
}

async function isNewEnough(python: string): Promise<boolean> {
  return promisify(execFile)(python, ["-I", "-c", NEW_ENOUGH]).then(
    () => true,
    () => false,
  );
}
