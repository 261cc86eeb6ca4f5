/** Command lines for interactive shells. */

const PLAIN = /^[\w@%+=:,./-]+$/; // needs no quotes in a POSIX shell
const PLAIN_CMD = /^[\w@+:./\\-]+$/;

/** Quotes a string so that every POSIX shell reads it as one word. */
export function shellQuote(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The line that starts a program in the shell with this path: PowerShell, cmd.exe, or else a POSIX shell. */
export function commandLine(words: readonly string[], shell: string): string {
  const name = shell.split(/[\\/]/).at(-1)?.toLowerCase().replace(/\.exe$/, "");
  if (name === "pwsh" || name === "powershell") return `& ${words.map(powershellQuote).join(" ")}`;
  if (name === "cmd") return words.map(cmdQuote).join(" ");
  return words.map(shellQuote).join(" ");
}

/** PowerShell ends a string also at a typographic single quote; two of them stand for one. */
function powershellQuote(word: string): string {
  return `'${word.replaceAll(/['\u2018\u2019\u201a\u201b]/g, "$&$&")}'`;
}

/** cmd.exe has no way to keep `%NAME%` as it is on an interactive line. */
function cmdQuote(word: string): string {
  return PLAIN_CMD.test(word) ? word : `"${word.replaceAll('"', '""')}"`;
}
