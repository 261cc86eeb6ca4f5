/** Settings for the server: only those that the user set. The defaults of package.json never override config.toml. */

/** A setting as package.json declares it. */
export interface Declared {
  scope: string;
  enum?: string[];
  enumDescriptions?: string[];
}

/** A value of completion.eagerness, and the suggestions that it shows. */
export interface Level {
  name: string;
  shows: string;
}

/** The scopes of a setting's value that VS Code's `inspect` returns and the server uses. */
export interface Inspected {
  globalValue?: unknown;
  workspaceValue?: unknown;
  workspaceFolderValue?: unknown;
}

const EXTENSION_ONLY = ["server.", "install."]; // prefixes of settings that the server does not get
// prefixes of settings that a running server refuses to change: speclsp/config/parsing.py's THE_USERS_OWN
const READ_AT_START = ["remote.", "models_dir", "engine.adapter", "engine.offline"];

/** The settings that package.json declares, of all groups. */
export function declaredSettings(groups: { properties: object }[]): Record<string, Declared> {
  return Object.assign({}, ...groups.map((group) => group.properties)) as Record<string, Declared>;
}

/** The levels of completion.eagerness, in the words of package.json. */
export function levels(declared: Record<string, Declared>): Level[] {
  const { enum: names = [], enumDescriptions = [] } = declared["speclsp.completion.eagerness"] ?? {};
  return names.map((name, at) => ({ name, shows: enumDescriptions[at] ?? "" }));
}

/** Returns {dotted key: value} of the server settings that the user set; the narrowest scope wins. */
export function setByUser(
  declared: Record<string, Declared>,
  inspect: (key: string) => Inspected | undefined,
): Record<string, unknown> {
  const settings: Record<string, unknown> = {};
  for (const [key, { scope }] of Object.entries(declared)) {
    const name = key.replace(/^speclsp\./, "");
    if (EXTENSION_ONLY.some((prefix) => name.startsWith(prefix))) continue;
    const inspected = inspect(key);
    const workspaces = scope === "machine" ? undefined : (inspected?.workspaceFolderValue ?? inspected?.workspaceValue);
    const value = workspaces ?? inspected?.globalValue;
    if (value !== undefined && value !== null) settings[name] = value;
  }
  return settings;
}

/**
 * Keys of changed settings that take effect only after a restart. For a setting that is no longer set, the server must
 * read config.toml again. A running server also refuses to change where the code goes and which weights it loads.
 */
export function needingRestart(before: Record<string, unknown>, now: Record<string, unknown>): string[] {
  const removed = Object.keys(before).filter((key) => !(key in now));
  const fixed = Object.keys(now).filter((key) => READ_AT_START.some((prefix) => key.startsWith(prefix)));
  return [...removed, ...fixed.filter((key) => before[key] !== now[key])];
}

/** Command-line flags: `--set key=value` for each setting. */
export function asFlags(settings: Record<string, unknown>): string[] {
  return Object.entries(settings).flatMap(([key, value]) => ["--set", `${key}=${value}`]); // a list is joined by commas
}

/** Returns `list` without `word` if it contains it, else with it. */
export function toggled(list: readonly string[], word: string): string[] {
  return list.includes(word) ? list.filter((other) => other !== word) : [...list, word];
}

/** Returns a glob that matches exactly this path. Globs have `/` on every system. */
export function globOf(path: string, platform: string = process.platform): string {
  const slashes = platform === "win32" ? path.replaceAll("\\", "/") : path;
  return slashes.replace(/[[\]*?]/g, "[$&]");
}
