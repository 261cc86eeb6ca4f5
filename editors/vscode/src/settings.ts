/** Which settings the server hears: those the user wrote. package.json's defaults never override config.toml. */
/** A setting as package.json declares it. */
export interface Declared {
  scope: string;
}

/** Where a setting is set, of what VS Code's `inspect` says. */
export interface Inspected {
  globalValue?: unknown;
  workspaceValue?: unknown;
  workspaceFolderValue?: unknown;
}

const OURS = ["server.", "install."]; // for the extension, not for the server
const AT_START = ["backend.", "engine.socket", "models_dir"]; // speclsp/config/schema.py's WHERE_CODE_GOES

/** {dotted key: value} of the server's settings that somebody set; the narrowest place wins. */
export function setByUser(
  declared: Record<string, Declared>,
  inspect: (key: string) => Inspected | undefined,
): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [key, { scope }] of Object.entries(declared)) {
    const name = key.replace(/^speclsp\./, "");
    if (OURS.some((prefix) => name.startsWith(prefix))) continue;
    const at = inspect(key);
    const workspaces = scope === "machine" ? undefined : (at?.workspaceFolderValue ?? at?.workspaceValue);
    const value = workspaces ?? at?.globalValue;
    if (value !== undefined && value !== null) found[name] = value;
  }
  return found;
}

/**
 * The keys that only a fresh server hears. Of what is no longer set it must read in config.toml; and it takes who gets
 * the code, and whose weights answer, from nobody once it runs.
 */
export function forAFreshStart(before: Record<string, unknown>, now: Record<string, unknown>): string[] {
  const gone = Object.keys(before).filter((key) => !(key in now));
  const fixed = Object.keys(now).filter((key) => AT_START.some((prefix) => key.startsWith(prefix)));
  return [...gone, ...fixed.filter((key) => before[key] !== now[key])];
}

/** `--set key=value` for each setting, as the command line takes them. */
export function asFlags(settings: Record<string, unknown>): string[] {
  return Object.entries(settings).flatMap(([key, value]) => ["--set", `${key}=${value}`]); // a list joins with commas
}

/** `list` with `word` if it was not in it, without it if it was. */
export function toggled(list: readonly string[], word: string): string[] {
  return list.includes(word) ? list.filter((other) => other !== word) : [...list, word];
}

/** A glob that matches this path and no other. */
export function globOf(path: string): string {
  return path.replace(/[[\]*?]/g, "[$&]");
}
