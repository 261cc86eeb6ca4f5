/** Windows: where programs are, how they are started, and the lines for its shells. Runs on every system. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { find, Machine, places, resolve } from "../src/find";
import { findInstallMethod, hasNvidiaDriver } from "../src/installMethods";
import { startWords } from "../src/processes";
import { globOf } from "../src/settings";
import { commandLine } from "../src/shellQuote";

const HOME = "C:\\Users\\Zoë O'Neil";
const LOCAL = `${HOME}\\AppData\\Local`;
const ALIASES = `${LOCAL}\\Microsoft\\WindowsApps`;
const machine: Machine = {
  env: {
    PATH: `"C:\\Program Files\\Tools";tools;${ALIASES}`,
    PATHEXT: ".COM;.EXE;.BAT;.CMD;.VBS;.JS",
    LOCALAPPDATA: LOCAL,
    ProgramFiles: "C:\\Program Files",
    SystemRoot: "C:\\Windows",
  },
  home: HOME,
  storage: `${HOME}\\AppData\\Roaming\\Code\\User\\globalStorage\\speclsp.speclsp`,
  platform: "win32",
};
const only =
  (...programs: string[]) =>
  async (path: string): Promise<boolean> =>
    programs.includes(path);
const yes = async (): Promise<boolean> => true;
const bundled = { server: "C:\\e x\\s.whl", constraints: `${HOME}\\e x#1\\c.txt` };

test("Scripts of an environment, PATH, the folder of uv and pipx and the extension's own are searched in order", () => {
  const paths = places(machine, "D:\\project\\.venv\\Scripts\\python.exe").map(([path]) => path);
  assert.deepEqual(
    paths.filter((path) => path.endsWith(".exe")),
    [
      "D:\\project\\.venv\\Scripts\\speclsp.exe",
      "D:\\project\\.venv\\Scripts\\Scripts\\speclsp.exe",
      "C:\\Program Files\\Tools\\speclsp.exe",
      `${ALIASES}\\speclsp.exe`,
      `${HOME}\\.local\\bin\\speclsp.exe`,
      `${machine.storage}\\venv\\Scripts\\speclsp.exe`,
    ],
  );
});

test("an interpreter outside of a virtual environment has its programs in Scripts", async () => {
  const program = "C:\\Python313\\Scripts\\speclsp.exe";
  const found = await find(machine, "", "C:\\Python313\\python.exe", only(program));
  assert.deepEqual(found, { path: program, from: "the selected Python environment" });
});

test("a name stands for the startable extensions of PATHEXT, and for no script that needs a shell", async () => {
  const stem = "C:\\Program Files\\Tools\\speclsp";
  for (const extensions of [[".exe", ".bat", ".cmd"], [".bat", ".cmd"], [".cmd"]]) {
    const files = extensions.map((extension) => stem + extension);
    assert.equal(await resolve("speclsp", machine, only(...files)), files[0]);
  }
  assert.equal(await resolve("speclsp", machine, only(`${stem}.vbs`, `${stem}.js`, stem)), undefined);
  assert.equal(await resolve("speclsp.EXE", machine, only(`${stem}.EXE`)), `${stem}.EXE`);
});

test("a configured program is found by path, with either slash, without its extension, and from the home", async () => {
  for (const [named, path] of [
    ["D:\\a b\\speclsp.exe", "D:\\a b\\speclsp.exe"],
    ["D:/a b/speclsp", "D:/a b/speclsp.exe"],
    ["\\\\server\\share\\speclsp", "\\\\server\\share\\speclsp.cmd"],
    ["~\\bin\\speclsp", `${HOME}\\bin\\speclsp.exe`],
    ["~/bin/speclsp.exe", `${HOME}/bin/speclsp.exe`],
  ] as const) {
    const found = await find(machine, named, undefined, only(path));
    assert.equal("path" in found && found.path, path, named);
  }
});

test("a path relative to the workspace is not searched", async () => {
  for (const [path] of places(machine, undefined)) assert.match(path, /^[A-Z]:\\/);
  for (const named of ["bin\\speclsp", "bin/speclsp", ".\\speclsp.exe"]) {
    assert.ok("missing" in (await find(machine, named, undefined, yes)), named);
  }
});

test("uv installs before pipx, then the launcher py, python.exe and the installer's folders", async () => {
  const tools = [
    `${LOCAL}\\Microsoft\\WinGet\\Links\\uv.exe`,
    `${HOME}\\.local\\bin\\pipx.exe`,
    "C:\\Windows\\py.exe",
    "C:\\Program Files\\Tools\\python.exe",
    `${LOCAL}\\Python\\bin\\python.exe`,
    `${LOCAL}\\Programs\\Python\\Python313\\python.exe`,
    "C:\\Program Files\\Python312\\python.exe",
  ];
  const steps = [];
  for (const index of tools.keys()) {
    const method = await findInstallMethod(machine, { server: "speclsp" }, false, only(...tools.slice(index)), yes);
    steps.push(method?.steps[0]?.slice(0, 2));
  }
  assert.deepEqual(steps, [
    [tools[0], "tool"],
    [tools[1], "install"],
    [tools[2], "-3"],
    [tools[3], "-m"],
    [tools[4], "-m"],
    [tools[5], "-m"],
    [tools[6], "-m"],
  ]);
});

test("the alias of the Microsoft Store is no Python, but the launcher of Python's install manager is one", async () => {
  const aliases = ["python.exe", "python3.exe", "python3.13.exe"].map((name) => `${ALIASES}\\${name}`);
  assert.equal(await findInstallMethod(machine, { server: "speclsp" }, false, only(...aliases), yes), undefined);
  const method = await findInstallMethod(machine, { server: "speclsp" }, false, only(...aliases, `${ALIASES}\\py.exe`), yes);
  assert.deepEqual(method?.steps[0]?.slice(0, 2), [`${ALIASES}\\py.exe`, "-3"]);
});

test("a batch file installs nothing, because cmd.exe would parse its arguments", async () => {
  const tools = only("C:\\Program Files\\Tools\\uv.cmd", "C:\\Program Files\\Tools\\python.bat");
  assert.equal(await findInstallMethod(machine, { server: "speclsp" }, false, tools, yes), undefined);
});

test("pip installs into the extension's environment", async () => {
  const method = await findInstallMethod(machine, bundled, false, only("C:\\Windows\\py.exe"), yes);
  const environment = `${machine.storage}\\venv`;
  const python = `${environment}\\Scripts\\python.exe`;
  const pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile", "--upgrade"];
  assert.deepEqual(method?.steps, [
    ["C:\\Windows\\py.exe", "-3", "-m", "venv", environment],
    [...pip, "--constraint", bundled.constraints, "speclsp @ file:///C:/e%20x/s.whl"],
  ]);
});

test("pipx gets a file with a blank in its path by a variable, as an address", async () => {
  const pipx = `${HOME}\\.local\\bin\\pipx.exe`;
  const method = await findInstallMethod(machine, bundled, false, only(pipx), yes);
  const server = "speclsp @ file:///C:/e%20x/s.whl";
  assert.deepEqual(method?.steps, [[pipx, "install", "--force", "--pip-args=--no-compile", server]]);
  assert.deepEqual(method.variables, {
    PIPX_DEFAULT_BACKEND: "pip",
    PIP_CONSTRAINT: "file:///C:/Users/Zo%C3%AB%20O'Neil/e%20x%231/c.txt",
  });
});

test("with NVIDIA's driver, pip and pipx also search PyTorch's index: the package index has no CUDA build", async () => {
  const dll = "C:\\Windows\\System32\\nvcuda.dll";
  assert.deepEqual([await hasNvidiaDriver(machine, only(dll)), await hasNvidiaDriver(machine, only())], [true, false]);
  for (const program of [`${HOME}\\.local\\bin\\pipx.exe`, "C:\\Windows\\py.exe"]) {
    const method = await findInstallMethod(machine, bundled, true, only(program), yes);
    const line = method?.steps.at(-1)?.join(" ") ?? "";
    assert.match(line, /--extra-index-url https:\/\/download\.pytorch\.org\/whl\/cu\d+ --retries 1/);
    assert.match(line, / speclsp\[gpu\] @ file:\/\/\/C:\/e%20x\/s\.whl$/);
  }
});

test("a program is started as it is, and a batch file by cmd.exe with its path in quotes", () => {
  const path = "C:\\a & b\\ü\\speclsp";
  assert.deepEqual(startWords(`${path}.exe`, ["lsp"], "win32", machine.env), { file: `${path}.exe`, args: ["lsp"] });
  for (const extension of [".cmd", ".BAT"]) {
    assert.deepEqual(startWords(path + extension, ["lsp"], "win32", machine.env), {
      file: "C:\\Windows\\System32\\cmd.exe",
      args: ["/d", "/v:off", "/s", "/c", `""${path}${extension}" lsp"`],
      windowsVerbatimArguments: true,
    });
  }
  assert.deepEqual(startWords("/bin/x.cmd", ["lsp"], "linux", {}), { file: "/bin/x.cmd", args: ["lsp"] });
});

test("what cmd.exe would change is refused", () => {
  assert.throws(() => startWords("C:\\%PATH%\\x.cmd", ["lsp"], "win32", {}), /name an \.exe file/);
  assert.throws(() => startWords("C:\\x.cmd", ["a & b"], "win32", {}), /name an \.exe file/);
});

test("a terminal gets the words of its shell", () => {
  const words = ["C:\\Zoë O’Neil's\\speclsp.exe", "doctor", "--set", 'a="b" $c%d%'];
  const powershell = "& 'C:\\Zoë O’’Neil''s\\speclsp.exe' 'doctor' '--set' 'a=\"b\" $c%d%'";
  const system = "C:\\Windows\\System32";
  assert.equal(commandLine(words, `${system}\\WindowsPowerShell\\v1.0\\PowerShell.exe`), powershell);
  assert.equal(commandLine(words, "/usr/bin/pwsh"), powershell);
  assert.equal(
    commandLine(words, `${system}\\cmd.exe`),
    '"C:\\Zoë O’Neil\'s\\speclsp.exe" doctor --set "a=""b"" $c%d%"',
  );
  assert.equal(
    commandLine(words, "C:\\Program Files\\Git\\bin\\bash.exe"),
    "'C:\\Zoë O’Neil'\\''s\\speclsp.exe' doctor --set 'a=\"b\" $c%d%'",
  );
  assert.equal(commandLine(["/a/speclsp", "stats"], ""), "/a/speclsp stats");
});

test("the glob of a file has slashes", () => {
  assert.equal(globOf("c:\\Users\\me\\a[1].py", "win32"), "c:/Users/me/a[[]1[]].py");
  assert.equal(globOf("/a\\b.py", "linux"), "/a\\b.py");
});
