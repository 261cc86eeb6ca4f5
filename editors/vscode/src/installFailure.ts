/** Reason of a failed installation in one sentence with its fix, from the output lines of uv, pipx and pip. */

const UNTRUSTED =
  "the package index has a certificate that is not trusted here. " +
  "Set SSL_CERT_FILE to your organisation's certificates, restart VS Code and try again.";
const OFFLINE = "the package index cannot be reached. Check the network and the proxy (HTTPS_PROXY), then try again.";
const FORBIDDEN = "a file could not be written. Close other programs that use speclsp, then try again.";
const CAUSES: [symptom: RegExp, sentence: (diskMb: number) => string][] = [
  [/No space left on device|not enough space on the disk|\bos error (?:28|112)\b/i, diskFull],
  [/certificate verify failed|invalid peer certificate|UnknownIssuer/i, () => UNTRUSTED],
  [/dns error|name resolution|getaddrinfo|Failed to establish a new connection|Cannot connect to proxy/i, () => OFFLINE],
  [/tcp connect error|network is unreachable|connection (?:refused|reset|aborted)|timed out/i, () => OFFLINE],
  [/Permission denied|Access is denied|\bos error (?:5|13)\b/i, () => FORBIDDEN],
];

/** Sentence about a full disk. */
export function diskFull(diskMb: number): string {
  return `the disk is full, and speclsp needs ${diskMb} MB. Free some space and try again.`;
}

/** The sentence for a failure of `tool` after `lines`. An unknown reason is in the log. */
export function failureReason(lines: readonly string[], tool: string, diskMb: number): string {
  const [, sentence] = CAUSES.find(([symptom]) => lines.some((line) => symptom.test(line))) ?? [];
  return sentence ? sentence(diskMb) : `${tool} failed. The log has its messages.`;
}
