/** Search for the program, and the choice of an install method. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { find, Machine, places } from "../src/find";
import { chosenSource, findInstallMethod, hasNvidiaDriver, requirement } from "../src/installMethods";

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
      (await findInstallMethod(machine, { server: "speclsp" }, false, only(...tools.slice(index)), async () => true))?.name,
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
  assert.equal(await findInstallMethod(mac, { server: "speclsp" }, false, only(...apples), yes), undefined);
  for (const path of ["/opt/homebrew/bin/uv", "/usr/local/bin/pipx", "/opt/homebrew/bin/python3"]) {
    const method = await findInstallMethod(mac, { server: "speclsp" }, false, only(...apples, path), yes);
    assert.equal(method?.steps[0]?.[0], path);
  }
});

test("a Python that is too old is skipped, and without any tool there is no install method", async () => {
  const tools = only("/usr/bin/python3", "/bin/python3.12");
  const method = await findInstallMethod(machine, { server: "/a/wheel.whl" }, false, tools, async ([python]) =>
    python!.endsWith(".12"),
  );
  assert.deepEqual(method?.steps[0], ["/bin/python3.12", "-m", "venv", "/storage/venv"]);
  assert.equal(method?.steps[1]?.at(-1), "speclsp @ file:///a/wheel.whl");
  assert.equal(await findInstallMethod(machine, { server: "speclsp" }, false, tools, async () => false), undefined);
});

test("each tool gets the tested library versions, also from a path with a blank", async () => {
  const bundled = { server: "/e x/s.whl", constraints: "/e x/c.txt" };
  const tools = ["/usr/bin/uv", "/usr/bin/pipx", "/usr/bin/python3"];
  const commands: string[][] = [];
  for (const index of tools.keys()) {
    const method = await findInstallMethod(machine, bundled, false, only(...tools.slice(index)), async () => true);
    commands.push(method?.steps.at(-1)?.slice(-3) ?? []);
  }
  assert.deepEqual(commands, [
    ["--constraints", "/e x/c.txt", "speclsp @ file:///e%20x/s.whl"],
    ["--force", "--pip-args=--no-compile --constraint '/e x/c.txt'", "speclsp @ file:///e%20x/s.whl"],
    ["--constraint", "/e x/c.txt", "speclsp @ file:///e%20x/s.whl"],
  ]);
});

test("pip replaces an earlier installation of the same version, which it would keep", async () => {
  const programs = only("/usr/bin/python3", "/storage/venv/bin/python");
  const method = await findInstallMethod(machine, { server: "/s.whl" }, false, programs, async () => true);
  assert.deepEqual(method?.steps[2]?.slice(-3), ["--force-reinstall", "--no-deps", "speclsp @ file:///s.whl"]);
});

test("with an NVIDIA GPU each tool gets the extra with PyTorch, and uv is asked to choose the build", async () => {
  const tools = ["/usr/bin/uv", "/usr/bin/pipx", "/usr/bin/python3"];
  for (const index of tools.keys()) {
    for (const hasGpu of [true, false]) {
      const programs = only(...tools.slice(index));
      const method = await findInstallMethod(machine, { server: "/s.whl" }, hasGpu, programs, async () => true);
      assert.equal(method?.steps.at(-1)?.at(-1), `speclsp${hasGpu ? "[gpu]" : ""} @ file:///s.whl`);
      assert.equal(method.steps[0]?.includes("--torch-backend=auto"), hasGpu && method.name === "uv");
      assert.deepEqual(
        method.fallback?.[0],
        hasGpu && method.name === "uv" ? method.steps[0]?.filter((word) => !word.includes("torch")) : undefined,
        "for a uv without the flag, and where PyTorch's index cannot be reached",
      );
      assert.doesNotMatch(method.steps.flat().join(" "), /pytorch\.org/, "the package index has the CUDA build");
    }
  }
});

test("the extra is part of a path, an address and a name", () => {
  for (const [server, plain, withGpu] of [
    ["/a b/s#1.whl", "speclsp @ file:///a%20b/s%231.whl", "speclsp[gpu] @ file:///a%20b/s%231.whl"],
    ["git+https://h/r", "speclsp @ git+https://h/r", "speclsp[gpu] @ git+https://h/r"],
    ["speclsp==0.1.0", "speclsp==0.1.0", "speclsp[gpu]==0.1.0"],
    ["speclsp[gpu]", "speclsp[gpu]", "speclsp[gpu]"],
    ["speclsp-fork", "speclsp-fork", "speclsp-fork"],
  ] as const) {
    assert.equal(requirement({ server }, machine, false), plain);
    assert.equal(requirement({ server }, machine, true), withGpu);
  }
});

test("an NVIDIA driver is found by a file of its kernel module, or in WSL by its library", async () => {
  assert.equal(await hasNvidiaDriver(machine, only()), false);
  for (const file of ["/proc/driver/nvidia/version", "/usr/lib/wsl/lib/libcuda.so.1"]) {
    assert.equal(await hasNvidiaDriver(machine, only(file)), true);
  }
});
