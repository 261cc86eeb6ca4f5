/** Search for the program, and the choice of an install method. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { find, Machine, places } from "../src/find";
import { chosenSource, findInstallMethod } from "../src/installMethods";

const machine: Machine = {
  env: { PATH: "/usr/bin:.:tools:/bin", UV_TOOL_BIN_DIR: "/uv/bin" },
  home: "/home/me",
  storage: "/storage",
  platform: "linux",
};
const only =
  (...programs: string[]) =>
  async (path: string): Promise<boolean> =>
    programs.includes(path);

test("the locations are tried in order, and the extension's own is the last", () => {
  const paths = places(machine, "/project/.venv/bin/python").map(([path]) => path);
  assert.deepEqual(paths, [
    "/project/.venv/bin/speclsp",
    "/usr/bin/speclsp",
    "/bin/speclsp",
    "/uv/bin/speclsp",
    "/home/me/.local/bin/speclsp",
    "/storage/venv/bin/speclsp",
  ]);
});

test("a missing program makes the search go on to the next location", async () => {
  const paths = places(machine, "/project/.venv/bin/python").map(([path]) => path);
  for (const [index, path] of paths.entries()) {
    const found = await find(machine, "", "/project/.venv/bin/python", only(...paths.slice(index)));
    assert.equal("path" in found && found.path, path);
  }
  assert.ok("missing" in (await find(machine, "", undefined, only())));
});

test("a relative folder on PATH points into the workspace, and is not searched", () => {
  for (const [path] of places(machine, undefined)) assert.match(path, /^\//);
});

test("a configured program is found by path, from the home directory and on PATH", async () => {
  for (const [named, path] of [
    ["/opt/speclsp", "/opt/speclsp"],
    ["~/bin/speclsp", "/home/me/bin/speclsp"],
    ["spec", "/bin/spec"],
  ] as const) {
    const found = await find(machine, named, undefined, only(path, "/usr/bin/speclsp"));
    assert.equal("path" in found && found.path, path);
  }
});

test("a configured program that is missing is reported, and no other is used", async () => {
  for (const named of ["/opt/speclsp", "bin/speclsp", "spec"]) {
    const found = await find(machine, named, undefined, only("/usr/bin/speclsp", "bin/speclsp"));
    assert.ok("missing" in found && found.missing.includes(named));
  }
});

test("uv installs before pipx, and pipx before Python itself", async () => {
  const tools = ["/home/me/.cargo/bin/uv", "/usr/bin/pipx", "/usr/bin/python3"];
  const names = [];
  for (const index of tools.keys()) {
    names.push(
      (await findInstallMethod(machine, { server: "speclsp" }, only(...tools.slice(index)), async () => true))?.name,
    );
  }
  assert.deepEqual(names, ["uv", "pipx", "pip"]);
});

test("the package in the extension is its sdist, or the wheel of the extension for Windows", () => {
  for (const name of ["speclsp-0.1.0.tar.gz", "speclsp-0.1.0-py3-none-win_amd64.whl"]) {
    const folder = mkdtempSync(join(tmpdir(), "server "));
    try {
      writeFileSync(join(folder, "constraints.txt"), "");
      assert.throws(() => chosenSource("", folder), /no package of speclsp/);
      writeFileSync(join(folder, name), "");
      assert.deepEqual(chosenSource("", folder), {
        server: join(folder, name),
        constraints: join(folder, "constraints.txt"),
      });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
});

test("a configured source needs no package in the extension, as in a run from source", () => {
  assert.deepEqual(chosenSource("/src/speclsp", join(tmpdir(), "no such folder")), { server: "/src/speclsp" });
});

test("on macOS Apple's own Python is not run, and Homebrew's tools need no PATH", async () => {
  const mac: Machine = { ...machine, platform: "darwin", env: { PATH: "/usr/bin:/bin" } };
  const yes = async (): Promise<boolean> => true;
  const apples = ["/usr/bin/python3", "/usr/bin/python"];
  assert.equal(await findInstallMethod(mac, { server: "speclsp" }, only(...apples), yes), undefined);
  for (const path of ["/opt/homebrew/bin/uv", "/usr/local/bin/pipx", "/opt/homebrew/bin/python3"]) {
    const method = await findInstallMethod(mac, { server: "speclsp" }, only(...apples, path), yes);
    assert.equal(method?.steps[0]?.[0], path);
    assert.doesNotMatch(method.steps.flat().join(" "), /pytorch\.org/, "the package index has no CUDA build for macOS");
  }
});

test("a Python that is too old is skipped, and without any tool there is no install method", async () => {
  const tools = only("/usr/bin/python3", "/bin/python3.12");
  const method = await findInstallMethod(machine, { server: "/a/wheel.whl" }, tools, async ([python]) =>
    python!.endsWith(".12"),
  );
  assert.deepEqual(method?.steps[0], ["/bin/python3.12", "-m", "venv", "/storage/venv"]);
  assert.equal(method?.steps[1]?.at(-1), "/a/wheel.whl");
  assert.equal(await findInstallMethod(machine, { server: "speclsp" }, tools, async () => false), undefined);
});

test("each tool gets the tested library versions, also from a path with a blank", async () => {
  const bundled = { server: "/e/s.tar.gz", constraints: "/e x/c.txt" };
  const tools = ["/usr/bin/uv", "/usr/bin/pipx", "/usr/bin/python3"];
  const commands: string[][] = [];
  for (const index of tools.keys()) {
    const yes = async (): Promise<boolean> => true;
    const method = await findInstallMethod(machine, bundled, only(...tools.slice(index)), yes, yes);
    commands.push(method?.steps.at(-1)?.slice(-3) ?? []);
  }
  assert.deepEqual(commands, [
    ["--constraints", "/e x/c.txt", "/e/s.tar.gz"],
    ["--force", "--pip-args=--constraint '/e x/c.txt'", "/e/s.tar.gz"],
    ["--constraint", "/e x/c.txt", "/e/s.tar.gz"],
  ]);
});

test("a machine without a GPU gets PyTorch's CPU build, and uv is asked to choose the build", async () => {
  const yes = async (): Promise<boolean> => true;
  const no = async (): Promise<boolean> => false;
  const source = { server: "/e/s.tar.gz" };
  const uv = await findInstallMethod(machine, source, only("/usr/bin/uv"), yes, no);
  assert.ok(uv?.steps[0]?.includes("--torch-backend=auto"));
  const [older, plain] = (uv?.fallbacks ?? []).map((steps) => steps.flat().join(" "));
  assert.match(older ?? "", /--extra-index-url https:\/\/download.pytorch.org\/whl\/cpu /, "for a uv without the flag");
  assert.doesNotMatch(plain ?? "", /torch/, "where that index cannot be reached");
  const withGpu = await findInstallMethod(machine, source, only("/usr/bin/uv"), yes, yes);
  assert.deepEqual(withGpu?.fallbacks?.map((steps) => steps.flat().join(" ")), [plain]);
  const index = "--extra-index-url https://download.pytorch.org/whl/cpu --retries 1";
  const pipx = await findInstallMethod(machine, source, only("/usr/bin/pipx"), yes, no);
  assert.ok(pipx?.steps[0]?.includes(`--pip-args=${index}`));
  assert.deepEqual(pipx?.variables, { PIPX_DEFAULT_BACKEND: "pip" });
  const pip = await findInstallMethod(machine, source, only("/usr/bin/python3"), yes, no);
  assert.ok(pip?.steps[1]?.join(" ").includes(index));
  const cuda = await findInstallMethod(machine, source, only("/usr/bin/python3"), yes, yes);
  assert.ok(!cuda?.steps[1]?.join(" ").includes("pytorch.org"));
});
